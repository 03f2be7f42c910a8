package recovery

import (
	"context"
	"errors"
	"sync"
)

// Claims keeps two agents from the same window. It is a courtesy, not a lock: an agent that was stopped for longer than its claim
// lasts goes on working beside whoever claimed after it, and record ids, cuts and coverage make that harmless. Implementations are safe
// for concurrent use.
type Claims interface {
	// Claim takes what is called name, and does not wait: it returns false where somebody else has it now. An error says that nobody
	// knows; then nothing is claimed.
	Claim(ctx context.Context, name string) (Claim, bool, error)
}

// Claim is one window that is ours for now. It ends by Done or by Release, whichever is called first.
type Claim interface {
	// Context ends when the claim cannot be trusted any more: it was not renewed in time, or it has been given back. The work runs
	// under it.
	Context() context.Context

	// Done gives the claim back because the work is complete. ErrStale says that it was not ours any more: what was written stays.
	Done(ctx context.Context) error

	// Release gives the claim back with the work undone.
	Release(ctx context.Context)
}

// ErrStale is what Done wraps where another has claimed meanwhile.
var ErrStale = errors.New("the claim is not ours any more")

// Local claims windows within one process: what a single node needs. The zero value is ready.
type Local struct {
	mu   sync.Mutex
	held map[string]*localClaim
}

// Claim implements Claims.
func (l *Local) Claim(_ context.Context, name string) (Claim, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[name] != nil {
		return nil, false, nil
	}
	if l.held == nil {
		l.held = map[string]*localClaim{}
	}
	c := &localClaim{of: l, name: name}
	c.ctx, c.end = context.WithCancel(context.Background())
	l.held[name] = c
	return c, true, nil
}

type localClaim struct {
	of   *Local
	name string
	ctx  context.Context
	end  context.CancelFunc
}

func (c *localClaim) Context() context.Context { return c.ctx }

func (c *localClaim) Done(context.Context) error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.end()
	if c.of.held[c.name] != c {
		return ErrStale
	}
	delete(c.of.held, c.name)
	return nil
}

func (c *localClaim) Release(ctx context.Context) { _ = c.Done(ctx) } // that it was given back before is no fault

// Elections says which node of a cluster speaks for all where one must. Implementations are safe for concurrent use.
type Elections interface {
	// Elected runs role whenever this node holds the office called name, and returns when ctx has ended and role has returned. The
	// context of role ends with the office, before another node can hold it; role returns soon after.
	Elected(ctx context.Context, name string, role func(context.Context))
}

// Alone is the elections of a node without others: it holds every office.
type Alone struct{}

// Elected implements Elections.
func (Alone) Elected(ctx context.Context, _ string, role func(context.Context)) {
	role(ctx)
	<-ctx.Done()
}
