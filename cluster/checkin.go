package cluster

import (
	"context"
	"time"

	"github.com/stream-arrow/twgd/cluster/wire"
	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/roster"
)

const (
	checkInEvery  = time.Second
	checkInWithin = time.Second
	checkInAgain  = 50 * time.Millisecond  // first pause where no leader answered; it doubles up to checkInEvery
	checkInGoing  = 100 * time.Millisecond // while the leader's leave to go is waited for
	sumsEvery     = 10 * time.Second
)

// carryMessages checks in with the leader each second and at each change, until the context ends.
func (n *Node) carryMessages(ctx context.Context) error {
	pause := checkInAgain
	for ctx.Err() == nil {
		if n.checkIn(ctx) {
			pause = n.untilNext()
		} else if pause *= 2; pause > checkInEvery {
			pause = checkInEvery
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-n.checkAt:
			pause = checkInAgain
		case <-t.C:
		}
		t.Stop()
	}
	return nil
}

// untilNext is the usual pause; a short one while this node waits to be let go, and while this replica has not got the leader's first entry yet: the leader waits to hear of it.
func (n *Node) untilNext() time.Duration {
	r := n.current()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.departure.intent != roster.Stays {
		return checkInGoing
	}
	if r != nil && n.mu.answer != nil && n.mu.answer.Role == roster.Voter && r.q.State().LastTerm < n.mu.answer.Term {
		return checkInAgain
	}
	return checkInEvery
}

// pokeCheckIn asks for a check-in at once.
func (n *Node) pokeCheckIn() { poke(n.checkAt) }

// checkIn tells the leader how this node is, and takes in the answer. It reports whether a leader answered.
func (n *Node) checkIn(ctx context.Context) bool {
	if n.stopped() {
		return true
	}
	c := n.present()
	if r := n.current(); r != nil {
		if o := r.office.Load(); o != nil {
			a, err := o.checkIn(ctx, c)
			if err != nil || !a.Leading {
				return false
			}
			n.takeIn(a)
			return true
		}
	}
	at := n.whomToAsk()
	if at.Address == "" || n.port == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, checkInWithin)
	defer cancel()
	a, err := call[answer](ctx, n, at.Address, methodCheckIn, c)
	switch {
	case err != nil:
		n.hintGone(at)
	case a.Leading:
		n.takeIn(a)
		return true
	case a.Leader.Address != "" && a.Leader.Address != at.Address:
		n.hintTo(a.Leader)
	default:
		n.hintGone(at)
	}
	return false
}

// present is this node's check-in.
func (n *Node) present() checkIn {
	c := checkIn{Name: n.o.Node, Ordinal: n.o.Ordinal, Address: n.address(), Mode: n.o.Mode, Nonce: n.nonce}
	n.mu.Lock()
	c.ID, c.Intent = n.mu.id, n.mu.departure.intent
	r := n.mu.replica
	n.mu.Unlock()
	c.Incarnation = n.facts().Incarnation
	if r == nil {
		return c
	}
	st := r.q.State()
	c.LastIndex, c.LastTerm = st.LastIndex, st.LastTerm
	if now := time.Since(n.started); now-time.Duration(r.sent.Load()) >= sumsEvery {
		r.sent.Store(int64(now))
		for _, m := range r.f.Sums() {
			c.Sums = append(c.Sums, mark{m.Index, m.Sum[:]})
		}
	}
	return c
}

// takeIn keeps a leader's answer.
func (n *Node) takeIn(a answer) {
	for _, m := range a.Members {
		n.book.see(m.ServerID, m.Address)
	}
	n.mu.Lock()
	before := n.mu.answer
	n.mu.answer, n.mu.answered, n.mu.firstWords = &a, time.Now(), true
	n.mu.hint = a.Leader
	n.mu.rejoined = n.mu.rejoined || a.Role != roster.None
	id := n.mu.id
	n.mu.Unlock()
	n.warnOfFile(a.Settings)
	if a.Stuck {
		n.alarms.raise("stuck", "the leader cannot reach this node at "+n.address()+", the address that it tells others: cluster.advertise changes it; until then this node holds no log and no vote")
	} else {
		n.alarms.clear("stuck")
	}
	if f := foundingOf(a.Founding); f != ([16]byte{}) && a.Role != roster.None {
		n.book.know(id, roster.Facts{Founding: f, Incarnation: a.Incarnation, Confirmed: a.Confirmed})
	}
	n.roleChanged(before, &a)
	n.poke()
}

// unsay: what this node told itself as the leader says nothing about now any more.
func (n *Node) unsay() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.answer != nil && n.mu.answer.Leader.ID == n.mu.id {
		n.mu.answered = time.Time{}
	}
}

// roleChanged says in the log what an operator wants to know of the seat.
func (n *Node) roleChanged(before, now *answer) {
	was := roster.None
	if before != nil {
		was = before.Role
	}
	if was == now.Role {
		return
	}
	switch now.Role {
	case roster.Voter:
		n.log.Info("this node holds a seat in the quorum", "leader", now.Leader.ID)
	case roster.Nonvoter:
		n.log.Info("this node is a standby: it holds the log and has no vote", "leader", now.Leader.ID)
	default:
		n.log.Info("this node has no seat; it works and asks the leader", "leader", now.Leader.ID)
	}
}

// handleHello says who this node is, to anybody with the secret.
func (n *Node) handleHello(_ context.Context, _ wire.Peer, h hello) (hello, error) {
	if h.ID != n.id() {
		n.meet(h)
	}
	return n.hello(), nil
}

// handleCheckIn answers as the leader, or names it.
func (n *Node) handleCheckIn(ctx context.Context, peer wire.Peer, c checkIn) (answer, error) {
	if c.Name != peer.Name || roster.NameOf(c.ID) != peer.Name {
		return answer{}, &wire.RemoteError{Code: codeRefused, Text: "a check-in of " + c.ID + " over a connection of " + peer.Name}
	}
	n.book.see(c.ID, c.Address)
	if r := n.current(); r != nil {
		if o := r.office.Load(); o != nil {
			return o.checkIn(ctx, c)
		}
	}
	return answer{Leader: n.leaderElsewhere()}, nil
}

// marks turns the marks of a check-in into the tables'.
func (c *checkIn) marks() []fsm.Mark {
	var out []fsm.Mark
	for _, m := range c.Sums {
		f := fsm.Mark{Index: m.Index}
		if copy(f.Sum[:], m.Sum) == len(f.Sum) {
			out = append(out, f)
		}
	}
	return out
}
