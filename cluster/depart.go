package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stream-arrow/twgd/roster"
)

// departure is how far this process is on its way out.
type departure struct {
	intent  roster.Intent
	since   time.Time  // when it was announced
	last    time.Time  // when the office found that this node is the last; zero: it did not
	stopped bool       // Raft was put down for good
	signal  bool       // the process was told to end: the grace period counts, also for who leaves for good
	drop    chan error // an operator gives up this node's founding; told when that is done
	outcome chan error // told how a leave for good ended
}

func (d *departure) view(grace time.Duration, nonce uint64) roster.Departure {
	v := roster.Departure{Intent: d.intent, Nonce: nonce}
	if d.intent == roster.Stays {
		return v
	}
	v.Left = max(grace-time.Since(d.since), 0)
	v.Forced = d.signal && d.intent == roster.Leaving && v.Left <= roster.LastGrace
	if !d.last.IsZero() {
		v.Last, v.Waited = true, time.Since(d.last)
	}
	return v
}

// announce says that this process goes. From now on it stands in each check-in and in gossip. A node that leaves for good keeps that intent:
// a signal does not make less of it, only gives it a limit.
func (n *Node) announce(intent roster.Intent) {
	n.mu.Lock()
	d := &n.mu.departure
	if d.intent == roster.Stays {
		d.intent = intent
	}
	d.since, d.signal = time.Now(), d.signal || intent == roster.Terminating
	n.mu.Unlock()
	n.log.Info("this node announces that it is "+intent.String(), "grace", n.o.Grace)
	n.pokeCheckIn()
	n.poke()
	if n.gossip != nil {
		n.gossip.Update()
	}
	if r := n.current(); r != nil {
		if o := r.office.Load(); o != nil {
			poke(o.wake)
		}
	}
}

// lastStop notes that the office found nobody left: this leader may stop.
func (n *Node) lastStop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.departure.last.IsZero() {
		n.mu.departure.last = time.Now()
		poke(n.steerAt)
	}
}

// remaining names those that this last leader let go and still hears.
func (n *Node) remaining() (names []string) {
	r := n.current()
	if r == nil {
		return nil
	}
	o := r.office.Load()
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.mu.view.Nodes {
		x := &o.mu.view.Nodes[i]
		if x.Granted && x.Contact && x.ID != o.mu.view.Me {
			names = append(names, x.Name)
		}
	}
	return names
}

func (n *Node) stopped() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.departure.stopped
}

// leaveForGood drops the state of a node that has its tombstone, and asks the process to end.
func (n *Node) leaveForGood() error {
	if err := n.closeReplica(); err != nil {
		return err
	}
	if err := drop(n.o.Dir); err != nil {
		return err
	}
	n.mu.Lock()
	n.mu.departure.stopped = true
	outcome := n.mu.departure.outcome
	n.mu.Unlock()
	if outcome != nil {
		outcome <- nil
	}
	n.log.Info("this node has left the cluster for good; its state is dropped and the process ends")
	n.o.Stop(ErrLeft)
	return errDone
}

// ErrLeft is the reason given to Options.Stop: this node has left its cluster for good.
var ErrLeft = errors.New("the node has left the cluster for good")

// refusedWithin is how long a leave that is not waited for listens for a refusal: the leader knows at once.
const refusedWithin = time.Second

// Leave makes a node leave for good. Without a name it is this one: it announces that, hands over what it holds, and when the leader has
// written its tombstone its state is dropped and the process is asked to end. Of another node, which must be dead, the leader writes down
// that it leaves: its seat is taken away and its tombstone stays. With Drop this node gives up its founding without asking anybody.
func (n *Node) Leave(ctx context.Context, l LeaveOptions) error {
	switch {
	case l.Drop && l.Node != "":
		return errors.New("only a node itself can drop its state: run the command there")
	case l.Drop:
		return n.dropFounding(ctx)
	case l.Node != "" && l.Node != n.o.Node:
		return n.leaveFor(ctx, l.Node)
	}
	outcome := make(chan error, 1)
	n.mu.Lock()
	n.mu.departure.outcome = outcome
	n.mu.Unlock()
	n.announce(roster.Leaving)
	var announced <-chan time.Time
	if !l.Wait {
		announced = time.After(refusedWithin)
	}
	select {
	case err := <-outcome:
		return err
	case <-announced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dropFounding gives up this node's founding and begins anew, in place: it will join another. While this cluster serves and no other
// founding has met it, that is refused: the seat would stay behind, with nobody to fill it.
func (n *Node) dropFounding(ctx context.Context) error {
	if s := n.Status(); s.Tolerance != nil && !n.alarms.raised("conflict") {
		return fmt.Errorf("%w: the cluster serves, led by %s, and no other founding has met it: `twgd leave` takes this node out; --drop is for where two foundings have met",
			ErrUnsafe, s.Leader)
	}
	done := make(chan error, 1)
	n.mu.Lock()
	n.mu.departure.drop = done
	n.mu.Unlock()
	n.poke()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
