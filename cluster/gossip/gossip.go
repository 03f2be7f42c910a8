// Package gossip tells which nodes are alive, through memberlist.
package gossip

import (
	"context"
	"log/slog"

	"github.com/hashicorp/memberlist"
)

type Options struct {
	Name      string   // unique among processes: the server id, or node~instance where there is none
	Bind      string   // host:port
	Advertise string   // host or host:port; empty: Bind's, or the first private address
	Keys      [][]byte // the first encrypts, all decrypt
	Meta      func() Meta
	Seeds     func() []string                                          // host:port of others' gossip; names are resolved again while alone
	Transport memberlist.NodeAwareTransport                            // for tests; nil: UDP and TCP at Bind
	Lookup    func(ctx context.Context, host string) ([]string, error) // nil: the system's resolver
	Log       *slog.Logger
}

type Gossip struct{}

// Member is another process that was heard of within the last hour.
type Member struct {
	Meta
	Alive  bool
	Gossip string // host:port
}

// Conflict is two processes that go on under one name.
type Conflict struct{ Name, Ours, Theirs string }

func New(o Options) (*Gossip, error)            { panic("seam") } // listens
func (g *Gossip) Run(ctx context.Context) error { panic("seam") } // says goodbye at the end
func (g *Gossip) Close() error                  { panic("seam") } // without Run
func (g *Gossip) Addr() string                  { panic("seam") } // host:port that others are told
func (g *Gossip) Members() []Member             { panic("seam") } // without this one
func (g *Gossip) Conflicts() []Conflict         { panic("seam") }
func (g *Gossip) Update()                       { panic("seam") } // Meta has changed; returns at once
func (g *Gossip) Changed() <-chan struct{}      { panic("seam") }
