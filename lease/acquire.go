package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// ErrFull says that the cluster keeps as many leases and waiters as it can.
var ErrFull = errors.New("the cluster keeps no more leases")

// ErrNoEpoch says that the cluster gives no leases yet: its leader has not begun an incarnation.
var ErrNoEpoch = errors.New("the cluster gives no leases yet")

// Acquire waits its turn until ctx ends: among all who wait, in the order in which they came. Where ctx ends first, its place is given
// up, and so is a lease that it may have been given without hearing of it.
func (c *Client) Acquire(ctx context.Context, name string, ttl time.Duration) (*Held, error) {
	a, err := c.attempt(name, ttl, true)
	if err != nil {
		return nil, err
	}
	h, err := c.pursue(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("acquiring %q: %w", name, err)
	}
	return h, nil
}

// Try does not wait for a turn: held is false where another holds the lease or waits for it. It does wait for the cluster's answer,
// until ctx ends.
func (c *Client) Try(ctx context.Context, name string, ttl time.Duration) (h *Held, held bool, err error) {
	a, err := c.attempt(name, ttl, false)
	if err != nil {
		return nil, false, err
	}
	h, err = c.pursue(ctx, a)
	if err != nil {
		return nil, false, fmt.Errorf("trying to acquire %q: %w", name, err)
	}
	return h, h != nil, nil
}

// attempt is one attempt to acquire.
type attempt struct {
	name       string
	ttl, trust time.Duration
	wait       bool
	request    Request
	pause      backoff
}

func (c *Client) attempt(name string, ttl time.Duration, wait bool) (*attempt, error) {
	margin := max(c.o.Margin, ttl/10)
	switch {
	case name == "" || len(name) > MaxName:
		return nil, fmt.Errorf("a lease's name has 1 to %d bytes, %.40q has %d", MaxName, name, len(name))
	case len(c.o.Holder) > MaxHolder:
		return nil, fmt.Errorf("a holder's name has at most %d bytes, %.40q has %d", MaxHolder, c.o.Holder, len(c.o.Holder))
	case ttl < MinTTL || ttl > MaxTTL:
		return nil, fmt.Errorf("a lease of %v: from %v to %v is possible", ttl, MinTTL, MaxTTL)
	case margin > ttl/2:
		return nil, fmt.Errorf("a lease of %v is too short for a margin of %v", ttl, margin)
	}
	return &attempt{name: name, ttl: ttl, trust: ttl - margin, wait: wait, request: newRequest()}, nil
}

func newRequest() (r Request) {
	_, _ = rand.Read(r[:]) // never fails
	return r
}

// pursue asks until it holds the lease, is refused, or ctx ends. Without an error and without a lease, another has it.
func (c *Client) pursue(ctx context.Context, a *attempt) (*Held, error) {
	for {
		asked := time.Now()
		reply, err := c.propose(ctx, acquireCommand(a.name, c.o.Holder, a.request, a.ttl, a.wait), a.trust)
		var h *Held
		again := true
		if err == nil {
			h, again, err = c.heard(ctx, a, reply, asked)
		}
		if h != nil || !again {
			return h, err
		}
		if !a.pause.sleep(ctx, a.ttl/4) {
			c.leave(withdrawCommand(a.name, a.request), time.Now().Add(a.ttl))
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// heard takes in a reply: the lease, or whether to ask again.
func (c *Client) heard(ctx context.Context, a *attempt, reply []byte, asked time.Time) (h *Held, again bool, err error) {
	switch code(reply) {
	case codeGranted:
		return c.granted(a, reply, asked)
	case codeWaiting:
		c.turn(ctx, a, asked)
		a.pause = backoff{skip: true}
		return nil, true, nil
	case codeTaken:
		return nil, false, nil
	case codeOver: // it was given the lease, and did not hear of it until it was over
		a.request = newRequest()
		return nil, true, nil
	case codeFull:
		return nil, a.wait, ErrFull
	case codeNoEpoch:
		return nil, a.wait, ErrNoEpoch
	}
	return nil, false, fmt.Errorf("the cluster does not understand the command, reply %x", reply[:min(len(reply), 16)])
}

// granted begins to trust. Where the answer took so long that there is nothing left to trust, asking again prolongs the lease.
func (c *Client) granted(a *attempt, reply []byte, asked time.Time) (h *Held, again bool, err error) {
	r := reader{rest: reply[1:]}
	token := r.uint64()
	if r.bad {
		return nil, false, errors.New("the reply has no token")
	}
	h = c.hold(a, token, asked)
	return h, h == nil, nil
}

// Pauses between two questions whether it is an attempt's turn.
const (
	firstPoll = 50 * time.Millisecond
	lastPoll  = time.Second
)

// turn waits until it pays to ask again: when the attempt is the first of its queue and nobody holds the lease, and at the latest when
// its place has to be kept. Asking the leader costs the log nothing.
func (c *Client) turn(ctx context.Context, a *attempt, asked time.Time) {
	keep, cancel := context.WithDeadline(ctx, asked.Add(a.ttl/3))
	defer cancel()
	poll := backoff{base: min(firstPoll, a.ttl/8), most: min(lastPoll, a.ttl/4)}
	for poll.sleep(keep, a.ttl) {
		reply, err := c.o.Asker.Query(keep, turnQuestion(a.request))
		if err == nil && len(reply) == 2 && reply[0] == codeDone && reply[1] == turnAsk {
			return
		}
	}
}
