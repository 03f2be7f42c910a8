package roster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// clockwork is a cluster that goes by seconds: the raftModel below, and above it all that this room has, as a shell would join it. Nodes
// check in each second, the leader's Watch hears them, Due and Decide are asked, commands go through the log into a Table, and Begin
// decides for each node, with what the leader answers. What the other models guess (contact, marks, grants) is here worked out.
type clockwork struct {
	raftModel
	rng     *rand.Rand
	now     time.Duration
	cmds    []Command // entry.cmd-1 is an index
	nodes   [maxModel]cog
	changes int
	asked   map[string]int // rules that Decide has answered with
}

// cog is one node: its process and, while it leads, its office.
type cog struct {
	depart   Departure
	nonce    uint64
	noLeader time.Duration
	watch    *Watch
	term     uint16 // of the watch
	lastStep Step
	table    Table // what is applied
	applied  int   // entries of the log that are
}

const settleTime = 40 * time.Second

func newClockwork(seed uint64) *clockwork {
	c := &clockwork{rng: rand.New(rand.NewPCG(7, seed))}
	c.n = 5
	c.base.V = 1
	c.cmds = []Command{{Op: OpFound, Facts: facts}}
	for i := range c.n {
		c.node[i] = disk{up: true, exists: i == 0, holds: i == 0}
		c.nodes[i].nonce = c.rng.Uint64() | 1
	}
	c.elect(0, ballot{})
	c.propose(0, c.cmds[0])
	return c
}

func (c *clockwork) propose(l int, cmd Command) {
	c.cmds = append(c.cmds, cmd)
	e := c.last(l)
	e.cmd = uint16(len(c.cmds))
	c.append(l, e)
}

// tables applies what is committed at i.
func (c *clockwork) apply(i int) *Table {
	n := &c.nodes[i]
	for k := c.committed(i); n.applied < k; n.applied++ {
		if cmd := c.node[i].log[n.applied].cmd; cmd != 0 {
			n.table.Apply(c.now, c.cmds[cmd-1].Encode())
		}
	}
	return &n.table
}

// second is one turn of the works.
func (c *clockwork) second() {
	c.now += time.Second
	for _, i := range c.rng.Perm(c.n) {
		c.vote(i)
	}
	for l := range c.n {
		if c.node[l].up && c.node[l].lead {
			c.govern(l)
		}
	}
	for i := range c.n {
		if c.node[i].up {
			c.move(i)
		}
	}
}

// vote stands for election where no leader is heard; forced, where Begin says so.
func (c *clockwork) vote(i int) {
	n := &c.nodes[i]
	if !c.node[i].up || c.hears(i, -1) {
		n.noLeader = 0
		return
	}
	n.noLeader += time.Second
	if n.noLeader > 2*time.Second {
		c.elect(i, ballot{forced: Begin(c.start(i)).Kind == Force})
	}
}

// govern is a leader's second.
func (c *clockwork) govern(l int) {
	if c.reach(l) < majority(size(c.last(l).V)) {
		c.node[l].lead = false
		return
	}
	n := &c.nodes[l]
	if n.watch == nil || n.term != c.node[l].term {
		n.watch, n.term, n.lastStep = NewWatch(c.now), c.node[l].term, Step{}
	}
	for range 6 {
		c.spread(l)
		if !c.node[l].lead || !c.step(l) {
			return
		}
	}
}

// spread copies the log, and hears the check-ins that follow; one in ten is late.
func (c *clockwork) spread(l int) {
	for i := range c.n {
		if i == l || !c.node[i].up || !c.conn(i, l) || c.rng.IntN(10) == 0 {
			continue
		}
		if c.copyTo(l, i); !c.node[l].lead {
			return
		}
		d, o := &c.node[i], &c.nodes[i]
		c.nodes[l].watch.CheckIn(c.now, CheckIn{ID: modelIDs[i], Name: NameOf(modelIDs[i]), Ordinal: i, Addr: "n:1", Intent: o.depart.Intent, Nonce: o.nonce,
			LastTerm: uint64(c.last(i).T), LastIndex: uint64(len(d.log)), Incarnation: uint64(one(d.holds))}, uint64(len(c.node[l].log)))
	}
}

func (c *clockwork) office(l int) Office {
	d, n := &c.node[l], &c.nodes[l]
	o := Office{Me: modelIDs[l], Intent: n.depart.Intent, Nonce: n.nonce, Ordinal: l, Addr: "n:1", Term: uint64(d.term), LastIndex: uint64(len(d.log)), Ready: c.ready(l), Size: 5, Settle: settleTime}
	before := c.base
	for k, e := range d.log {
		if e.V != before.V || e.N != before.N {
			o.ConfigIndex = uint64(k + 1)
		}
		before = e
	}
	for i := range c.n {
		if has(before.V|before.N, i) {
			o.Servers = append(o.Servers, Server{modelIDs[i], has(before.V, i)})
		}
	}
	o.Rows = c.apply(l).Rows()
	return o
}

// step does what is due, or what Decide says; it says whether there may be more.
func (c *clockwork) step(l int) bool {
	n, o := &c.nodes[l], c.office(l)
	if cmd, due := n.watch.Due(c.now, o); due {
		c.propose(l, cmd)
		return true
	}
	s := Decide(n.watch.View(c.now, o))
	n.lastStep = s
	c.asked[s.Rule]++
	i := slices.Index(modelIDs[:], s.ID)
	mark := o.Rows.Marks[s.ID]
	e := c.last(l)
	switch s.Kind {
	case HandOver:
		if c.node[i].up && c.conn(l, i) && c.whole(l, i) {
			c.node[l].lead = false
			c.node[l].lead = !c.elect(i, ballot{handover: true})
		}
		return false
	case Clear:
		c.propose(l, Command{Op: OpClear, ID: s.ID})
	case Grant:
		c.propose(l, Command{Op: OpGrant, ID: s.ID, Mark: mark})
	case Refuse:
		c.propose(l, Command{Op: OpRefuse, ID: s.ID, Mark: mark})
	case Bury:
		c.propose(l, Command{Op: OpBury, ID: s.ID})
	case AddNonvoter:
		e.N |= bit(i)
	case Promote:
		e.V, e.N = e.V|bit(i), e.N&^bit(i)
	case Demote:
		e.V, e.N = e.V&^bit(i), e.N|bit(i)
	case Remove:
		e.N &^= bit(i)
	default:
		return false
	}
	if e != c.last(l) && c.mayConfigure(l) && (s.Kind == AddNonvoter || s.Kind == Promote || s.Kind == Demote || s.Kind == Remove) {
		c.changes++
		e.cmd = 0
		c.append(l, e)
	}
	return true
}

// start is what i sees of itself.
func (c *clockwork) start(i int) StartView {
	d, n := &c.node[i], &c.nodes[i]
	v := StartView{Me: modelIDs[i], Name: NameOf(modelIDs[i]), Ordinal: i, State: d.holds, Facts: facts, NoLeader: n.noLeader, Departure: n.depart}
	for j := range c.n {
		if has(c.last(i).V, j) {
			v.Seats = append(v.Seats, modelIDs[j])
		}
		if j != i && c.node[j].up && c.conn(i, j) {
			p := Peer{Addr: "n:1", Listed: true, ID: modelIDs[j], Name: NameOf(modelIDs[j]), Ordinal: j, Says: Empty}
			if c.node[j].holds {
				p.Says, p.Facts = HasState, facts
			}
			v.Peers = append(v.Peers, p)
		}
		if l := &c.node[j]; l.up && l.lead && c.conn(i, j) && c.ready(j) {
			r, role := c.apply(j).Rows(), Role(2*one(has(c.last(j).V, i))+one(has(c.last(j).N, i)))
			v.Leader = &Answer{ID: modelIDs[j], Facts: r.Facts, Role: role, Granted: r.Grants[v.Me], Refused: r.Refused[v.Me], Tombstone: r.Tombs[v.Me]}
			v.Leading = v.Leading || i == j
		}
	}
	v.Departure.Nonce, v.Departure.Last = n.nonce, d.lead && n.lastStep.Kind == Stop
	return v
}

func (c *clockwork) move(i int) {
	n := &c.nodes[i]
	if n.depart.Intent == Terminating {
		n.depart.Left -= time.Second
	}
	switch m := Begin(c.start(i)); m.Kind {
	case StopNow:
		c.stop(i)
	case StopDrop:
		panic(broken{"nobody leaves for good here"})
	case Yield, Renew, Bootstrap, Claim, Restore, Conflict, StayOut:
		panic(broken{fmt.Sprintf("%s at n%d: %s", m.Kind, i+1, m.Text)})
	}
}

func (c *clockwork) stop(i int) {
	c.node[i].up, c.node[i].lead = false, false
	old := c.nodes[i]
	c.nodes[i] = cog{nonce: c.rng.Uint64() | 1, table: old.table, applied: old.applied}
}

// fault is something that a cluster has to bear.
func (c *clockwork) fault() {
	i := c.rng.IntN(c.n)
	switch up := c.node[i].up; c.rng.IntN(6) {
	case 0:
		if up {
			c.stop(i)
		}
	case 1:
		c.cut = uint8(c.rng.IntN(1 << c.n))
	case 2:
		c.cut = 0
	case 3:
		if up && c.nodes[i].depart.Intent == Stays {
			c.nodes[i].depart = Departure{Intent: Terminating, Left: 25 * time.Second}
		}
	default:
		c.node[i].up = true
	}
}

// Faults for two minutes, then none: within four minutes there are five seats, nobody is marked, and nothing changes any more.
func TestClockwork(t *testing.T) {
	until := time.Now().Add(modelTime(t))
	runs, asked := uint64(0), map[string]int{}
	for ; runs < 20 || time.Now().Before(until); runs++ {
		c := newClockwork(runs)
		c.asked = asked
		if what := guarded(c.story); what != "" {
			t.Fatalf("seed %d: %s\n  %v", runs, what, c.nodes)
		}
	}
	t.Log(runs, "stories, rules ", asked)
	for _, rule := range []string{"0", "1", "2a", "2b", "3b", "3c", "4a", "4d", "7", "9b", "-"} {
		if asked[rule] == 0 {
			t.Errorf("no story has come to rule %s", rule)
		}
	}
}

func (c *clockwork) story() string {
	for s := range 150 {
		if c.second(); s > 30 && c.rng.IntN(4) == 0 {
			c.fault()
		}
	}
	c.cut = 0
	for i := range c.n {
		if c.nodes[i].depart.Intent != Stays {
			c.stop(i)
		}
		c.node[i].up = true
	}
	for range 240 {
		c.second()
	}
	c.changes = 0
	for range 60 {
		c.second()
	}
	l := c.leader()
	if l < 0 {
		return "nobody leads though everything was started"
	}
	r := c.apply(l).Rows()
	switch {
	case c.last(l).V != 1<<c.n-1 || c.changes > 0:
		return fmt.Sprintf("seats %05b, %d changes in the last minute", c.last(l).V, c.changes)
	case len(r.Marks)+len(r.Grants)+len(r.Refused) > 0:
		return fmt.Sprintf("marks %v, grants %v, refusals %v are left", r.Marks, r.Grants, r.Refused)
	case len(r.Members) != c.n:
		return fmt.Sprintf("members %v", r.Members)
	}
	return ""
}
