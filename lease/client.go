package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Options of a Client.
type Options struct {
	Proposer Proposer
	Asker    Asker
	Holder   string        // who holds, in the eyes of the others: <node>~<instance>, at most MaxHolder bytes
	Margin   time.Duration // how much earlier than the table a holder stops to trust itself: this, and at least a tenth of the lease's time
	Log      *slog.Logger
}

// Client asks for leases, and keeps what it holds by renewing it. Its methods are safe for concurrent use.
//
// A holder's trust in itself ends before the table's lease does, by a clock that the table knows nothing of: it starts before the
// command is sent, the table's time for it starts when the leader stamps it, and from then on both run at the speed of real time. The
// margin is for clocks that do not quite. No renewal ever shortens what an earlier one gave, and none that is lost lengthens it.
//
// What trust cannot see is a process that was paused: it wakes up and goes on for a moment before its timers fire. Therefore whatever
// has an effect outside carries the token, and Held.Done is refused under a stale one.
type Client struct {
	o    Options
	wake chan struct{} // has room for one: what is held has changed
	told chan struct{} // has room for one: loose has grown

	mu struct {
		sync.Mutex
		held  map[uint64]*Held // to be renewed
		loose []loose
		stats Stats
	}
}

// Stats count what a client has seen since it was made.
type Stats struct {
	Held     int    // leases held now
	Acquired uint64 // leases ever held
	Lost     uint64 // leases whose trust ended while somebody still held on to them
	Renewals uint64 // rounds of renewing that were answered
	Failures uint64 // rounds that were not
}

// New is a client that holds nothing. What it acquires ends by itself unless Run runs.
func New(o Options) *Client {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{o: o, wake: make(chan struct{}, 1), told: make(chan struct{}, 1)}
	c.mu.held = map[uint64]*Held{}
	return c
}

// Run renews everything held, in one command a round, until ctx ends. What is held then ends by itself. It returns nil.
func (c *Client) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { c.tell(ctx) })
	both.Go(func() { c.keep(ctx) })
	both.Wait()
	return nil
}

// keep renews whenever a third of the shortest trust is used up. A round that fails is repeated until it succeeds or there is nothing
// left to renew.
func (c *Client) keep(ctx context.Context) {
	var pause backoff
	for {
		due, any := c.due()
		switch {
		case !any:
			if !await(ctx, c.wake) {
				return
			}
			continue
		case !sleepUntil(ctx, c.wake, due):
			if ctx.Err() != nil {
				return
			}
			continue
		}
		if c.renew(ctx) {
			pause = backoff{}
		} else if !pause.sleep(ctx, c.shortest()/10) {
			return
		}
	}
}

// due is when the next round is.
func (c *Client) due() (at time.Time, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.mu.held {
		if t := h.asked.Add(h.trust / 3); !any || t.Before(at) {
			at, any = t, true
		}
	}
	return at, any
}

// shortest is the shortest trust of anything held; an hour where nothing is.
func (c *Client) shortest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := time.Hour
	for _, h := range c.mu.held {
		out = min(out, h.trust)
	}
	return out
}

// renew asks once for everything held, and reports whether there was an answer. It waits a third of the shortest trust for one, so that
// a command that got lost is followed by another in time.
func (c *Client) renew(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.shortest()/3)
	defer cancel()
	for tokens := range slices.Chunk(c.tokens(), MaxTokens) {
		asked := time.Now()
		reply, err := c.o.Proposer.Propose(ctx, renewCommand(tokens))
		if err == nil && (code(reply) != codeRenewed || len(reply) != 1+len(tokens)) {
			err = fmt.Errorf("the reply makes no sense: %x", reply[:min(len(reply), 16)])
		}
		c.count(err)
		if err != nil {
			c.o.Log.Debug("leases were not renewed", "held", len(tokens), "error", err)
			return false
		}
		for i, token := range tokens {
			c.renewed(token, asked, reply[1+i] == 1)
		}
	}
	return true
}

func (c *Client) count(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.mu.stats.Failures++
	} else {
		c.mu.stats.Renewals++
	}
}

func (c *Client) tokens() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.mu.held))
}

// renewed takes in the table's word on one lease, which was asked for at a time.
func (c *Client) renewed(token uint64, asked time.Time, kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.mu.held[token]
	switch {
	case h == nil:
	case kept:
		h.prolong(asked)
	case h.closing: // by Done, whose answer is still to come; there is nothing to renew any more
		delete(c.mu.held, token)
	default:
		h.lose(errors.New("the cluster says that it is no longer held"))
	}
}

// Stats are what the client has seen.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.mu.stats
	out.Held = len(c.mu.held)
	return out
}

// Observe asks the leader who holds a name.
func (c *Client) Observe(ctx context.Context, name string) (Info, error) {
	reply, err := c.o.Asker.Query(ctx, observeQuestion(name))
	if err != nil {
		return Info{}, fmt.Errorf("asking who holds %q: %w", name, err)
	}
	info, err := readObserve(reply)
	if err != nil {
		return Info{}, fmt.Errorf("asking who holds %q: %w", name, err)
	}
	return info, nil
}

// poke tells a goroutine of Run that there is something new.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
