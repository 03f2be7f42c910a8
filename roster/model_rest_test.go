package roster

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// outcome of leaving a world alone.
type outcome struct {
	rest    bool
	changes int // of the configuration
}

// settle lets everything happen that happens by itself, until nothing does. Where nothing does and nobody leads, servers stand by
// forced candidacy, as Begin has them do after ten seconds.
func (w *world) settle(rng *rand.Rand) (o outcome) {
	for range 150 {
		changed := w.detect()
		for _, e := range w.byThemselves(rng) {
			before := w.conf()
			if w.still(e) && w.apply(e) {
				changed = true
				o.changes += one(w.conf() != before)
			}
		}
		for c := 0; !changed && c < w.n && !w.mutant.noForce; c++ {
			if w.node[c].up && !w.hears(c, c) {
				changed = w.done(w.elect(c, ballot{forced: true}))
			}
		}
		if !changed {
			o.rest = true
			return o
		}
	}
	return o
}

func (w *world) detect() (changed bool) {
	for i := range w.n {
		if w.proc[i].unused {
			continue
		}
		if h := w.heard(i); h != w.proc[i].seen {
			w.proc[i].seen, changed = h, true
		}
		w.proc[i].lost = w.proc[i].lost && !w.proc[i].seen
		if d := &w.node[i]; d.up && d.lead && w.reach(i) < majority(size(w.last(i).V)) {
			d.lead, changed = false, true
		}
	}
	return changed
}

func (w *world) byThemselves(rng *rand.Rand) []event {
	es := slices.DeleteFunc(w.events(), func(e event) bool { return e.op > opExit })
	if rng != nil {
		rng.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
	}
	return es
}

// still: the event is possible though others came before it.
func (w *world) still(e event) bool {
	switch d := &w.node[e.a]; e.op {
	case opCopy, opDecide:
		return d.up && d.lead
	case opExit:
		return w.mayExit(int(e.a))
	default:
		return d.up
	}
}

// conf is the configuration of the newest leader.
func (w *world) conf() (c [2]uint8) {
	term := -1
	for i := range w.n {
		if d := &w.node[i]; d.up && d.lead && int(d.term) > term {
			term = int(d.term)
			c = [2]uint8{w.last(i).V, w.last(i).N}
		}
	}
	return c
}

// check leaves a copy of w alone, three times over: as it is; healed, with everything started; and after settle has passed for all. It
// says which invariant does not hold, or "".
func (w *world) check(rng *rand.Rand) string {
	w = w.clone()
	w.left = budgets{}
	for _, phase := range []func(*world, *rand.Rand) string{(*world).alone, (*world).whole8, (*world).longAfter} {
		if what := phase(w, rng); what != "" {
			return what
		}
	}
	return ""
}

func (w *world) alone(rng *rand.Rand) string {
	o := w.settle(rng)
	switch l := w.leader(); {
	case !o.rest:
		return "no rest"
	case o.changes > 20:
		return fmt.Sprintf("R9: %d changes to rest", o.changes)
	case l >= 0 && size(w.last(l).V)%2 == 0:
		return "R5: rests at an even number"
	case l < 0 && w.majorityOfAllInForce():
		return "R9: of every configuration in force a majority is up and connected, and nobody leads"
	case l < 0 && w.history&(crashed|allGoing) == 0 && w.somebodyUp():
		return "R7: SIGTERM and starts only, somebody is up, nobody serves"
	}
	return ""
}

func (w *world) somebodyUp() bool {
	for i := range w.n {
		if w.node[i].up && !has(w.known().Tomb, i) {
			return true
		}
	}
	return false
}

// majorityOfAllInForce: on one side of the cut, a majority is up of the committed configuration and of whatever its live disks hold.
func (w *world) majorityOfAllInForce() bool {
	for _, side := range []bool{false, true} {
		all := w.upOn(side, w.known().V)
		for i := range w.n {
			if has(w.cut, i) == side && w.node[i].up && w.node[i].holds {
				all = all && w.upOn(side, w.last(i).V)
			}
		}
		if all {
			return true
		}
	}
	return false
}

func (w *world) upOn(side bool, V uint8) bool {
	up := 0
	for i := range w.n {
		up += one(has(V, i) && w.node[i].up && w.node[i].holds && has(w.cut, i) == side)
	}
	return up >= majority(size(V))
}

// whole8: R8. What was stopping is killed, the cut heals, every disk starts.
func (w *world) whole8(rng *rand.Rand) string {
	w.cut = 0
	lostDisk := false
	for i := range w.n {
		d, p := &w.node[i], &w.proc[i]
		if d.up && p.intent == Terminating {
			w.stop(i)
		}
		if d.exists && !d.up && !has(w.known().Tomb, i) {
			d.up, p.steady, p.run = true, true, (p.run+1)%4
		}
		lostDisk = lostDisk || !p.unused && !d.exists && !d.up
	}
	o := w.settle(rng)
	switch {
	case !o.rest:
		return "no rest after everything was started"
	case w.leader() >= 0:
		return ""
	case !lostDisk:
		return "R8: no disk is lost, everything is started, nobody leads"
	case w.majorityOfAllInForce():
		return "R9: everything is started, of every configuration in force a majority is there, nobody leads"
	}
	return "operator" // enough disks are lost; what follows is not looked at
}

// longAfter lets settle pass for who is away and who is here, again and again until nothing changes, and looks at the seats.
func (w *world) longAfter(rng *rand.Rand) string {
	changes := 0
	w.history |= longSince
	for range 6 {
		for i := range w.n {
			w.proc[i].lost = !w.proc[i].unused && !w.node[i].up
			w.proc[i].seasoned = w.node[i].up
		}
		o := w.settle(rng)
		if !o.rest {
			return "no rest after settle"
		}
		changes += o.changes
	}
	if changes > 20 {
		return fmt.Sprintf("R9: %d changes to rest after settle", changes)
	}
	l := w.leader()
	if l < 0 {
		return "R9: the leader is lost while settling"
	}
	return w.seatsAtRest(l)
}

func (w *world) seatsAtRest(l int) string {
	V, here := w.last(l).V, uint8(0)
	for i := range w.n {
		if w.node[i].up && !has(w.known().Tomb, i) {
			here |= bit(i)
		}
	}
	want := min(size(here), w.size)
	want -= one(want%2 == 0)
	switch away := size(V &^ here); {
	case size(V)%2 == 0 || size(V) > w.size:
		return fmt.Sprintf("R5: rests at %d seats of %d", size(V), w.size)
	case away == 0 && size(V) != want:
		return fmt.Sprintf("R5: %d seats, %d nodes, size %d", size(V), size(here), w.size)
	case away == 1 && (here&^V != 0 || size(V) != size(here)+1):
		return "R5: a seat is away though a spare is there"
	case away > 1:
		return fmt.Sprintf("R5: %d of %d seats away after settle", away, size(V))
	case away == 0 && size(V) >= 3:
		return w.lowestHere(V, here)
	}
	return ""
}

func (w *world) lowestHere(V, here uint8) string {
	var ords []int
	for i := range w.n {
		if has(here, i) {
			ords = append(ords, int(w.proc[i].machine))
		}
	}
	slices.Sort(ords)
	for i := range w.n {
		if has(V, i) && int(w.proc[i].machine) > ords[size(V)-1] && !w.mutant.selfDemotion {
			return "R5: the seats are not those of the lowest ordinals"
		}
	}
	return ""
}
