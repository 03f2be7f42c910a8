package cluster

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/stream-arrow/twgd/cluster/quorum"
	"github.com/stream-arrow/twgd/cluster/wire"
	"github.com/stream-arrow/twgd/roster"
)

// answerFor is how long a leader's answer says something about now.
const answerFor = 3 * time.Second

// view is what this node knows of itself and its surroundings, as roster.Begin looks at it.
func (n *Node) view() roster.StartView {
	v := roster.StartView{Name: n.o.Node, Ordinal: n.o.Ordinal, Facts: n.facts(),
		Asking: time.Since(n.started), FoundAfter: n.o.FoundAfter, Joining: n.o.Joining, Found: n.o.Found}
	n.viewReplica(&v)
	n.mu.Lock()
	v.Me, v.State = n.mu.id, n.mu.hasState
	if n.mu.answer != nil && time.Since(n.mu.answered) <= answerFor {
		v.Leader = n.mu.answer.view()
		n.mu.leaderSeen = n.mu.answered
	}
	if n.mu.newer != nil && n.mu.newer.Incarnation > v.Facts.Incarnation && v.State {
		v.Leader = n.mu.newer.view()
	}
	if !v.Leading {
		v.NoLeader = time.Since(n.mu.leaderSeen)
	}
	if v.NoLeader <= answerFor {
		v.NoLeader = 0
	}
	v.Departure = n.mu.departure.view(n.o.Grace, n.nonce)
	n.mu.Unlock()
	if v.Departure.Last {
		v.Departure.Remaining = n.remaining()
	}
	v.Peers = n.peers(v.Me)
	if n.shelf != nil {
		v.Store = n.shelf.view()
	}
	return v
}

func (n *Node) viewReplica(v *roster.StartView) {
	r := n.current()
	if r == nil {
		return
	}
	st := r.q.State()
	for _, s := range st.Servers {
		if s.Voter {
			v.Seats = append(v.Seats, s.ID)
		}
	}
	slices.Sort(v.Seats) // they are named to people
	v.Unconfirmed = st.Role != quorum.Voter && !st.ConfigCommitted && len(st.Servers) > 0
	v.Leading = st.Leader && st.Ready
	n.mu.Lock()
	defer n.mu.Unlock()
	if st.LastIndex > 0 {
		n.mu.hasState = true
	}
	if st.LeaderID != "" {
		n.mu.leaderSeen = time.Now()
	}
}

// peers are all addresses that were asked, without this node's own.
func (n *Node) peers(me string) []roster.Peer {
	all := n.asker.all()
	n.mu.Lock()
	dropped := n.mu.dropped
	n.mu.Unlock()
	var out []roster.Peer
	if n.port != nil && !n.asker.enough() {
		out = append(out, roster.Peer{Addr: "the addresses known from before", Listed: true, Ordinal: -1, Error: "not asked yet"})
	}
	for _, h := range all {
		if h.hello.ID == me && h.answered() {
			continue
		}
		if f := foundingOf(h.hello.Founding); dropped != ([16]byte{}) && f == dropped {
			continue
		}
		out = append(out, h.peer(n.o.Cluster))
	}
	return out
}

func (h *heard) peer(cluster string) roster.Peer {
	p := roster.Peer{Addr: h.address, Listed: h.join, Ordinal: -1}
	if h.err != nil || h.last.IsZero() {
		p.Error = "not asked yet"
		if h.err != nil {
			p.Error = h.err.Error()
		}
		if isForeign(h.err) {
			p.Says = roster.Foreign
		}
		return p
	}
	p.ID, p.Name, p.Ordinal = h.hello.ID, h.hello.Name, h.hello.Ordinal
	p.HasLeader, p.Leads = h.hello.Leader.ID != "", h.hello.Leading
	p.Facts = roster.Facts{Cluster: cluster, Founding: foundingOf(h.hello.Founding), Incarnation: h.hello.Incarnation, Confirmed: h.hello.Confirmed}
	switch h.hello.Disk {
	case diskState:
		p.Says = roster.HasState
	case diskClaiming:
		p.Says = roster.Claiming
	default:
		p.Says = roster.Empty
	}
	return p
}

func isForeign(err error) bool {
	var foreign wire.ErrForeignCluster
	var secret wire.ErrSecret
	return errors.As(err, &foreign) || errors.As(err, &secret)
}

// view is the answer as roster.Begin looks at it.
func (a *answer) view() *roster.Answer {
	return &roster.Answer{ID: a.Leader.ID, Addr: a.Leader.Address, Role: a.Role, Tombstone: a.Tombstone, NameAlive: a.Elsewhere,
		Granted: a.Granted, Refused: a.Refused, Stuck: a.Stuck,
		Facts: roster.Facts{Founding: foundingOf(a.Founding), Incarnation: a.Incarnation, Confirmed: a.Confirmed}}
}

// hello is who this node is.
func (n *Node) hello() hello {
	f := n.facts()
	h := hello{Name: n.o.Node, Ordinal: n.o.Ordinal, Address: n.address(), Joining: n.o.Joining, Disk: diskEmpty,
		Founding: hexOf(f.Founding), Incarnation: f.Incarnation, Confirmed: f.Confirmed}
	if n.gossip != nil {
		h.Gossip = n.gossip.Addr()
	}
	if r := n.current(); r != nil {
		r.hello(&h)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h.ID = n.mu.id
	switch {
	case n.mu.hasState:
		h.Disk = diskState
	case n.mu.move.Kind == roster.Claim || n.mu.move.Kind == roster.Bootstrap || n.mu.move.Kind == roster.Restore:
		h.Disk = diskClaiming
	}
	if n.mu.answer != nil && time.Since(n.mu.answered) <= answerFor {
		h.Leader = leaderAt{cmp.Or(h.Leader.ID, n.mu.answer.Leader.ID), cmp.Or(h.Leader.Address, n.mu.answer.Leader.Address)}
	}
	return h
}

// meet takes in what a peer said of itself.
func (n *Node) meet(h hello) {
	if n.book.see(h.ID, h.Address) {
		n.poke()
	}
	if h.Leader.ID != "" {
		n.book.see(h.Leader.ID, h.Leader.Address)
		n.hintTo(h.Leader)
	}
}

// settled says that a leader is known and has a part for this node, so peers need to be asked only seldom.
func (n *Node) settled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return (n.mu.move.Kind == roster.Serve || n.mu.move.Kind == roster.Park) && time.Since(n.mu.answered) <= answerFor
}
