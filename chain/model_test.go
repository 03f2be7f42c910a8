package chain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The model explores every state that two processes on one chain can get into: each may write at any moment, replies get lost,
// writes land long after they were given up, processes die, the log grows and its retention passes. The rule under test is the
// package's own Writer, packed into each state and unpacked for each step. A variant changes one thing about the rule or its use;
// the model must find out about each, or it is not worth much.

const (
	offsets = 3 // the log ends here at last
	procs   = 2
	maxPuts = 2 // writes under way at once, of all processes
)

type variant struct {
	name   string
	mutant bool // then only what is stored is judged, not what is believed

	found        func(*Writer, *Link) bool // instead of Writer.Found
	writerNonce  bool                      // one nonce a process, not one an attempt
	noGenesis    bool                      // the first segment is the genesis
	pipelined    bool                      // a second attempt behind one that is in flight
	obey         bool                      // begin where the group's offset says
	overwrite    bool                      // a store without create-only
	blindRetry   bool                      // after a lost reply, take the attempt for stored
	wrongRefusal bool                      // the store may say "refused" of a write that lands later
}

type modelSeg struct{ next, nonce, owner int8 } // next 0: nothing is stored

type modelPut struct {
	on, awaited  bool
	state        int8 // 0 under way, 1 stored, 2 exists
	first, next  int8
	nonce, owner int8
}

type modelProc struct {
	up         bool
	phase      phase
	head, next int8 // next of the attempt in flight or in doubt
	nonce      int8 // of that attempt; of the process with writerNonce
	tried      [6]int8
}

type modelState struct {
	start, end, genesis, group, stood int8 // -1: none. stood: where the stream first waited for records
	segs                              [offsets + 1]modelSeg
	procs                             [procs]modelProc
	puts                              [maxPuts]modelPut
	crashes, retentions, operators    int8
}

func firstState() modelState {
	s := modelState{end: 2, genesis: -1, group: -1, stood: -1, crashes: 1, retentions: 1, operators: 1}
	for i := range s.segs {
		s.segs[i].owner = -1
	}
	return s
}

// writer unpacks the rule.
func (p *modelProc) writer() *Writer {
	w := &Writer{head: int64(p.head), phase: p.phase, last: Link{int64(p.head), int64(p.next), nonceOf(p.nonce)}}
	for _, n := range p.tried {
		if n > 0 {
			w.tried = append(w.tried, nonceOf(n))
		}
	}
	return w
}

// keep packs it. Nonces that are neither stored nor under way decide nothing any more; tidy drops them.
func (p *modelProc) keep(w *Writer) {
	p.head, p.phase, p.next = int8(w.head), w.phase, int8(w.last.Next)
	p.tried = [6]int8{}
	for i, n := range w.tried {
		p.tried[i] = int8(n[0])
	}
}

func nonceOf(n int8) Nonce { return Nonce{byte(n)} }

func (s *modelState) put(p modelPut) bool {
	for i := range s.puts {
		if !s.puts[i].on {
			s.puts[i] = p
			return true
		}
	}
	return false
}

func (s *modelState) greatest() int8 {
	for i := int8(offsets); i >= 0; i-- {
		if s.segs[i].next > 0 {
			return i
		}
	}
	return -1
}

// fresh is a nonce that the state does not hold. Tidy renames them, so that few are needed.
func (s *modelState) fresh() int8 {
	var used [64]bool
	s.nonces(func(n *int8) { used[*n] = true })
	for n := int8(1); ; n++ {
		if !used[n] {
			return n
		}
	}
}

func (s *modelState) nonces(f func(*int8)) {
	for i := range s.segs {
		f(&s.segs[i].nonce)
	}
	for i := range s.puts {
		f(&s.puts[i].nonce)
	}
	for i := range s.procs {
		f(&s.procs[i].nonce)
		for j := range s.procs[i].tried {
			f(&s.procs[i].tried[j])
		}
	}
}

// tidy makes states equal that differ in nothing that matters.
func (s *modelState) tidy(v *variant) {
	var live [64]bool
	for i := range s.segs {
		live[s.segs[i].nonce] = true
	}
	for i := range s.puts {
		live[s.puts[i].nonce] = true
	}
	for i := range s.procs {
		p := &s.procs[i]
		if p.phase == idle {
			p.next = 0
		}
		if !v.writerNonce && (p.phase == idle || !live[p.nonce]) {
			p.nonce = 0
		}
		k := 0
		for _, n := range p.tried {
			if live[n] && n > 0 && !slices.Contains(p.tried[:k], n) {
				p.tried[k] = n
				k++
			}
		}
		clear(p.tried[k:])
	}
	if s.procs[1].less(&s.procs[0]) { // the processes are alike
		s.procs[0], s.procs[1] = s.procs[1], s.procs[0]
		for i := range s.segs {
			s.segs[i].owner = other(s.segs[i].owner)
		}
		for i := range s.puts {
			s.puts[i].owner = other(s.puts[i].owner)
		}
	}
	if s.puts[1].key() < s.puts[0].key() {
		s.puts[0], s.puts[1] = s.puts[1], s.puts[0]
	}
	var names [64]int8
	next := int8(1)
	s.nonces(func(n *int8) {
		if *n > 0 && names[*n] == 0 {
			names[*n] = next
			next++
		}
		*n = names[*n]
	})
}

func other(owner int8) int8 {
	if owner < 0 {
		return owner
	}
	return 1 - owner
}

func (p *modelProc) less(q *modelProc) bool {
	switch {
	case p.up != q.up:
		return p.up
	case p.phase != q.phase:
		return p.phase < q.phase
	case p.head != q.head:
		return p.head < q.head
	}
	return p.next < q.next
}

func (p *modelPut) key() (n uint32) {
	if p.on {
		n = 1
	}
	if p.awaited {
		n |= 2
	}
	return n | uint32(p.state)<<2 | uint32(p.first)<<4 | uint32(p.next)<<8 | uint32(p.owner+1)<<12
}

type step func(modelState, string)

// steps calls out for everything that can happen next.
func (v *variant) steps(s modelState, out step) {
	v.world(s, out)
	for i := range s.puts {
		if s.puts[i].on {
			v.storeStep(s, i, out)
		}
	}
	for i := range s.procs {
		if s.procs[i].up {
			v.procStep(s, i, out)
		} else {
			v.begin(s, i, out)
		}
	}
}

func (v *variant) world(s modelState, out step) {
	if s.end < offsets {
		t := s
		t.end++
		out(t, "the log grows")
	}
	if s.retentions > 0 && s.start < s.end {
		t := s
		t.retentions--
		t.start++
		out(t, "retention")
	}
	if v.obey && s.operators > 0 { // the rule itself takes no group offset, so for it there is nothing to explore
		for g := int8(0); g <= s.end; g++ {
			t := s
			t.operators--
			t.group = g
			out(t, fmt.Sprint("an operator sets the group's offset to ", g))
		}
	}
}

// storeStep lets a write land, be answered, or lose its answer.
func (v *variant) storeStep(s modelState, i int, out step) {
	p := s.puts[i]
	name := fmt.Sprintf("the write [%d, %d) of %d", p.first, p.next, p.owner)
	if p.state == 0 {
		t := s
		if t.segs[p.first].next == 0 || v.overwrite {
			t.segs[p.first] = modelSeg{p.next, p.nonce, p.owner}
			t.puts[i].state = 1
		} else {
			t.puts[i].state = 2
		}
		if !p.awaited {
			t.puts[i] = modelPut{}
		}
		out(t, name+" arrives")
	}
	if !p.awaited {
		t := s
		t.puts[i] = modelPut{}
		out(t, name+" is lost on its way")
		return
	}
	answer := func(a Answer, keep bool, what string) {
		t := s
		proc := &t.procs[p.owner]
		t.puts[i] = modelPut{}
		if keep {
			t.puts[i] = p
			t.puts[i].awaited = false
		}
		w := proc.writer()
		took := w.Answered(a)
		if !took && v.blindRetry && a == Unknown {
			w.advance(w.last.Next)
		}
		proc.keep(w)
		out(t, name+what)
	}
	switch p.state {
	case 0:
		answer(Unknown, true, " times out under way")
		answer(Refused, v.wrongRefusal, " is refused")
	case 1:
		answer(Stored, false, " is answered: stored")
		answer(Unknown, false, " is stored and the answer lost")
	case 2:
		answer(Exists, false, " is answered: exists")
		answer(Unknown, false, " is refused as existing and the answer lost")
	}
}

func (v *variant) begin(s modelState, i int, out step) {
	start := func(t modelState, head int8, how string) {
		t.procs[i] = modelProc{up: true}
		if v.writerNonce {
			t.procs[i].nonce = t.fresh()
		}
		t.procs[i].keep(NewWriter(int64(head)))
		out(t, fmt.Sprintf("process %d begins at %d: %s", i, head, how))
	}
	last := s.greatest()
	switch {
	case v.obey && s.group >= 0 && s.genesis >= 0:
		start(s, s.group, "the group's offset")
	case last >= 0:
		start(s, s.segs[last].next, "behind the greatest name")
	case s.genesis >= 0:
		start(s, s.genesis, "the genesis")
	default:
		for _, first := range []int8{s.start, s.end} {
			t := s
			if !v.noGenesis {
				t.genesis = first
			}
			if t.stood < 0 {
				t.stood = first
			}
			start(t, first, "its own idea")
		}
	}
}

func (v *variant) procStep(s modelState, i int, out step) {
	p := s.procs[i]
	if s.crashes > 0 {
		t := s
		t.crashes--
		t.crash(i)
		out(t, fmt.Sprintf("process %d dies", i))
	}
	w := p.writer()
	switch {
	case w.InDoubt():
		v.readBack(s, i, out)
	case w.phase == idle:
		v.propose(s, i, out)
	case v.pipelined:
		for n := p.next + 1; n <= s.end; n++ {
			t := s
			if t.put(modelPut{on: true, first: p.next, next: n, nonce: t.fresh(), owner: int8(i)}) {
				out(t, fmt.Sprintf("process %d writes [%d, %d) behind the one in flight", i, p.next, n))
			}
		}
	}
}

func (s *modelState) crash(i int) {
	s.procs[i] = modelProc{}
	for k := range s.puts {
		if p := &s.puts[k]; p.on && p.owner == int8(i) {
			p.owner, p.awaited = -1, false
			if p.state != 0 {
				*p = modelPut{}
			}
		}
	}
	for k := range s.segs {
		if s.segs[k].owner == int8(i) {
			s.segs[k].owner = -1
		}
	}
}

func (v *variant) propose(s modelState, i int, out step) {
	head := s.procs[i].head
	from, to := head+1, s.end
	if head < s.start { // retention has passed us: a gap
		from, to = s.start, s.start
	}
	for n := from; n <= to; n++ {
		t := s
		p := &t.procs[i]
		nonce := t.fresh()
		if v.writerNonce {
			nonce = p.nonce
		}
		w := p.writer()
		l := w.Propose(int64(n), nonceOf(nonce))
		p.keep(w)
		p.nonce = nonce
		if t.put(modelPut{on: true, awaited: true, first: int8(l.First), next: int8(l.Next), nonce: nonce, owner: int8(i)}) {
			out(t, fmt.Sprintf("process %d writes [%d, %d)", i, l.First, l.Next))
		}
	}
}

func (v *variant) readBack(s modelState, i int, out step) {
	p := &s.procs[i]
	w := p.writer()
	var l *Link
	sg := s.segs[p.head]
	if sg.next > 0 {
		l = &Link{int64(p.head), int64(sg.next), nonceOf(sg.nonce)}
	}
	find := v.found
	if find == nil {
		find = (*Writer).Found
	}
	ours := find(w, l)
	p.keep(w)
	what := fmt.Sprintf("process %d reads back [%d, %d), ours %v", i, s.procs[i].head, sg.next, ours)
	if l != nil && ours != (sg.owner == int8(i)) {
		s.stood = -2 // a mark for broken: the process is wrong about whose it is
	}
	out(s, what)
}

// broken names the invariant that does not hold.
func (v *variant) broken(s *modelState) string {
	if s.stood == -2 {
		return "a process takes another's link for its own, or its own for another's"
	}
	at := s.genesis
	if v.noGenesis {
		for i := range s.segs {
			if s.segs[i].next > 0 {
				at = int8(i)
				break
			}
		}
	}
	genesis := at
	for i := range s.segs {
		switch next := s.segs[i].next; {
		case next == 0:
		case int8(i) < at:
			return "links overlap"
		case int8(i) > at:
			return "a hole: a link that following the names does not reach"
		default:
			at = next
		}
	}
	if s.stood >= 0 && genesis > s.stood && genesis > s.start {
		return "the chain begins behind records that the stream was waiting for"
	}
	for i := range s.procs {
		if !v.mutant && s.procs[i].up && s.procs[i].head > at {
			return "a head that nothing stored leads to"
		}
	}
	return ""
}

// whole reports that everything the log has is stored.
func (s *modelState) whole() bool {
	last := s.greatest()
	return s.end == offsets && (last >= 0 && s.segs[last].next == offsets || last < 0 && s.genesis == offsets)
}

type exploration struct {
	states []modelState
	from   []int32 // the state that each was first reached from
	how    []string
	edges  [][2]int32 // to, from
}

// explore visits every state that can be reached and returns the first broken one, or nothing and the count of states. From every
// state all of the log must still be able to get stored.
func (v *variant) explore(limit int) (broken string, trace []string, count int) {
	x := &exploration{states: []modelState{firstState()}, from: []int32{-1}, how: []string{""}}
	ids := map[modelState]int32{x.states[0]: 0}
	for k := int32(0); int(k) < len(x.states); k++ {
		if len(x.states) > limit {
			return "too many states", nil, len(x.states)
		}
		v.steps(x.states[k], func(t modelState, how string) {
			t.tidy(v)
			id, seen := ids[t]
			if !seen {
				id = int32(len(x.states))
				ids[t] = id
				x.states, x.from, x.how = append(x.states, t), append(x.from, k), append(x.how, how)
				if b := v.broken(&t); b != "" && broken == "" {
					broken, trace = b, x.trace(id)
				}
			}
			if id != k {
				x.edges = append(x.edges, [2]int32{id, k})
			}
		})
		if broken != "" {
			return broken, trace, len(x.states)
		}
	}
	if id := x.stuck(); id >= 0 {
		return "the rest of the log can never be stored", x.trace(id), len(x.states)
	}
	return "", nil, len(x.states)
}

// stuck is a state from which none can be reached where all is stored, or -1.
func (x *exploration) stuck() int32 {
	fine := make([]bool, len(x.states))
	begin := make([]int32, len(x.states)+1) // of each state's part of edges
	slices.SortFunc(x.edges, func(a, b [2]int32) int { return int(a[0] - b[0]) })
	for _, e := range x.edges {
		begin[e[0]+1]++
	}
	for i := range x.states {
		begin[i+1] += begin[i]
	}
	var todo []int32
	for id := range x.states {
		if x.states[id].whole() {
			fine[id], todo = true, append(todo, int32(id))
		}
	}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range x.edges[begin[id]:begin[id+1]] {
			if before := e[1]; !fine[before] {
				fine[before], todo = true, append(todo, before)
			}
		}
	}
	return int32(slices.Index(fine, false))
}

func (x *exploration) trace(id int32) (steps []string) {
	for ; id > 0; id = x.from[id] {
		steps = append(steps, x.how[id])
	}
	slices.Reverse(steps)
	return steps
}

// TestModel explores the rule over a store that may even be wrong about a refusal: the rule does not rest on it.
func TestModel(t *testing.T) {
	v := variant{name: "the rule", wrongRefusal: true}
	broken, trace, states := v.explore(2_000_000)
	if broken != "" {
		t.Errorf("%s:\n%s", broken, strings.Join(trace, "\n"))
	}
	if states < 100_000 {
		t.Errorf("only %d states were explored", states)
	}
	t.Logf("%d states", states)
}

// fromMemory is Found as one would write it first: what is ours is as long as we remember.
func fromMemory(w *Writer, l *Link) bool {
	if l != nil && slices.Contains(w.tried, l.Nonce) {
		w.advance(w.last.Next)
		return true
	}
	return w.Found(l)
}

// lastOnly forgets earlier attempts.
func lastOnly(w *Writer, l *Link) bool {
	w.tried = w.tried[max(0, len(w.tried)-1):]
	return w.Found(l)
}

// anyIsOurs does not look whose it is.
func anyIsOurs(w *Writer, l *Link) bool { return w.Found(l) || l != nil }

func TestModelCatchesVariants(t *testing.T) {
	for _, v := range []variant{
		{name: "next from memory", found: fromMemory},
		{name: "next from memory, nonce per writer", found: fromMemory, writerNonce: true},
		{name: "only the last nonce is known", found: lastOnly},
		{name: "whatever is found is ours", found: anyIsOurs},
		{name: "no genesis", noGenesis: true},
		{name: "two in flight", pipelined: true},
		{name: "the group's offset moves the chain", obey: true},
		{name: "a store that overwrites", overwrite: true},
		{name: "a lost reply is taken for success", blindRetry: true},
	} {
		v.mutant = true
		broken, trace, states := v.explore(2_000_000)
		if broken == "" || broken == "too many states" {
			t.Errorf("%s: nothing was found in %d states (%s)", v.name, states, broken)
			continue
		}
		t.Logf("%s: %s, after %d states:\n  %s", v.name, broken, states, strings.Join(trace, "\n  "))
	}
}
