package quorum

import (
	"context"
	"io"
	"log/slog"
)

// Quorum is one running server. Its methods may be called from anywhere at any time.
type Quorum struct{}

// Create makes the directory and a server id in it: the name and a random birth, durable when it returns. An id that is there already
// is returned as it is.
func Create(dir, name string) (id string, err error) { panic("seam") }

// Inspect tells what lies in a directory of which no server runs.
func Inspect(dir string) (Disk, error) { panic("seam") }

// Open starts the server. It does not found a quorum: an empty directory waits for a leader, or for Bootstrap.
func Open(o Options) (*Quorum, error) { panic("seam") }

// Rewrite makes the server of the directory the only one of its quorum, at the price of commits that only others held.
func Rewrite(dir string, log *slog.Logger) error { panic("seam") }

// Bootstrap founds a quorum of this server alone and makes it stand.
func (q *Quorum) Bootstrap(ctx context.Context) error { panic("seam") }
func (q *Quorum) Close(ctx context.Context) error     { panic("seam") }

func (q *Quorum) Propose(ctx context.Context, route byte, cmd []byte) ([]byte, error) { panic("seam") }
func (q *Quorum) Query(ctx context.Context, route byte, x []byte) ([]byte, error)     { panic("seam") }
func (q *Quorum) Verify(ctx context.Context) error                                    { panic("seam") }
func (q *Quorum) State() State                                                        { panic("seam") }
func (q *Quorum) Changed() <-chan struct{}                                            { panic("seam") }
func (q *Quorum) AddNonvoter(ctx context.Context, id string) error                    { panic("seam") }
func (q *Quorum) Promote(ctx context.Context, id string) error                        { panic("seam") }
func (q *Quorum) Demote(ctx context.Context, id string) error                         { panic("seam") }
func (q *Quorum) Remove(ctx context.Context, id string) error                         { panic("seam") }
func (q *Quorum) Handover(ctx context.Context, id string) error                       { panic("seam") }
func (q *Quorum) Force(ctx context.Context) error                                     { panic("seam") }
func (q *Quorum) Stand() error                                                        { panic("seam") }
func (q *Quorum) Follower(id string) Follower                                         { panic("seam") }
func (q *Quorum) Snapshot(ctx context.Context) (io.ReadCloser, Meta, error)           { panic("seam") }
func (q *Quorum) Restore(ctx context.Context, r io.Reader, size int64) error          { panic("seam") }
