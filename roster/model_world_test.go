package roster

import (
	"fmt"
	"slices"
	"strings"
)

// world is machines with disks and processes around a raftModel: what happens to them, and what a leader decides about them.
type world struct {
	raftModel
	size    int
	proc    [maxModel]process
	left    budgets
	history uint8
	mutant  mutant
}

// process is what runs on a disk. All of it but machine and unused ends with the process.
type process struct {
	machine uint8 // disks of one machine have one name
	unused  bool  // a disk that does not exist yet
	intent  Intent
	run     uint8 // the process's nonce: which of its machine's processes, of four
	failed  bool  // a handover by it failed once; of interest to the self-demoting mutant only
	// what a leader thinks of it
	seen, lost, steady, seasoned bool
}

// budgets bound what the surroundings may do.
type budgets struct{ term, kill, start, wipe, part, misjudge, leave, fail, settle uint8 }

const (
	crashed   uint8 = 1 << iota // a kill, a lost disk, a partition, a misjudgement
	allGoing                    // at some moment every live process that a leader had heard since its start was about to go
	intended                    // a SIGTERM or a leave
	longSince                   // settle has passed for somebody, or a name was superseded
)

// mutant takes one rule away; the model must notice.
type mutant struct{ amnesia, selfDemotion, parallel, oldGrants, noForce bool }

var modelIDs = [maxModel]string{"n1~a", "n2~a", "n3~a", "n4~a", "n5~a", "n6~a"}

type op uint8

const (
	opElect op = iota
	opCopy
	opDecide
	opTell
	opExit
	opLease // a leader without a quorum steps down
	opFail
	opTerm
	opLeave
	opKill
	opStart
	opWipe
	opPart
	opHeal
	opSee
	opMisjudge
	opSettle
)

var opNames = [...]string{"elect", "copy", "decide", "tell", "exit", "lease lost", "handover fails", "SIGTERM", "leave", "KILL", "start",
	"start with an empty disk", "partition", "heal", "detect", "misjudge", "settle passes"}

type event struct {
	op   op
	a, b uint8
}

func newWorld(n, spare, voters, want int, left budgets) *world {
	w := &world{size: want, left: left}
	w.n = n + spare
	for i := range n {
		w.node[i] = disk{exists: true, up: true, holds: true}
		w.proc[i] = process{machine: uint8(i), seen: true, steady: true}
		if i < voters {
			w.base.V |= bit(i)
		} else {
			w.base.N |= bit(i)
		}
	}
	for i := n; i < w.n; i++ {
		w.proc[i] = process{unused: true}
	}
	w.elect(0, ballot{})
	for f := range n {
		w.copyTo(0, f)
	}
	w.tidy()
	return w
}

func (w *world) tidy() {
	w.fold()
	w.rank()
}

func (w *world) clone() *world {
	c := *w
	for i := range w.n {
		c.node[i].log = slices.Clone(w.node[i].log)
	}
	c.com = slices.Clone(w.com)
	return &c
}

// heard is what a right detector would say of i.
func (w *world) heard(i int) bool {
	led := false
	for l := range w.n {
		if w.node[l].up && w.node[l].lead {
			if led = true; w.conn(l, i) {
				return w.node[i].up
			}
		}
	}
	return w.node[i].up && !led
}

// events are all that may happen now.
func (w *world) events() (out []event) {
	add := func(ok bool, o op, a, b int) {
		if ok {
			out = append(out, event{o, uint8(a), uint8(b)})
		}
	}
	for i := range w.n {
		if w.proc[i].unused {
			continue
		}
		d, p := &w.node[i], &w.proc[i]
		if d.up {
			w.live(i, add)
		}
		add(!d.up && d.exists && w.left.start > 0 && !has(w.known().Tomb, i), opStart, i, 0)
		add(!d.up && d.exists && w.left.wipe > 0, opWipe, i, 0)
		add(p.seen != w.heard(i), opSee, i, 0)
		add(p.seen == w.heard(i) && w.left.misjudge > 0, opMisjudge, i, 0)
		add(!p.seen && !p.lost && has(w.last(i).V, i) && !d.up && w.left.settle > 0, opSettle, i, 0)
	}
	for g := 1; w.cut == 0 && w.left.part > 0 && g < 1<<(w.n-1); g++ {
		add(true, opPart, g, 0)
	}
	add(w.cut != 0, opHeal, 0, 0)
	return out
}

func (w *world) live(i int, add func(bool, op, int, int)) {
	d, p := &w.node[i], &w.proc[i]
	add(!d.lead && d.holds && has(w.last(i).V, i) && !w.hears(i, i), opElect, i, 0)
	if d.lead {
		for f := range w.n {
			add(f != i, opCopy, i, f)
		}
		add(true, opDecide, i, 0)
		add(w.left.fail > 0 && p.intent != Stays && !p.failed, opFail, i, 0)
		add(w.reach(i) < majority(size(w.last(i).V)), opLease, i, 0)
	}
	for l := range w.n {
		add(p.intent != Stays && w.node[l].lead && w.node[l].up && w.conn(i, l), opTell, i, l)
	}
	add(w.mayExit(i), opExit, i, 0)
	add(p.intent == Stays && w.left.term > 0, opTerm, i, 0)
	add(p.intent == Stays && w.left.leave > 0 && has(w.last(i).V|w.last(i).N, i), opLeave, i, 0)
	add(w.left.kill > 0, opKill, i, 0)
}

// apply lets e happen; it says whether anything changed.
func (w *world) apply(e event) bool {
	a := int(e.a)
	switch e.op {
	case opElect:
		return w.done(w.elect(a, ballot{}))
	case opCopy:
		return w.done(w.copyTo(a, int(e.b)))
	case opDecide:
		return w.done(w.due(a) || w.perform(a, w.decide(a)))
	case opTell:
		return w.done(w.tell(a, int(e.b)))
	case opPart:
		w.left.part--
		w.cut = e.a
		w.history |= crashed
		return w.done(true)
	case opHeal:
		w.cut = 0
		return w.done(true)
	case opWipe:
		return w.done(w.wipe(a))
	}
	w.happen(e.op, a)
	return w.done(true)
}

func (w *world) done(changed bool) bool {
	if changed {
		w.tidy()
	}
	return changed
}

func (w *world) happen(o op, a int) {
	d, p := &w.node[a], &w.proc[a]
	switch o {
	case opExit:
		if t := w.known(); p.intent == Terminating && (!has(t.Gr, a) || t.nonce(a) != p.run) && w.cut == 0 {
			panic(broken{"R4: a process stops on a grant that is not for it"})
		}
		w.stop(a)
	case opLease:
		d.lead = false
	case opFail:
		w.left.fail--
		p.failed = true
	case opTerm:
		w.left.term--
		w.intend(a, Terminating)
	case opLeave:
		w.left.leave--
		w.intend(a, Leaving)
	case opKill:
		w.left.kill--
		w.stop(a)
		w.history |= crashed
	case opStart:
		w.left.start--
		d.up, p.steady, p.run = true, true, (p.run+1)%4
	case opMisjudge:
		w.left.misjudge--
		w.history |= crashed
		p.seen = !p.seen
	case opSee:
		p.seen = !p.seen
		p.lost = p.lost && !p.seen
	case opSettle:
		w.left.settle--
		p.lost = true
		w.history |= longSince
	}
}

func (w *world) intend(a int, i Intent) {
	w.proc[a].intent = i
	w.history |= intended
	for o := range w.n {
		if w.node[o].up && w.proc[o].intent == Stays && w.proc[o].seen {
			return
		}
	}
	w.history |= allGoing
}

func (w *world) stop(i int) {
	w.node[i].up, w.node[i].lead = false, false
	p := &w.proc[i]
	p.intent, p.failed, p.steady, p.seasoned = Stays, false, false, false
}

// wipe starts machine a's node with an empty disk: another server. The mutant keeps the id.
func (w *world) wipe(a int) bool {
	w.left.wipe--
	w.history |= crashed | longSince
	if w.mutant.amnesia {
		w.node[a] = disk{exists: true, up: true}
		w.proc[a].steady = true
		return true
	}
	for j := range w.n {
		if w.proc[j].unused {
			w.node[a] = disk{}
			w.node[j] = disk{up: true}
			w.proc[j] = process{machine: w.proc[a].machine, seen: true, steady: true}
			return true
		}
	}
	return false
}

// tell brings i's intent into leader l's log.
func (w *world) tell(i, l int) bool {
	p, e, b := &w.proc[i], w.last(l), bit(i)
	if !w.node[l].lead || !w.node[l].up || p.intent == Stays || e.Tomb&b != 0 || !w.ready(l) && !w.mutant.parallel {
		return false
	}
	marked := p.intent == Terminating && e.Go&b != 0 || p.intent == Leaving && e.Lv&b != 0
	if marked && (e.nonce(i) == p.run || w.mutant.oldGrants) {
		return false
	}
	e.Go, e.Lv, e.Gr = e.Go&^b, e.Lv&^b, e.Gr&^b
	if p.intent == Terminating {
		e.Go |= b
	} else {
		e.Lv |= b
	}
	e.nonces = e.nonces&^(3<<(2*i)) | uint16(p.run)<<(2*i)
	w.append(l, e)
	return true
}

func (e entry) nonce(i int) uint8 { return uint8(e.nonces>>(2*i)) & 3 }

// due: what a leader was told it writes down before it decides. Whoever it hears has told it all, else it would not know that its log
// has the configuration.
func (w *world) due(l int) bool {
	for i := range w.n {
		if w.node[i].up && w.conn(i, l) && (i == l || w.proc[i].seen) && w.tell(i, l) {
			return true
		}
	}
	return false
}

// mayExit: a leader says that the grant, or the tombstone, is committed. The mutant takes a grant that an earlier process left.
func (w *world) mayExit(i int) bool {
	p := &w.proc[i]
	for l := range w.n {
		if !w.node[l].up || !w.node[l].lead || !w.conn(l, i) || p.intent == Stays {
			continue
		}
		if t := w.applied(l); p.intent == Terminating && (t.nonce(i) == p.run || w.mutant.oldGrants) && has(t.Gr, i) || p.intent == Leaving && has(t.Tomb, i) {
			return true
		}
	}
	return false
}

func (w *world) String() string {
	var out []string
	for i := range w.n {
		d, p := &w.node[i], &w.proc[i]
		if p.unused {
			continue
		}
		state := "no disk"
		switch {
		case d.up && d.lead:
			state = "LEADS"
		case d.up:
			state = "up"
		case d.exists:
			state = "down"
		}
		out = append(out, fmt.Sprintf("n%d %s %v t%d+%d V%03b seen=%v", i+1, state, p.intent, d.term, len(d.log), w.last(i).V, p.seen))
	}
	c := w.known()
	return strings.Join(out, "; ") + fmt.Sprintf(" | committed V%03b N%03b going %03b granted %03b leaving %03b cut %03b", c.V, c.N, c.Go, c.Gr, c.Lv, w.cut)
}
