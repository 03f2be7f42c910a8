package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Options of a Client.
type Options struct {
	Proposer Proposer
	Asker    Asker
	Holder   string        // who holds, in the eyes of the others: <node>~<instance>
	Margin   time.Duration // how much earlier than the table a holder stops to trust itself; at least a tenth of the lease's time, always
	Log      *slog.Logger
}

// Client asks for leases and keeps what it holds.
type Client struct{}

// New is a client that holds nothing. It needs Run to keep anything.
func New(o Options) *Client { return &Client{} }

// Run renews everything held, in one command a round, until ctx ends. What is held then is not renewed any more and ends by itself.
func (c *Client) Run(ctx context.Context) error { return errors.New("seam") }

// Acquire waits its turn until ctx ends.
func (c *Client) Acquire(ctx context.Context, name string, ttl time.Duration) (*Held, error) {
	return nil, errors.New("seam")
}

// Try does not wait: held is false where another holds the lease or waits for it.
func (c *Client) Try(ctx context.Context, name string, ttl time.Duration) (h *Held, held bool, err error) {
	return nil, false, errors.New("seam")
}

// Observe says who holds a name.
func (c *Client) Observe(ctx context.Context, name string) (Info, error) {
	return Info{}, errors.New("seam")
}

// Count is how many leases this client holds.
func (c *Client) Count() int { return 0 }

// Held is a lease that this client holds. Its methods are safe for concurrent use.
type Held struct{}

func (h *Held) Name() string             { return "" }
func (h *Held) Token() uint64            { return 0 }
func (h *Held) Context() context.Context { return nil }

// Release gives the lease up. Where it has ended already it does nothing.
func (h *Held) Release(ctx context.Context) error { return errors.New("seam") }

// Done releases the lease and says that the work under it is complete; ErrStale where the token is no longer the lease's.
func (h *Held) Done(ctx context.Context) error { return errors.New("seam") }

// Election is a lease on a well-known name.
type Election struct{}

// Elect is a candidacy for a name.
func (c *Client) Elect(name string, ttl time.Duration) *Election { return &Election{} }

// Run campaigns until ctx ends; while elected it runs role.
func (e *Election) Run(ctx context.Context, role func(ctx context.Context, token uint64)) error {
	return errors.New("seam")
}

// Observe says who is elected.
func (e *Election) Observe(ctx context.Context) (Info, error) { return Info{}, errors.New("seam") }
