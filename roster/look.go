package roster

import (
	"maps"
	"slices"
	"time"
)

// View puts together what was heard, the configuration and the table. Call it at each event and each second: some of what it says
// (lacking the configuration, being stuck, just granted) is counted from the first look that saw it.
func (w *Watch) View(now time.Duration, o Office) View {
	v := View{Me: o.Me, Size: o.Size, Settle: o.Settle, Busy: o.Proposing || !o.Ready}
	for id, role := range w.whoCounts(now, o) {
		if id == o.Me {
			v.Nodes = append(v.Nodes, o.self(role))
			continue
		}
		v.Nodes = append(v.Nodes, w.node(now, o, id, role))
	}
	slices.SortFunc(v.Nodes, func(a, b Node) int { return before(&a, &b) })
	return v
}

// whoCounts gives the roles of all who have one, of those in contact, and of those whose leaving is a promise to be kept. It drops
// from memory who is none of them for longer than settle.
func (w *Watch) whoCounts(now time.Duration, o Office) map[string]Role {
	roles := o.roles()
	for _, s := range o.Servers {
		w.remember(s.ID)
	}
	for id, m := range o.Rows.Marks {
		if _, has := roles[id]; !has && m.Intent == Leaving {
			roles[id] = None
			w.remember(id)
		}
	}
	for id, h := range w.nodes {
		_, has := roles[id]
		switch {
		case has:
		case h.contact(now) && !h.older(o) && !o.Rows.Tombs[id]:
			roles[id] = None
		case now-h.at > max(o.Settle, StuckPause):
			delete(w.nodes, id)
		}
	}
	return roles
}

// remember makes a memory of a server that has not checked in: it counts as heard when the office was taken.
func (w *Watch) remember(id string) {
	if w.nodes[id] == nil {
		w.nodes[id] = &heard{at: w.since, unbroken: w.since, moved: w.since}
	}
}

// older: its disk belongs to an incarnation that was given up; its log is another one under the same indexes.
func (h *heard) older(o Office) bool {
	return h.last.Incarnation != 0 && h.last.Incarnation < o.Rows.Facts.Incarnation
}

func (o Office) roles() map[string]Role {
	roles := map[string]Role{o.Me: None}
	for _, s := range o.Servers {
		roles[s.ID] = Nonvoter
		if s.Voter {
			roles[s.ID] = Voter
		}
	}
	return roles
}

// self: about itself the leader believes its own process, never the table.
func (o Office) self(role Role) Node {
	n := o.named(o.Me, role)
	n.Ordinal, n.Addr = o.Ordinal, o.Addr
	n.Contact, n.HasConfig, n.Caught, n.Steady, n.Seasoned = true, true, true, true, true
	n.Going, n.Leaving = o.Intent == Terminating, o.Intent == Leaving
	n.Returned = o.Intent == Stays && o.Rows.Marks[o.Me].foreign(o.Nonce)
	return n
}

// foreign: a mark stands, and another process announced it.
func (m Mark) foreign(nonce uint64) bool { return m.Intent != Stays && m.Nonce != nonce && nonce != 0 }

func (o Office) named(id string, role Role) Node {
	m, known := o.Rows.Members[id]
	if !known {
		m = memberOf(id)
	}
	return Node{ID: id, Name: m.Name, Ordinal: m.Ordinal, Joined: m.Joined, Addr: m.Addr, Role: role}
}

func (w *Watch) node(now time.Duration, o Office, id string, role Role) Node {
	n, h := o.named(id, role), w.nodes[id]
	if h.last.ID != "" {
		n.Ordinal, n.Addr = h.last.Ordinal, h.last.Addr
	}
	w.marks(now, o, h, &n)
	n.Contact = h.contact(now)
	n.HasConfig = h.last.LastTerm == o.Term && h.last.LastIndex >= o.ConfigIndex
	n.Caught = n.HasConfig && h.lag <= CaughtLag
	n.Returned = n.Contact && h.last.ID != "" && h.last.Intent == Stays && o.Rows.Marks[id].foreign(h.last.Nonce)
	n.Superseded = !n.Contact && w.superseded(o.Me, id, n.Name, h)
	n.Lost = !n.Contact && (now-h.at >= o.Settle || n.Superseded)
	n.Steady = n.Contact && now-h.unbroken >= SteadyAfter
	n.Seasoned = n.Contact && now-h.unbroken >= o.Settle
	n.Stuck = h.stuck(now, &n)
	if h.lacksTooLong(now, &n) {
		n.Contact = false // but not Lost: it is heard
	}
	h.role = role
	return n
}

func (w *Watch) marks(now time.Duration, o Office, h *heard, n *Node) {
	m := o.Rows.Marks[n.ID]
	n.Going = m.Intent == Terminating
	n.Leaving = m.Intent == Leaving || o.Rows.Tombs[n.ID]
	g := o.Rows.Grants[n.ID]
	if h.grant != g {
		h.grant, h.granted = g, now
	}
	n.Granted = g.Intent != Stays
	n.JustGranted = n.Granted && now-h.granted < GrantGrace
}

// superseded: another birth of the name has checked in since this one was last heard.
func (w *Watch) superseded(me, id, name string, h *heard) bool {
	if NameOf(me) == name {
		return true
	}
	for other, o := range w.nodes {
		if other != id && o.last.ID != "" && o.checked > h.at && NameOf(other) == name {
			return true
		}
	}
	return false
}

// lacksTooLong counts how long a seat in contact has lacked the configuration, across changes of it: who has never caught up is not
// waited for anew at each change.
func (h *heard) lacksTooLong(now time.Duration, n *Node) bool {
	lacks := n.Role == Voter && n.Contact && !n.HasConfig
	if lacks && !h.lacks {
		h.lacking = now
	}
	h.lacks = lacks
	return lacks && now-h.lacking >= ConfigGrace
}

// stuck: a nonvoter that is heard but gets no further. When it was removed for that it is left alone for a while, unless its address
// changes.
func (h *heard) stuck(now time.Duration, n *Node) bool {
	if n.Role == None {
		return h.stuckAddr != "" && h.stuckAddr == n.Addr && now-h.stuckAt < StuckPause
	}
	if h.role == None {
		h.moved = max(h.moved, now)
	}
	if n.Role == Voter || n.Caught || !n.Contact || now-h.moved < StuckAfter {
		if n.Caught {
			h.stuckAddr = ""
		}
		return false
	}
	h.stuckAddr, h.stuckAt = n.Addr, now
	return true
}

// Due is what check-ins have said that the table does not know yet, as one roster command; ok is false where there is none. It goes
// before Decide's step: a mark that was announced must be seen.
func (w *Watch) Due(now time.Duration, o Office) (c Command, ok bool) {
	if o.Proposing || !o.Ready {
		return Command{}, false
	}
	me := CheckIn{ID: o.Me, Ordinal: o.Ordinal, Addr: o.Addr, Intent: o.Intent, Nonce: o.Nonce}
	if c, ok := o.unwritten(me); ok {
		return c, true
	}
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		h := w.nodes[id]
		if id == o.Me || h.last.ID == "" || !h.contact(now) || h.older(o) || o.Rows.Tombs[id] {
			continue
		}
		if c, ok := o.unwritten(h.last); ok {
			return c, true
		}
	}
	return w.forgettable(now, o)
}

// unwritten compares one check-in with the table.
func (o Office) unwritten(c CheckIn) (Command, bool) {
	member, known := o.Rows.Members[c.ID]
	said, mark := Mark{c.Intent, c.Nonce}, o.Rows.Marks[c.ID]
	promised := mark == Mark{Leaving, c.Nonce} // not taken back by a SIGTERM of the same process
	switch {
	case !known && len(o.Rows.Members) >= maxMembers:
		return Command{}, false
	case !known || member.Ordinal != c.Ordinal || member.Addr != c.Addr:
		return Command{Op: OpSeen, ID: c.ID, Member: Member{Ordinal: c.Ordinal, Addr: c.Addr}}, true
	case c.Intent != Stays && mark != said && !promised && o.Rows.Refused[c.ID] != said:
		return Command{Op: OpMark, ID: c.ID, Mark: said}, true
	case c.Intent == Stays && o.Rows.Refused[c.ID] != Mark{}:
		return Command{Op: OpClear, ID: c.ID}, true
	}
	return Command{}, false
}

// forgettable finds a member that has no role, promised nothing, and was not heard for settle.
func (w *Watch) forgettable(now time.Duration, o Office) (Command, bool) {
	roles := o.roles()
	for _, id := range slices.Sorted(maps.Keys(o.Rows.Members)) {
		_, has := roles[id]
		if has || o.Rows.Marks[id].Intent == Leaving || now-w.lastHeard(id) < max(o.Settle, StuckPause) {
			continue
		}
		return Command{Op: OpForget, ID: id}, true
	}
	return Command{}, false
}

func (w *Watch) lastHeard(id string) time.Duration {
	if h := w.nodes[id]; h != nil {
		return h.at
	}
	return w.since
}
