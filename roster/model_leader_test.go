package roster

import (
	"fmt"
	"slices"
)

// What a leader of a world sees, decides and does.

func (w *world) decide(l int) Step {
	v := w.view(l)
	s := Decide(v)
	if !w.mutant.selfDemotion || w.proc[l].intent == Stays {
		return s
	}
	if s.Kind == HandOver && w.proc[l].failed {
		for i := range v.Nodes {
			v.Nodes[i].Caught = v.Nodes[i].Caught && v.Nodes[i].Role != Voter
		}
		s = Decide(v)
	}
	if s.Kind == Wait && s.ID == v.Me && size(w.last(l).V) > 1 {
		return Step{Kind: Demote, ID: v.Me, Rule: "mutant"}
	}
	return s
}

// view is what leader l sees.
func (w *world) view(l int) View {
	v := View{Me: modelIDs[l], Size: w.size, Busy: !w.ready(l) && !w.mutant.parallel}
	conf, table := w.last(l), w.applied(l)
	for i := range w.n {
		n := Node{ID: modelIDs[i], Name: modelIDs[w.proc[i].machine][:2], Ordinal: int(w.proc[i].machine)}
		n.Role = Role(2*one(has(conf.V, i)) + one(has(conf.N, i)))
		w.sees(l, i, table, &n)
		nobody := n.Role == None && !n.Leaving && (!w.node[i].up || !w.conn(i, l))
		if w.proc[i].unused || n.Role == None && has(table.Tomb, i) || nobody {
			continue
		}
		v.Nodes = append(v.Nodes, n)
	}
	return v
}

func (w *world) sees(l, i int, table entry, n *Node) {
	p, d := &w.proc[i], &w.node[i]
	n.HasConfig, n.Caught = w.hasConfig(l, i), w.whole(l, i)
	if i == l {
		n.Contact, n.Steady, n.Seasoned = true, true, true
		n.Going, n.Leaving = p.intent == Terminating, p.intent == Leaving
		n.Returned = p.intent == Stays && has(table.Go, i) && table.nonce(i) != p.run
		return
	}
	n.Contact = p.seen && (d.up || has(w.last(l).V|w.last(l).N, i))
	n.Steady, n.Seasoned = p.steady && n.Contact, p.seasoned && n.Contact
	n.Going, n.Leaving, n.Granted = has(table.Go, i), has(table.Lv|table.Tomb, i), has(table.Gr, i)
	n.Returned = n.Contact && d.up && w.conn(i, l) && p.intent == Stays && has(table.Go, i) && table.nonce(i) != p.run
	for j := i + 1; j < w.n; j++ {
		n.Superseded = n.Superseded || !w.proc[j].unused && w.proc[j].machine == p.machine && w.node[j].up && w.conn(j, l) && !d.up
	}
	n.Lost = !n.Contact && (p.lost || n.Superseded)
}

// perform does a step; it says whether anything changed.
func (w *world) perform(l int, s Step) bool {
	i := slices.Index(modelIDs[:], s.ID)
	e, p := w.last(l), &w.proc[max(i, 0)]
	var b uint8
	if i >= 0 {
		b = bit(i)
	}
	switch s.Kind {
	case Rest, Wait:
		return false
	case HandOver:
		return w.handOver(l, i)
	case Stop:
		w.stop(l)
		return true
	case Clear:
		e.Go, e.Gr, e.Lv = e.Go&^b, e.Gr&^b, e.Lv&^b
	case Grant:
		e.Gr |= b
	case Refuse:
		e.Lv &^= b
		if p.intent == Leaving {
			p.intent = Stays
		}
	case Bury:
		e.Go, e.Gr, e.Lv, e.Tomb = e.Go&^b, e.Gr&^b, e.Lv&^b, e.Tomb|b
	default:
		return w.configure(l, i, s)
	}
	if e == w.last(l) {
		return false
	}
	w.append(l, e)
	return true
}

func (w *world) handOver(l, to int) bool {
	if !w.node[to].up || !w.conn(l, to) || !w.whole(l, to) {
		return false
	}
	w.node[l].lead = false
	if !w.elect(to, ballot{handover: true}) {
		w.node[l].lead = true
		return false
	}
	return true
}

func (w *world) configure(l, i int, s Step) bool {
	if !w.mayConfigure(l) && !w.mutant.parallel {
		return false
	}
	e, b := w.last(l), bit(i)
	w.noShuffle(l, s)
	switch s.Kind {
	case AddNonvoter:
		e.N |= b
	case Promote:
		e.N, e.V = e.N&^b, e.V|b
	case Demote:
		if i == l && !w.mutant.selfDemotion {
			panic(broken{"R3: a leader demotes itself by rule " + s.Rule})
		}
		e.V, e.N = e.V&^b, e.N|b
	case Remove:
		if has(e.V, i) {
			panic(broken{"R3: a seat is removed by rule " + s.Rule})
		}
		e.N &^= b
	}
	w.append(l, e)
	return true
}

// noShuffle is R6: with nothing but crashes, partitions and misjudgement, a full set of seats does not change.
func (w *world) noShuffle(l int, s Step) {
	V := w.last(l).V
	if w.history&(intended|longSince) == 0 && size(V) == w.size && (s.Kind == Demote || s.Kind == Promote && s.Rule != "8") {
		panic(broken{fmt.Sprintf("R6: full seats changed without intent or settle: %v", s)})
	}
}
