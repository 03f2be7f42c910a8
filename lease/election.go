package lease

import (
	"context"
	"time"
)

// Election is a lease on a well-known name that several compete for.
type Election struct {
	c    *Client
	name string
	ttl  time.Duration
}

// Elect is a candidacy for a name. If the one elected dies, another follows within ttl.
func (c *Client) Elect(name string, ttl time.Duration) *Election {
	return &Election{c: c, name: name, ttl: ttl}
}

// resignWithin bounds how long resigning waits for the cluster. Where it does not answer, the lease ends by itself.
const resignWithin = 3 * time.Second

// Run campaigns until ctx ends. While elected it runs role: the role is held from its start until it returns, and its context ends
// when the trust in the election ends or ctx does. Who returns from a role resigns, and stands again behind those who wait; who returns
// early therefore is elected again soon where nobody else stands. The error says that the name or the time is not legal; the end of
// ctx is none.
func (e *Election) Run(ctx context.Context, role func(ctx context.Context, token uint64)) error {
	pause := backoff{base: time.Second, most: time.Second}
	for {
		h, err := e.c.Acquire(ctx, e.name, e.ttl)
		switch {
		case ctx.Err() != nil && h == nil:
			return nil
		case err != nil:
			return err
		}
		e.serve(ctx, h, role)
		if !pause.sleep(ctx, e.ttl) {
			return nil
		}
	}
}

// serve runs the role once, and resigns.
func (e *Election) serve(ctx context.Context, h *Held, role func(ctx context.Context, token uint64)) {
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(resignWithin, e.ttl))
		defer cancel()
		if err := h.Release(within); err != nil {
			e.c.o.Log.Info("resigned without an answer: the next is elected when the lease ends", "lease", e.name, "error", err)
		}
	}()
	elected, cancel := context.WithCancelCause(h.Context())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	e.c.o.Log.Info("elected", "lease", e.name, "token", h.Token())
	role(elected, h.Token())
}

// Observe asks the leader who is elected.
func (e *Election) Observe(ctx context.Context) (Info, error) { return e.c.Observe(ctx, e.name) }
