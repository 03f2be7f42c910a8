package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/roster"
)

// checkIn notes how a node is and says what its part is, once this leader is in office and has made sure that it still leads.
func (o *office) checkIn(ctx context.Context, c checkIn) (answer, error) {
	changed := o.hear(c)
	if changed {
		poke(o.wake)
	}
	if !o.ready() {
		return answer{}, nil // what its tables say is not the last word yet
	}
	if err := o.r.q.Verify(ctx); err != nil {
		return answer{}, nil
	}
	return o.answer(c), nil
}

// ready: the office is open, and has looked once.
func (o *office) ready() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open.Load() && len(o.mu.view.Nodes) > 0
}

func (o *office) hear(c checkIn) (changed bool) {
	o.compare(c)
	o.n.book.see(c.ID, c.Address)
	o.mu.Lock()
	defer o.mu.Unlock()
	c.Sums = nil
	before, known := o.mu.heard[c.ID]
	now := said{c.Mode, c.Intent, c.Nonce, c.Address, c.LastIndex, c.LastTerm, o.now()}
	o.mu.heard[c.ID] = now
	o.mu.watch.CheckIn(o.now(), roster.CheckIn{ID: c.ID, Name: c.Name, Ordinal: c.Ordinal, Addr: c.Address, Intent: c.Intent,
		Nonce: c.Nonce, LastTerm: c.LastTerm, LastIndex: c.LastIndex, Received: c.Received, Incarnation: c.Incarnation}, o.r.q.State().LastIndex)
	before.at = now.at
	return !known || before != now
}

// said is of a check-in what makes the leader look again when it changes.
type said struct {
	mode            string
	intent          roster.Intent
	nonce           uint64
	address         string
	index, lastTerm uint64
	at              time.Duration // when, by the office's clock
}

// compare holds a replica's sums against this one's: they are equal at a common index, or one of the two has parted.
func (o *office) compare(c checkIn) {
	if len(c.Sums) == 0 {
		return
	}
	index, same, ok := fsm.Compare(c.marks(), o.r.f.Sums())
	key := "office sums " + c.ID
	switch {
	case ok && !same:
		o.n.alarms.raise(key, fmt.Sprintf("the tables of %s differ from the leader's at index %d: stop one of the two, put its %s aside, and start it again", c.Name, index, "raft directory"))
	case ok:
		o.n.alarms.clear(key)
	}
}

// answer is what the leader says to a check-in.
func (o *office) answer(c checkIn) answer {
	rows, f := o.r.rows(), o.r.facts()
	a := answer{Leader: leaderAt{o.r.n.id(), o.n.address()}, Leading: true, Term: o.term, Founding: hexOf(f.Founding), Incarnation: f.Incarnation,
		Confirmed: f.Confirmed, Settings: o.r.settings(), Tombstone: rows.Tombs[c.ID], Alarms: o.n.alarms.texts(), Backup: o.n.shelf.status()}
	a.Granted, a.Refused = rows.Grants[c.ID], rows.Refused[c.ID]
	o.mu.Lock()
	v := o.mu.view
	o.mu.Unlock()
	a.Role = o.role(c.ID)
	for i := range v.Nodes {
		x := &v.Nodes[i]
		a.Stuck = a.Stuck || x.ID == c.ID && x.Stuck
		if x.ID != c.ID && x.Name == c.Name && x.Addr != c.Address && x.Contact && !x.Superseded && x.Role != roster.None {
			a.Elsewhere = x.Addr
		}
	}
	a.Seats, a.Tolerance = tolerance(v)
	a.Members = o.members(v, rows)
	o.r.f.Read(func(t *fsm.Tables, _ time.Duration, _ uint64) {
		a.Leases, a.Dedup = t.Leases.Len(), t.Dedup.Query(nil)
	})
	return a
}

// role is the server's in the latest configuration: an appended one is in force.
func (o *office) role(id string) roster.Role {
	for _, s := range o.r.q.State().Servers {
		switch {
		case s.ID != id:
		case s.Voter:
			return roster.Voter
		default:
			return roster.Nonvoter
		}
	}
	return roster.None
}

// tolerance is how many seats there are, and how many of those that stay could fail now without stopping the others.
func tolerance(v roster.View) (seats, more int) {
	staying := 0
	for i := range v.Nodes {
		x := &v.Nodes[i]
		if x.Role != roster.Voter {
			continue
		}
		seats++
		if x.Contact && !x.Going && !x.Leaving && !x.Granted {
			staying++
		}
	}
	if seats == 0 {
		return 0, 0
	}
	return seats, max(staying-(seats/2+1), 0)
}

// members are all nodes that the leader knows.
func (o *office) members(v roster.View, rows roster.Rows) []MemberStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []MemberStatus
	for i := range v.Nodes {
		x := &v.Nodes[i]
		if x.Superseded && x.Role == roster.None {
			continue
		}
		m := MemberStatus{ID: x.Name, ServerID: x.ID, State: memberState(x), Address: x.Addr, Roles: rolesOf(o.mu.heard[x.ID].mode, x.Role)}
		if x.Ordinal >= 0 {
			m.Ordinal = &x.Ordinal
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b MemberStatus) int { return compareMembers(&a, &b) })
	return out
}
