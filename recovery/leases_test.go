package recovery_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/recovery"
)

// leases are claims of several processes that end by themselves, as a cluster keeps them: whoever is not heard of for ttl has none.
type leases struct {
	ttl time.Duration

	mu     sync.Mutex
	held   map[string]*lease
	tokens uint64
	down   bool // nobody answers
	claims int
	never  []string // what must not happen
}

type lease struct {
	holder string
	token  uint64
	until  time.Time
}

func newLeases(ttl time.Duration) *leases { return &leases{ttl: ttl, held: map[string]*lease{}} }

// lose ends all leases at once, as no table does by itself: their holders hear of it when they renew.
func (l *leases) lose() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.held)
	clear(l.held)
	return n
}

func (l *leases) live() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, h := range l.held {
		if time.Now().Before(h.until) {
			out = append(out, h.holder+" "+name)
		}
	}
	return out
}

func (l *leases) away(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

func (l *leases) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claims
}

// client is one process's side. A paused one renews nothing and notices nothing; a dead one gives nothing back either.
type client struct {
	of   *leases
	node string

	mu           sync.Mutex
	paused, dead bool
}

func (c *client) pause(on bool) { c.set(func() { c.paused = on }) }
func (c *client) kill()         { c.set(func() { c.dead = true }) }

func (c *client) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *client) state() (paused, dead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused, c.dead
}

// Claim implements recovery.Claims.
func (c *client) Claim(_ context.Context, name string) (recovery.Claim, bool, error) {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims++
	if l.down {
		return nil, false, fmt.Errorf("no leader")
	}
	if h := l.held[name]; h != nil && time.Now().Before(h.until) {
		if h.holder == c.node {
			l.never = append(l.never, c.node+" claims twice: "+name)
		}
		return nil, false, nil
	}
	l.tokens++
	l.held[name] = &lease{c.node, l.tokens, time.Now().Add(l.ttl)}
	k := &claim{of: c, name: name, token: l.tokens, ended: make(chan struct{})}
	k.ctx, k.end = context.WithCancel(context.Background())
	go k.renew()
	return k, true, nil
}

type claim struct {
	of    *client
	name  string
	token uint64
	ctx   context.Context
	end   context.CancelFunc
	ended chan struct{}
	once  sync.Once
}

func (k *claim) Context() context.Context { return k.ctx }

// renew keeps the lease alive. Trust ends an eighth of the time before the lease can.
func (k *claim) renew() {
	trusted := time.Now().Add(k.of.of.ttl * 7 / 8)
	for {
		select {
		case <-time.After(k.of.of.ttl / 4):
		case <-k.ended:
			return
		}
		paused, dead := k.of.state()
		if paused {
			continue
		}
		if dead || !time.Now().Before(trusted) || !k.extend() {
			k.end()
			return
		}
		trusted = time.Now().Add(k.of.of.ttl * 7 / 8)
	}
}

func (k *claim) extend() bool {
	l := k.of.of
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[k.name]
	if h == nil || h.token != k.token || l.down {
		return false
	}
	h.until = time.Now().Add(l.ttl)
	return true
}

// Done implements recovery.Claim.
func (k *claim) Done(context.Context) error {
	k.once.Do(func() { close(k.ended) })
	k.end()
	if _, dead := k.of.state(); dead {
		return fmt.Errorf("dead")
	}
	l := k.of.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[k.name]; h == nil || h.token != k.token || !time.Now().Before(h.until) {
		return fmt.Errorf("%s: %w", k.name, recovery.ErrStale)
	}
	delete(l.held, k.name)
	return nil
}

// Release implements recovery.Claim.
func (k *claim) Release(ctx context.Context) { _ = k.Done(ctx) }
