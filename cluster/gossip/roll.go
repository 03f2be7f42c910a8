package gossip

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Member is another process.
type Member struct {
	Meta
	Alive  bool
	Gossip string // host:port
}

// Conflict is two processes that go on under one name, which is a mistake: a disk that was copied, or a node that was started twice.
// Both of them see it, and so do others.
type Conflict struct {
	Name string
	A, B string // host:port of their gossip
}

// Bounds of what is kept in mind.
const (
	rememberFor = time.Hour        // the dead
	clashAfter  = 15 * time.Second // a name at two addresses for less is a node that came back before its old self was found dead
	clashFor    = time.Minute      // since it was last seen
)

// roll is what memberlist's callbacks write down. They run under memberlist's own locks, on the path of every packet, so they call
// nothing and wait for nothing: they copy into the roll, and whoever wants to know reads it there. What memberlist hands out is its own
// memory, which changes after a callback returns, hence the copies.
type roll struct {
	name    string // our own
	changed chan struct{}

	mu        sync.Mutex
	own       string // our own address
	meta      []byte // our own
	members   map[string]*entry
	conflicts map[string]*clash
}

type entry struct {
	Member
	left time.Time // when it was found not to be alive
}

type clash struct {
	Conflict
	first, last, told time.Time
}

// delegate is the roll as memberlist sees it.
type delegate struct{ *roll }

func (d delegate) NotifyJoin(n *memberlist.Node)   { d.see(n, true) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.see(n, true) }
func (d delegate) NotifyLeave(n *memberlist.Node)  { d.see(n, false) }

func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.clash(existing.Name, existing.Address(), other.Address(), time.Now())
}

// NodeMeta returns what describe has checked: at most MaxMeta bytes, which is memberlist's limit.
func (d delegate) NodeMeta(int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.meta
}

// Messages and states of users are not used: who sends them is not one of us.
func (d delegate) NotifyMsg([]byte)                {}
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (d delegate) LocalState(bool) []byte          { return nil }
func (d delegate) MergeRemoteState([]byte, bool)   {}

func (r *roll) describe(meta []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meta = meta
}

func (r *roll) at() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own
}

// see notes what a member is. One whose metadata cannot be read is of a later version, and stays what it was before.
func (r *roll) see(n *memberlist.Node, alive bool) {
	meta, err := decode(n.Meta)
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.Name == r.name {
		r.own = n.Address()
		return
	}
	e := r.members[n.Name]
	if err != nil && e == nil {
		return
	}
	if e == nil {
		e = &entry{}
		r.members[n.Name] = e
	}
	if err == nil {
		e.Meta = meta
	}
	e.Alive, e.Gossip = alive, n.Address()
	if !alive {
		e.left = time.Now()
	}
	r.tell()
}

// clash notes that a name was seen at two addresses.
func (r *roll) clash(name, a, b string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.conflicts[name]
	if c == nil || now.Sub(c.last) > clashAfter {
		c = &clash{Conflict: Conflict{Name: name}, first: now}
		r.conflicts[name] = c
	}
	c.A, c.B, c.last = min(a, b), max(a, b), now
	if now.Sub(c.first) >= clashAfter {
		r.tell()
	}
}

func (r *roll) tell() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *roll) list(now time.Time) (out []Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		e := r.members[name]
		if !e.Alive && now.Sub(e.left) > rememberFor {
			delete(r.members, name)
			continue
		}
		out = append(out, e.Member)
	}
	return out
}

func (r *roll) clashes(now time.Time) (out []Conflict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range r.conflicts {
		switch {
		case now.Sub(c.last) > clashFor:
			delete(r.conflicts, name)
			r.tell()
		case c.last.Sub(c.first) >= clashAfter:
			out = append(out, c.Conflict)
		}
	}
	slices.SortFunc(out, func(a, b Conflict) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// rival returns the address at which our own name was seen a moment ago, if it was.
func (r *roll) rival(now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.conflicts[r.name]
	switch {
	case c == nil || now.Sub(c.last) > clashAfter:
		return ""
	case c.A == r.own:
		return c.B
	}
	return c.A
}

// warned reports whether it is time to say that a name clashes, and notes that it is said.
func (r *roll) warned(name string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.conflicts[name]
	if c == nil || !c.told.IsZero() && now.Sub(c.told) < time.Minute {
		return false
	}
	c.told = now
	return true
}
