package roster

import (
	"fmt"
	"math/bits"
	"slices"
)

// raftModel is Raft as hashicorp/raft behaves, without time and messages: an election or the copying of a log to one follower is one
// event. What it keeps of the library, because seats depend on it:
//
//   - an appended configuration is in force, committed or not
//   - a server refuses its vote to one without a seat in the configuration it holds, and, unless asked by a handover, while it hears a leader
//   - there is no pre-vote round of its own: a candidate that cannot win changes nobody's term
//   - a server without a seat in its latest configuration does not stand, even where that configuration is not committed
//   - a leader whose committed configuration gives it no seat steps down
//   - a configuration entry is appended only where the last one is committed, and something of the leader's own term is
type raftModel struct {
	n    int
	node [maxModel]disk
	base entry   // what all disks that hold anything have in common; their logs follow it
	com  []entry // committed beyond base, as an onlooker knows it
	cut  uint8   // one side of a partition; 0: none
}

const maxModel = 6

// disk is a disk and the process on it.
type disk struct {
	exists   bool // holds a term and a vote
	up, lead bool
	term     uint16
	holds    bool // holds base
	log      []entry
}

// entry carries the whole state after it: servers as sets of nodes, and what the model that uses it adds.
type entry struct {
	T                uint16
	V, N             uint8  // voters, nonvoters
	Go, Lv, Gr, Tomb uint8  // marks, grants, tombstones
	nonces           uint16 // two bits a node: which of its processes made the mark
	cmd              uint16 // of the clockwork: its number among the commands
}

// broken is a violated invariant.
type broken struct{ what string }

func bit(i int) uint8                   { return 1 << uint(i) }
func has(set uint8, i int) bool         { return set&bit(i) != 0 }
func size(set uint8) int                { return bits.OnesCount8(set) }
func (m *raftModel) conn(a, b int) bool { return a == b || has(m.cut, a) == has(m.cut, b) }

func (m *raftModel) last(i int) entry {
	switch d := &m.node[i]; {
	case len(d.log) > 0:
		return d.log[len(d.log)-1]
	case d.holds:
		return m.base
	}
	return entry{}
}

// hears: v has a leader other than not.
func (m *raftModel) hears(v, not int) bool {
	for l := range m.n {
		d := &m.node[l]
		if d.up && d.lead && (l == v || l != not && m.conn(v, l) && has(m.last(l).V|m.last(l).N, v) && d.term >= m.node[v].term) {
			return true
		}
	}
	return false
}

// newer: c's log is at least as new as v's.
func (m *raftModel) newer(c, v int) bool {
	if !m.node[v].holds || !m.node[c].holds {
		return !m.node[v].holds
	}
	a, b := m.last(c).T, m.last(v).T
	return a > b || a == b && len(m.node[c].log) >= len(m.node[v].log)
}

type ballot struct{ handover, forced bool }

func (m *raftModel) votes(v, c int, b ballot) bool {
	knows := !m.node[v].holds || has(m.last(v).V, c) || b.forced
	return m.node[v].up && m.conn(v, c) && knows && (b.handover || !m.hears(v, c)) && m.newer(c, v)
}

// elect lets c stand. It says whether c leads now.
func (m *raftModel) elect(c int, b ballot) bool {
	d, V := &m.node[c], m.last(c).V
	if !d.up || !d.holds || d.lead || !b.handover && m.hears(c, c) {
		return false
	}
	if !has(V, c) && (!b.forced || m.committed(c) == len(d.log)) {
		return false
	}
	term, yes := d.term, one(has(V, c))
	var voters []int
	for v := range m.n {
		if v != c && has(V, v) && m.node[v].up && m.conn(v, c) {
			term = max(term, m.node[v].term)
			if m.votes(v, c, b) {
				voters = append(voters, v)
			}
		}
	}
	if yes+len(voters) < majority(size(V)) {
		return false
	}
	for _, v := range voters {
		m.node[v].lead, m.node[v].term, m.node[v].exists = false, term+1, true
	}
	m.takeOffice(c, term+1)
	return true
}

func (m *raftModel) takeOffice(c int, term uint16) {
	for l := range m.n {
		if l != c && m.node[l].lead && m.node[l].term == term {
			panic(broken{"two leaders in one term"})
		}
	}
	d := &m.node[c]
	for k, e := range m.com {
		if k >= len(d.log) || d.log[k] != e {
			panic(broken{fmt.Sprintf("LOST COMMIT: leader n%d lacks committed entry %d", c+1, k)})
		}
	}
	d.term, d.lead = term, true
	m.append(c, m.last(c))
}

func (m *raftModel) append(l int, e entry) {
	e.T = m.node[l].term
	m.node[l].log = append(m.node[l].log, e)
	m.commit(l)
}

// mayConfigure is the library's own guard.
func (m *raftModel) mayConfigure(l int) bool {
	k := m.committed(l)
	for _, e := range m.node[l].log[k:] {
		if e.V != m.applied(l).V || e.N != m.applied(l).N {
			return false
		}
	}
	return m.applied(l).T == m.node[l].term
}

func (m *raftModel) commit(l int) {
	d, V := &m.node[l], m.last(l).V
	for k := len(d.log) - 1; k >= 0 && d.log[k].T == d.term; k-- {
		have := 0
		for v := range m.n {
			o := &m.node[v]
			have += one(has(V, v) && o.exists && o.holds && len(o.log) > k && o.log[k] == d.log[k])
		}
		if have >= majority(size(V)) {
			m.committedTo(d.log[:k+1])
			break
		}
	}
	if m.committed(l) == len(d.log) && !has(m.last(l).V, l) {
		d.lead = false
	}
}

func (m *raftModel) committedTo(log []entry) {
	for j, e := range log {
		if j < len(m.com) && m.com[j] != e {
			panic(broken{"LOST COMMIT: a committed entry is overwritten"})
		}
	}
	if len(log) > len(m.com) {
		m.com = slices.Clone(log)
	}
}

// committed is how many entries of i's log are committed.
func (m *raftModel) committed(i int) int {
	k := 0
	for k < len(m.com) && k < len(m.node[i].log) && m.com[k] == m.node[i].log[k] {
		k++
	}
	return k
}

// applied is the state that leader l has applied.
func (m *raftModel) applied(l int) entry {
	if k := m.committed(l); k > 0 {
		return m.node[l].log[k-1]
	}
	return m.base
}

// ready: l has applied all it holds, and something of its own term.
func (m *raftModel) ready(l int) bool {
	return m.committed(l) == len(m.node[l].log) && m.applied(l).T == m.node[l].term
}

// copyTo brings f's log to the leader's; it says whether anything changed.
func (m *raftModel) copyTo(l, f int) bool {
	a, b := &m.node[l], &m.node[f]
	if !a.up || !a.lead || l == f || !b.up || !m.conn(l, f) || !has(m.last(l).V|m.last(l).N, f) {
		return false
	}
	if b.term > a.term {
		a.lead, a.term = false, b.term
		return true
	}
	if m.whole(l, f) && len(a.log) == len(b.log) && a.term == b.term && !b.lead {
		return false
	}
	b.lead, b.term, b.holds, b.exists = false, a.term, true, true
	b.log = slices.Clone(a.log)
	m.commit(l)
	return true
}

// whole: f's log holds all of l's.
func (m *raftModel) whole(l, f int) bool {
	a, b := m.node[l].log, m.node[f].log
	return m.node[f].holds && m.node[f].exists && len(b) >= len(a) && slices.Equal(a, b[:len(a)])
}

// hasConfig as a check-in tells it: the last entry is of the leader's term, and the log reaches the last configuration entry.
func (m *raftModel) hasConfig(l, f int) bool {
	a, b := &m.node[l], &m.node[f]
	if !b.holds || !b.exists || len(a.log) > 0 && m.last(l).T == a.term && m.last(f).T != a.term {
		return false
	}
	k := len(a.log)
	for k > 1 && a.log[k-2].V == a.log[k-1].V && a.log[k-2].N == a.log[k-1].N {
		k--
	}
	if k == 1 && a.log[0].V == m.base.V && a.log[0].N == m.base.N {
		k = 0
	}
	return len(b.log) >= k && slices.Equal(a.log[:k], b.log[:k])
}

func (m *raftModel) reach(i int) (seats int) {
	for f := range m.n {
		seats += one(has(m.last(i).V, f) && m.node[f].up && m.conn(i, f))
	}
	return seats
}

// leader is one that can commit, or -1.
func (m *raftModel) leader() int {
	for l := range m.n {
		if m.node[l].up && m.node[l].lead && m.ready(l) {
			return l
		}
	}
	return -1
}

// known is the newest committed state.
func (m *raftModel) known() entry {
	if len(m.com) > 0 {
		return m.com[len(m.com)-1]
	}
	return m.base
}

// fold takes into base what every disk has.
func (m *raftModel) fold() {
	for len(m.com) > 0 {
		for i := range m.n {
			d := &m.node[i]
			if d.exists && d.holds && (len(d.log) == 0 || d.log[0] != m.com[0]) {
				return
			}
		}
		m.base, m.com = m.com[0], m.com[1:]
		for i := range m.n {
			if d := &m.node[i]; d.exists && d.holds {
				d.log = d.log[1:]
			}
		}
	}
}

// rank numbers the terms in use anew, so that states that differ in nothing else are one.
func (m *raftModel) rank() {
	terms := []*uint16{&m.base.T}
	for j := range m.com {
		terms = append(terms, &m.com[j].T)
	}
	for i := range m.n {
		terms = append(terms, &m.node[i].term)
		for j := range m.node[i].log {
			terms = append(terms, &m.node[i].log[j].T)
		}
	}
	slices.SortFunc(terms, func(a, b *uint16) int { return int(*a) - int(*b) })
	next, old := uint16(0), *terms[0]
	for _, t := range terms {
		if *t != old {
			next, old = next+2, *t
		}
		*t = next
	}
}
