package cuts

import (
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
)

// The model checks every interleaving of what may write files of one partition: a live lane and its next owner, which may start
// anywhere up to where the first one was, stall at any place, crash, and give up; two recovery agents whose lease may be lost
// at any moment; and create-only writes of cuts and files that may arrive late, after their sender is gone, or never. Every offset
// is a segment of raw. The decisions are those of the package: plan, alike and uncovered.
//
// It holds that no two files overlap, and that from every state full coverage can still be reached.

const (
	modelEnd  = 3 // offsets 0 … 3
	modelCell = 2
)

// laneState is what a lane has open.
type laneState struct {
	next int8 // the next offset that it is offered; -1 where it has not begun
	a, b int8 // what it has open; a is -1 where nothing is
	pin  bool // it has found its deadline in the future and pins now
}

// cutState is the cut that begins at its index, as stored; next 0 where there is none.
type cutState struct{ next, cell int8 }

type agentState struct{ leased bool }

// state of the whole. Sets of spans and of cuts are bit sets.
type state struct {
	expired bool // the deadline has passed
	cuts    [modelEnd]cutState
	files   uint32    // stored
	flying  uint32    // files on their way
	wrote   [2]uint32 // cuts on their way: with cell 0, and holes
	lanes   [2]laneState
	agents  [2]agentState
	lease   int8 // the agent that holds it, -1
	crashes int8
}

func spanBit(a, b int64) uint32 { return 1 << (a*modelEnd + b - 1) }

func spansOf(bits uint32) (out []checkpoint.Span) {
	for a := range int64(modelEnd) {
		for b := a + 1; b <= modelEnd; b++ {
			if bits&spanBit(a, b) != 0 {
				out = append(out, checkpoint.Span{From: a, To: b})
			}
		}
	}
	return out
}

func (s *state) head() (h int64) {
	for h < modelEnd && s.cuts[h].next > 0 {
		h = int64(s.cuts[h].next)
	}
	return h
}

func (s *state) chain() (out []cut) {
	for h := int64(0); h < modelEnd && s.cuts[h].next > 0; h = int64(s.cuts[h].next) {
		out = append(out, cut{h, int64(s.cuts[h].next), int64(s.cuts[h].cell)})
	}
	return out
}

func (s *state) covered() checkpoint.SpanSet { return checkpoint.NewSpanSet(spansOf(s.files)...) }

// create stores a cut where its place is free.
func (s *state) create(c cut) {
	if s.cuts[c.first].next == 0 {
		s.cuts[c.first] = cutState{int8(c.next), int8(c.cell)}
	}
}

func (s *state) polled() int8 { return max(s.lanes[0].next, s.lanes[1].next) }

func (s *state) overlap() bool {
	at := int64(0)
	for _, f := range spansOf(s.files) {
		if f.From < at {
			return true
		}
		at = f.To
	}
	return false
}

func (s *state) done() bool {
	return s.polled() == modelEnd && s.covered().Covers(checkpoint.Span{From: 0, To: modelEnd})
}

// explorer yields the states that follow one.
type explorer struct {
	trusting bool // a lane that has pinned does not look whether its own cut is what stands there: the rule taken away
	emit     func(state)
}

func (e *explorer) successors(s state) {
	if !s.expired {
		n := s
		n.expired = true
		e.emit(n)
	}
	e.landings(s)
	for i := range s.lanes {
		e.lane(s, i)
	}
	if s.expired {
		for i := range s.agents {
			e.agent(s, i)
		}
	}
}

// landings let each write on its way arrive. One that gets lost is one that never does.
func (e *explorer) landings(s state) {
	for _, f := range spansOf(s.flying) {
		n := s
		n.files |= spanBit(f.From, f.To)
		e.emit(n)
	}
	for hole := range s.wrote {
		for _, c := range spansOf(s.wrote[hole]) {
			n := s
			n.create(cut{c.From, c.To, int64(hole * modelCell)})
			e.emit(n)
		}
	}
}

// canonical leaves out what can make no difference any more: writes whose place is taken, and which of the two agents is which.
func (s state) canonical() state {
	s.flying &^= s.files
	for a := range int64(modelEnd) {
		if s.cuts[a].next > 0 {
			for b := a + 1; b <= modelEnd; b++ {
				s.wrote[0] &^= spanBit(a, b)
				s.wrote[1] &^= spanBit(a, b)
			}
		}
	}
	if s.agents[0].leased && (!s.agents[1].leased || s.lease == 0) {
		s.agents[0], s.agents[1] = s.agents[1], s.agents[0]
		if s.lease >= 0 {
			s.lease = 1 - s.lease
		}
	}
	return s
}

// send puts a write of a cut on its way for good, without an answer.
func (s *state) send(c cut) {
	s.wrote[min(c.cell, 1)] |= spanBit(c.first, c.next)
}

func (e *explorer) lane(s state, i int) {
	l := s.lanes[i]
	closed := laneState{next: l.next, a: -1}
	set := func(l laneState) {
		n := s
		n.lanes[i] = l
		e.emit(n)
	}
	if l.next < 0 {
		for from := range s.lanes[0].next + 1 { // the next owner begins at any position that the first one may have committed
			set(laneState{next: from, a: -1})
		}
		return
	}
	if l.pin {
		e.pinning(s, i)
	} else {
		if l.next < modelEnd {
			open := laneState{next: l.next + 1, a: l.a, b: l.next + 1}
			if l.a < 0 {
				open.a = l.next
				set(laneState{next: l.next + 1, a: -1}) // refused
			}
			set(open)
		}
		if l.a >= 0 && s.expired {
			set(closed)
		} else if l.a >= 0 {
			set(laneState{l.next, l.a, l.b, true})
		}
	}
	if s.crashes > 0 && l.a >= 0 {
		n := s
		n.crashes--
		n.lanes[i] = closed
		e.emit(n)
	}
}

// pinning is one step of Pin, and the upload behind it.
func (e *explorer) pinning(s state, i int) {
	l := s.lanes[i]
	span := checkpoint.Span{From: int64(l.a), To: int64(l.b)}
	if want, more := plan(s.head(), span, modelCell); more {
		n := s
		n.create(want)
		e.emit(n)
		n = s
		n.send(want)
		n.lanes[i] = laneState{next: l.next, a: -1}
		e.emit(n) // no answer, and the lane gives up
		return
	}
	c := s.cuts[span.From]
	n := s
	n.lanes[i] = laneState{next: l.next, a: -1}
	if e.trusting || c.next > 0 && (cut{span.From, int64(c.next), int64(c.cell)}).alike(span) {
		n.flying |= spanBit(span.From, span.To)
	}
	e.emit(n)
}

func (e *explorer) agent(s state, i int) {
	if s.lease == int8(i) {
		n := s
		n.lease = -1 // it runs out unnoticed
		e.emit(n)
	}
	if !s.agents[i].leased {
		if s.lease < 0 {
			n := s
			n.lease, n.agents[i].leased = int8(i), true
			e.emit(n)
		}
		return
	}
	idle := s
	idle.agents[i].leased = false
	if idle.lease == int8(i) {
		idle.lease = -1
	}
	e.emit(idle)
	for to := s.head() + 1; to <= int64(s.polled()); to++ {
		want, _ := plan(s.head(), checkpoint.Span{From: to, To: to}, modelCell)
		n := s
		n.create(want)
		e.emit(n)
		n = idle
		n.send(want)
		e.emit(n)
	}
	covered := s.covered()
	for _, c := range s.chain() {
		for _, cell := range c.uncovered(nil, covered) {
			n := idle
			n.flying |= spanBit(cell.From, cell.To)
			e.emit(n)
		}
	}
}

// explore walks all states within limit, and returns how many it saw, how many of them have files that overlap, and how many
// cannot reach full coverage any more. Where it stops at the limit, the last is not known and 0.
func explore(trusting bool, limit int) (seen, overlapping, stuck int) {
	start := state{lease: -1, crashes: 1, lanes: [2]laneState{{next: 0, a: -1}, {next: -1, a: -1}}}
	index := map[state]int32{start: 0}
	states := []state{start}
	var edges [][2]int32 // to, from
	for at := 0; at < len(states) && len(states) < limit; at++ {
		s := states[at]
		if s.overlap() {
			overlapping++
			continue
		}
		e := explorer{trusting: trusting, emit: func(n state) {
			n = n.canonical()
			i, known := index[n]
			if !known {
				i = int32(len(states))
				index[n] = i
				states = append(states, n)
			}
			edges = append(edges, [2]int32{i, int32(at)})
		}}
		e.successors(s)
	}
	if len(states) < limit {
		stuck = unreached(states, edges)
	}
	return len(states), overlapping, stuck
}

// unreached counts the states from which no done state can be reached.
func unreached(states []state, edges [][2]int32) int {
	heads := make([]int32, len(states)+1)
	for _, e := range edges {
		heads[e[0]+1]++
	}
	for i := range states {
		heads[i+1] += heads[i]
	}
	from, fill := make([]int32, len(edges)), append([]int32(nil), heads...)
	for _, e := range edges {
		from[fill[e[0]]] = e[1]
		fill[e[0]]++
	}
	good, queue := make([]bool, len(states)), []int32{}
	for i := range states {
		if states[i].done() {
			good[i], queue = true, append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		i := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, f := range from[heads[i]:heads[i+1]] {
			if !good[f] {
				good[f], queue = true, append(queue, f)
			}
		}
	}
	n := 0
	for i := range good {
		if !good[i] && !states[i].overlap() {
			n++
		}
	}
	return n
}

func TestModel(t *testing.T) {
	const limit = 3_000_000
	seen, overlapping, stuck := explore(false, limit)
	if seen >= limit {
		t.Errorf("the model has more than %d states, and not all were seen", limit)
	}
	if overlapping > 0 || stuck > 0 {
		t.Errorf("of %d states %d have files that overlap, %d cannot reach full coverage", seen, overlapping, stuck)
	}
}

// Without the look at what stands in the chain the model finds the fault, which shows that it can.
func TestModelFindsAFault(t *testing.T) {
	if seen, overlapping, _ := explore(true, 300_000); overlapping == 0 {
		t.Errorf("%d states, and no two files overlap although a lane does not look", seen)
	}
}
