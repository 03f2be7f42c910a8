package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrLost is the cause of a Held.Context that ended because the trust in the lease did.
	ErrLost = errors.New("the lease is lost")
	// ErrReleased is the cause of a Held.Context that its holder ended.
	ErrReleased = errors.New("the lease was given up")
)

// Held is a lease that this client holds. Its methods are safe for concurrent use.
type Held struct {
	c      *Client
	name   string
	token  uint64
	trust  time.Duration // how long it is trusted after it was asked for
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Under the client's lock:
	asked   time.Time // when what gave the trust that holds was asked
	timer   *time.Timer
	over    bool // the context has ended; it is not renewed any more, unless
	closing bool // Done is under way: that the lease ends is no loss
}

// hold begins to trust a lease that was asked for at a time. It is nil where that trust is over before it began.
func (c *Client) hold(a *attempt, token uint64, asked time.Time) *Held {
	h := &Held{c: c, name: a.name, token: token, trust: a.trust, asked: asked}
	left := time.Until(h.end())
	if left <= 0 {
		return nil
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	h.timer = time.AfterFunc(left, h.ring)
	c.mu.held[token] = h
	c.mu.stats.Acquired++
	poke(c.wake)
	return h
}

// Name is the lease's.
func (h *Held) Name() string { return h.name }

// Token is the fencing token: whatever has an effect under the lease carries it, and whoever takes effects refuses one that is lower
// than the greatest it has seen.
func (h *Held) Token() uint64 { return h.token }

// Context ends when the trust in the lease ends, and no later. Its cause is ErrLost or ErrReleased.
func (h *Held) Context() context.Context { return h.ctx }

func (h *Held) end() time.Time { return h.asked.Add(h.trust) }

// ring is called when the trust should be over.
func (h *Held) ring() {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if !h.over && time.Until(h.end()) <= 0 {
		h.lose(errors.New("it could not be renewed in time"))
	}
}

// prolong trusts from a later asking on. A trust that is over stays over, even if its timer is late.
func (h *Held) prolong(asked time.Time) {
	switch {
	case !asked.After(h.asked):
	case h.closing:
		h.asked = asked
	case !h.over && time.Until(h.end()) > 0:
		h.asked = asked
		h.timer.Reset(time.Until(h.end()))
	}
}

func (h *Held) lose(why error) {
	h.c.mu.stats.Lost++
	h.c.o.Log.Warn("a lease is lost", "lease", h.name, "token", h.token, "reason", why)
	h.finish(fmt.Errorf("%w: %q, token %d: %w", ErrLost, h.name, h.token, why))
}

// finish ends the trust, once.
func (h *Held) finish(cause error) {
	if h.over {
		return
	}
	h.over = true
	h.timer.Stop()
	delete(h.c.mu.held, h.token)
	h.cancel(cause)
}

// giveUp ends the trust at the holder's wish, and reports whether there still was any.
func (h *Held) giveUp() bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	trusted := !h.over
	h.finish(ErrReleased)
	return trusted
}

// Release gives the lease up: the context ends at once, then the cluster is told, until it answers or ctx ends. An error says that it
// did not answer; Run goes on telling it, and at the latest the lease ends by itself. Where the lease has ended already nothing
// happens.
func (h *Held) Release(ctx context.Context) error {
	if !h.giveUp() {
		return nil
	}
	cmd := releaseCommand(h.name, h.token, false)
	if _, err := h.c.insist(ctx, cmd, h.trust); err != nil {
		h.c.leave(cmd, h.end())
		return fmt.Errorf("releasing %q: %w", h.name, err)
	}
	return nil
}

// Done says that the work under the lease is complete, and releases it. The context ends at once; then the cluster is asked, until it
// answers or ctx ends, and the lease is kept meanwhile. ErrStale means that the token is no longer the lease's: what was done under it
// is not accepted, another may be at it. Any other error leaves the outcome unknown, and Done may be called again.
func (h *Held) Done(ctx context.Context) error {
	h.close()
	defer h.drop()
	reply, err := h.c.insist(ctx, releaseCommand(h.name, h.token, true), h.trust)
	switch {
	case err != nil:
		return fmt.Errorf("completing %q: %w", h.name, err)
	case code(reply) == codeStale:
		return fmt.Errorf("completing %q under token %d: %w", h.name, h.token, ErrStale)
	case code(reply) != codeDone:
		return fmt.Errorf("completing %q: the reply makes no sense: %x", h.name, reply[:min(len(reply), 16)])
	}
	return nil
}

// close ends the trust, but lets the lease be renewed: another must not begin while the cluster has not heard that all is done.
func (h *Held) close() {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if !h.over {
		h.finish(ErrReleased)
		h.closing = true
		h.c.mu.held[h.token] = h
	}
}

// drop stops renewing.
func (h *Held) drop() {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	delete(h.c.mu.held, h.token)
}

// loose is a command that nobody waits for any more. The cluster should hear of it all the same: else what it gives up stands in the
// others' way until it ends by itself.
type loose struct {
	cmd   []byte
	until time.Time // it ends by itself then
}

// maxLoose bounds what is kept; what is dropped ends by itself.
const maxLoose = 1024

// leave hands a command over to Run.
func (c *Client) leave(cmd []byte, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.loose) == maxLoose {
		c.mu.loose = c.mu.loose[1:]
	}
	c.mu.loose = append(c.mu.loose, loose{cmd, until})
	poke(c.told)
}

// tell brings loose commands to the cluster, until ctx ends.
func (c *Client) tell(ctx context.Context) {
	for await(ctx, c.told) {
		for l, ok := c.nextLoose(); ok; l, ok = c.nextLoose() {
			within, cancel := context.WithDeadline(ctx, l.until)
			_, err := c.insist(within, l.cmd, time.Until(l.until))
			cancel()
			if err != nil {
				c.o.Log.Debug("a lease that was given up ends by itself", "error", err)
			}
		}
	}
}

func (c *Client) nextLoose() (l loose, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.loose) == 0 {
		return loose{}, false
	}
	l = c.mu.loose[0]
	c.mu.loose = c.mu.loose[1:]
	return l, true
}

// insist proposes until there is an answer or ctx ends. A command without an answer is sent again after a third of the time that it
// concerns.
func (c *Client) insist(ctx context.Context, cmd []byte, concerns time.Duration) ([]byte, error) {
	var pause backoff
	for {
		reply, err := c.propose(ctx, cmd, concerns/3)
		if err == nil {
			return reply, nil
		}
		if !pause.sleep(ctx, concerns/10) {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// propose asks once, and waits for the answer no longer than a time.
func (c *Client) propose(ctx context.Context, cmd []byte, wait time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.o.Proposer.Propose(ctx, cmd)
}
