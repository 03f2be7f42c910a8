package cluster

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/cluster/wire"
)

const (
	askEvery  = time.Second     // while this node has no part, or no leader
	askSeldom = 5 * time.Second // while all is well: foundings that should not be are seen by then
	askWithin = 2 * time.Second
	// defaultPort is the port of a join address that names none.
	defaultPort = "7481"
)

// heard is what an address has said, last and ever.
type heard struct {
	address string
	join    bool      // it stands in the join list, or comes from a name that does
	hello   hello     // the last answer
	last    time.Time // when that was; zero: never
	err     error     // why the last call failed; nil: it was answered
}

// answered says whether the last call was answered.
func (h *heard) answered() bool { return h.err == nil && !h.last.IsZero() }

// asker asks all addresses that may be peers who they are, again and again, and remembers what they said. Safe for concurrent use.
type asker struct {
	n     *Node
	join  []string
	again chan struct{} // a poke asks at once

	mu struct {
		sync.Mutex
		heard map[string]*heard
		round int // completed rounds
		need  int // round before which nothing is to be concluded from silence
	}
}

func newAsker(n *Node, join []string) *asker {
	a := &asker{n: n, join: join, again: make(chan struct{}, 1)}
	a.mu.heard = map[string]*heard{}
	if len(n.book.addresses()) > 0 {
		a.mu.need = 1
	}
	for _, j := range join {
		a.mu.heard[j] = &heard{address: j, join: true} // silent until it was asked
	}
	return a
}

// run asks until the context ends.
func (a *asker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		a.ask(ctx)
		a.n.poke()
		every := askEvery
		if a.n.settled() {
			every = askSeldom
		}
		t := time.NewTimer(every)
		select {
		case <-t.C:
		case <-a.again:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

// ask calls every target once and returns when all have answered or run out of time.
func (a *asker) ask(ctx context.Context) {
	targets := a.targets(ctx)
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var all sync.WaitGroup
	for t, join := range targets {
		all.Go(func() {
			h, err := call[hello](ctx, a.n, t, methodHello, a.n.hello())
			a.note(ctx, t, join, h, err)
		})
	}
	all.Wait()
	a.forget(targets)
	a.mu.Lock()
	a.mu.round++
	a.mu.Unlock()
}

func (a *asker) note(ctx context.Context, address string, join bool, h hello, err error) {
	a.mu.Lock()
	e := a.mu.heard[address]
	if e == nil {
		e = &heard{address: address}
		a.mu.heard[address] = e
	}
	e.join, e.err = join, err
	if err == nil {
		e.hello, e.last = h, time.Now()
	}
	a.mu.Unlock()
	if err == nil {
		a.n.meet(h)
		a.n.outlived(ctx, address, h)
	}
	a.n.complain(address, err)
}

// forget drops addresses that nobody names any more.
func (a *asker) forget(targets map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.mu.heard {
		if _, ok := targets[t]; !ok {
			delete(a.mu.heard, t)
			a.n.alarms.clear("refused " + t)
		}
	}
}

// all returns what was heard, by address.
func (a *asker) all() []heard {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]heard, 0, len(a.mu.heard))
	for _, h := range a.mu.heard {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(x, y heard) int { return cmp.Compare(x.address, y.address) })
	return out
}

// anew says that whoever is known has to be asked once more before this node may believe to be alone.
func (a *asker) anew() {
	a.mu.Lock()
	a.mu.need = a.mu.round + 2 // one may be under way
	a.mu.Unlock()
	poke(a.again)
}

// enough says whether that has been done.
func (a *asker) enough() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.round < a.mu.need {
		poke(a.again)
	}
	return a.mu.round >= a.mu.need
}

// outlived asks the leader of a newer incarnation of this node's founding for its word: what is on this disk was given up.
func (n *Node) outlived(ctx context.Context, address string, h hello) {
	f := n.facts()
	if !h.Leading || f.Incarnation == 0 || h.Incarnation <= f.Incarnation || foundingOf(h.Founding) != f.Founding {
		return
	}
	a, err := call[answer](ctx, n, address, methodCheckIn, n.present())
	if err != nil || !a.Leading || a.Incarnation <= f.Incarnation {
		return
	}
	n.mu.Lock()
	n.mu.newer = &a
	n.mu.Unlock()
}

// targets are the addresses to ask; true: it comes from the join list.
func (a *asker) targets(ctx context.Context) map[string]bool {
	t := map[string]bool{}
	for _, address := range a.n.book.addresses() {
		t[address] = false
	}
	for _, m := range a.n.gossipMembers() {
		if m.Alive && m.Address != "" {
			t[m.Address] = false
		}
	}
	delete(t, a.n.address())
	for _, j := range a.join {
		for _, address := range a.n.resolve(ctx, j) {
			t[address] = true
		}
	}
	return t
}

// resolve turns a join entry into addresses: a name may list several peers. What cannot be resolved stays as it is, so that it is named
// among those that do not answer.
func (n *Node) resolve(ctx context.Context, entry string) []string {
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		host, port = entry, defaultPort
	}
	whole := []string{net.JoinHostPort(host, port)}
	if net.ParseIP(host) != nil {
		return whole
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	ips, err := n.o.Lookup(ctx, host)
	if err != nil || len(ips) == 0 {
		return whole
	}
	for i, ip := range ips {
		ips[i] = net.JoinHostPort(ip, port)
	}
	return ips
}

// complain says once, and again each minute, why an address refuses us: what an operator has to mend is an error of the key, of the name,
// or of the founding. A peer that is merely silent is named in what is waited for.
func (n *Node) complain(address string, err error) {
	var foreign wire.ErrForeignCluster
	var secret wire.ErrSecret
	switch {
	case errors.As(err, &foreign), errors.As(err, &secret):
		n.alarms.raise("refused "+address, err.Error())
	default:
		n.alarms.clear("refused " + address)
	}
}
