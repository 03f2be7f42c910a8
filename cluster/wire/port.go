package wire

import (
	"context"

	"github.com/hashicorp/raft"
)

// Port is one node's port.
type Port struct{}

func Open(o Options) (*Port, error)             { panic("seam") }
func (p *Port) Handle(method string, h Handler) { panic("seam") }

// HandleOpen is Handle for what nodes ask before they know whether they are of one founding: it answers those of another founding too.
func (p *Port) HandleOpen(method string, h Handler) { panic("seam") }
func (p *Port) Run(ctx context.Context) error       { panic("seam") }
func (p *Port) Close() error                        { panic("seam") }
func (p *Port) Addr() string                        { panic("seam") }

// Stream is this port for Raft, under the server id of this moment. Closing it closes its connections; a later Stream takes over.
func (p *Port) Stream() raft.StreamLayer { panic("seam") }
func (p *Port) Call(ctx context.Context, address, method string, body []byte) ([]byte, error) {
	panic("seam")
}

func TCP() Network { panic("seam") }
