package cluster

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/stream-arrow/twgd/cluster/wire"
	"github.com/stream-arrow/twgd/roster"
	"github.com/stream-arrow/twgd/tuning"
)

// order is something that an operator wants of the leader and that must not run beside another change of the roster.
type order struct {
	do   func(ctx context.Context) error
	done chan error
}

// give hands an order to the office and waits for it.
func (o *office) give(ctx context.Context, do func(context.Context) error) error {
	x := order{do, make(chan error, 1)}
	select {
	case o.orders <- x:
	case <-o.ended:
		return fmt.Errorf("this node has stopped leading: %w", errNoLeader)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-x.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errNoLeader = fmt.Errorf("no leader answers")

// officeNow is the open office; nil where this node does not lead.
func (n *Node) officeNow() *office {
	if r := n.current(); r != nil {
		if o := r.office.Load(); o != nil && o.open.Load() {
			return o
		}
	}
	return nil
}

// atLeader asks the leader a method until it answers or refuses for good: here if this node leads.
func atLeader[Q any](ctx context.Context, n *Node, method string, q Q, here func(context.Context, *office, Q) error) error {
	for {
		var err error = errNoLeader
		if o := n.officeNow(); o != nil {
			err = here(ctx, o, q)
			if o == n.officeNow() || err == nil {
				return err
			}
		} else if at := n.whomToAsk(); at.Address != "" && n.port != nil {
			_, err = call[struct{}](ctx, n, at.Address, method, q)
			if err == nil || final(err) {
				return err
			}
			n.redirect(at, err)
		}
		if !pauseOrDone(ctx, longWait) {
			return fmt.Errorf("%s: %w", method, err)
		}
	}
}

func pauseOrDone(ctx context.Context, d time.Duration) bool {
	wait(ctx, d)
	return ctx.Err() == nil
}

// Tune sets a setting that the whole cluster shares. A value that does not work is refused with those that do.
func (n *Node) Tune(ctx context.Context, key, value string) error {
	if err := tuning.Check(key, value); err != nil {
		return err
	}
	return atLeader(ctx, n, methodTune, tuneCall{key, value}, (*Node)(nil).tuneHere)
}

func (*Node) tuneHere(ctx context.Context, o *office, c tuneCall) error {
	if err := tuning.Check(c.Key, c.Value); err != nil {
		return err
	}
	before := o.r.settings()[c.Key]
	if err := o.set(ctx, c.Key, c.Value); err != nil {
		return err
	}
	if before != c.Value {
		o.n.log.Info("a setting of the cluster was changed", "key", c.Key, "from", before, "to", c.Value)
	}
	poke(o.wake)
	return nil
}

func (n *Node) handleTune(ctx context.Context, _ wire.Peer, c tuneCall) (struct{}, error) {
	o := n.officeNow()
	if o == nil {
		return struct{}{}, n.notLeader()
	}
	return struct{}{}, n.coded(n.tuneHere(ctx, o, c))
}

// leaveFor writes down that a dead node leaves for good.
func (n *Node) leaveFor(ctx context.Context, name string) error {
	return atLeader(ctx, n, methodLeave, leaveCall{name}, (*Node)(nil).leaveHere)
}

func (*Node) leaveHere(ctx context.Context, o *office, c leaveCall) error {
	return o.give(ctx, func(ctx context.Context) error { return o.markDead(ctx, c.Node) })
}

func (n *Node) handleLeave(ctx context.Context, _ wire.Peer, c leaveCall) (struct{}, error) {
	o := n.officeNow()
	if o == nil {
		return struct{}{}, n.notLeader()
	}
	return struct{}{}, n.coded(n.leaveHere(ctx, o, c))
}

// markDead marks every server of a name that is out of contact as leaving.
func (o *office) markDead(ctx context.Context, name string) error {
	o.look(o.r.q.State())
	o.mu.Lock()
	v := o.mu.view
	o.mu.Unlock()
	found := false
	for i := range v.Nodes {
		x := &v.Nodes[i]
		if x.Name != name {
			continue
		}
		if x.Contact {
			return fmt.Errorf("%w: %s is alive at %s; run twgd leave there", ErrUnsafe, name, x.Addr)
		}
		found = true
		if err := o.markLeaving(ctx, x); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no node called %s is known to hold anything in this cluster", name)
	}
	poke(o.wake)
	return nil
}

func (o *office) markLeaving(ctx context.Context, x *roster.Node) error {
	if _, known := o.r.rows().Members[x.ID]; !known {
		if err := o.mustCommand(ctx, roster.Command{Op: roster.OpSeen, ID: x.ID, Member: roster.Member{Ordinal: x.Ordinal, Addr: x.Addr}}); err != nil {
			return err
		}
	}
	o.mu.Lock()
	nonce := o.mu.watch.Nonce(x.ID)
	o.mu.Unlock()
	o.n.log.Warn("an operator says that a node has left for good", "node", x.ID)
	return o.mustCommand(ctx, roster.Command{Op: roster.OpMark, ID: x.ID, Mark: roster.Mark{Intent: roster.Leaving, Nonce: nonce}})
}

func (n *Node) handleMembers(context.Context, wire.Peer, struct{}) ([]MemberStatus, error) {
	o := n.officeNow()
	if o == nil {
		return nil, n.notLeader()
	}
	o.mu.Lock()
	v := o.mu.view
	o.mu.Unlock()
	return o.members(v, o.r.rows()), nil
}

// Members are the nodes of the cluster as the leader last told them, this one alone where no leader has.
func (n *Node) Members() []MemberStatus {
	n.mu.Lock()
	a := n.mu.answer
	n.mu.Unlock()
	if a != nil {
		return a.Members
	}
	m := MemberStatus{ID: n.o.Node, ServerID: n.id(), State: "joining", Address: n.address(), Roles: n.Roles()}
	if n.o.Ordinal >= 0 {
		m.Ordinal = &n.o.Ordinal
	}
	return []MemberStatus{m}
}

// Settings are what the cluster shares, as the leader last told them; empty where none has.
func (n *Node) Settings() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.answer == nil {
		return map[string]string{}
	}
	return maps.Clone(n.mu.answer.Settings)
}
