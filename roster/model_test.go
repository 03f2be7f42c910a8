package roster

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// modelTime is how long each search may take: 2 s with -short, else 5 s, or what TWGD_MODEL_TIME says ("20s").
func modelTime(t testing.TB) time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TWGD_MODEL_TIME")); err == nil {
		return d
	}
	if testing.Short() {
		return 2 * time.Second
	}
	return 5 * time.Second
}

// search is one look for a world that breaks an invariant.
type search struct {
	start    func() *world
	until    time.Time
	worlds   int
	closures int
	found    string   // what is broken
	path     []string // how it came to that
}

// guarded runs f and takes a broken invariant for its answer.
func guarded(f func() string) (what string) {
	defer func() {
		if r := recover(); r != nil {
			b, is := r.(broken)
			if !is {
				panic(r)
			}
			what = b.what
		}
	}()
	return f()
}

func bad(what string) bool { return what != "" && what != "operator" }

type link struct {
	from uint64
	by   event
}

// breadth visits every world that the budgets allow, nearest first, and checks each.
func (s *search) breadth() {
	seed := maphash.MakeSeed()
	hash := func(w *world) uint64 { return maphash.Bytes(seed, w.encode()) }
	first := s.start()
	h0 := hash(first)
	came := map[uint64]link{h0: {}}
	queue := []*world{first}
	for ; len(queue) > 0 && time.Now().Before(s.until); queue = queue[1:] {
		w := queue[0]
		h := hash(w)
		s.closures++
		if what := guarded(func() string { return w.check(nil) }); bad(what) {
			s.tell(what, trace(came, h0, h))
			return
		}
		for _, e := range w.events() {
			next, changed := w.clone(), false
			if what := guarded(func() string { changed = next.apply(e); return "" }); what != "" {
				s.tell(what, append(trace(came, h0, h), e))
				return
			}
			if k := hash(next); changed && !known(came, k) && next.short() {
				came[k] = link{h, e}
				queue = append(queue, next)
			}
		}
		s.worlds = len(came)
	}
}

func known(came map[uint64]link, h uint64) bool { _, is := came[h]; return is }

// short: logs have a bound, so that the search has one.
func (w *world) short() bool {
	for i := range w.n {
		if len(w.node[i].log) > 14 {
			return false
		}
	}
	return true
}

func trace(came map[uint64]link, first, h uint64) (es []event) {
	for h != first {
		es = append(es, came[h].by)
		h = came[h].from
	}
	slices.Reverse(es)
	return es
}

// tell writes down how a world came to be.
func (s *search) tell(what string, es []event) {
	w := s.start()
	s.found = what
	for _, e := range es {
		line := fmt.Sprintf("%s n%d", opNames[e.op], e.a+1)
		switch e.op {
		case opDecide:
			if told := w.clone(); !told.due(int(e.a)) {
				line += ": " + w.decide(int(e.a)).String()
			}
		case opCopy, opTell:
			line += fmt.Sprintf(" n%d", e.b+1)
		case opPart:
			line = fmt.Sprintf("partition %03b", e.a)
		}
		guarded(func() string { w.apply(e); return "" })
		s.path = append(s.path, line)
	}
	s.path = append(s.path, "then "+w.String())
}

// walk goes at random, again and again, and checks every fourth world on the way.
func (s *search) walk(seed uint64, depth int) {
	for n := uint64(0); time.Now().Before(s.until) && s.found == ""; n++ {
		s.wander(rand.New(rand.NewPCG(seed, n)), depth)
	}
}

func (s *search) wander(rng *rand.Rand, depth int) {
	w := s.start()
	var es []event
	for range depth {
		e, any := w.pick(rng)
		if !any {
			return
		}
		next, changed := w.clone(), false
		what := guarded(func() string { changed = next.apply(e); return "" })
		es = append(es, e)
		if what == "" && !changed {
			es = es[:len(es)-1]
			continue
		}
		if w = next; what == "" && s.worlds%4 == 0 {
			s.closures++
			what = guarded(func() string { return w.check(rng) })
		}
		s.worlds++
		if bad(what) {
			s.tell(what, es)
			return
		}
	}
}

// pick takes what happens by itself nine times of ten.
func (w *world) pick(rng *rand.Rand) (event, bool) {
	all := w.events()
	own := func(e event) bool { return e.op <= opLease || e.op == opHeal || e.op == opSee }
	theirs := slices.DeleteFunc(slices.Clone(all), own)
	all = slices.DeleteFunc(all, func(e event) bool { return !own(e) })
	if len(theirs) > 0 && (len(all) == 0 || rng.IntN(10) == 0) {
		all = theirs
	}
	if len(all) == 0 {
		return event{}, false
	}
	return all[rng.IntN(len(all))], true
}

func (w *world) encode() []byte {
	b := make([]byte, 0, 512)
	put := func(e entry) {
		b = append(binary.LittleEndian.AppendUint16(b, e.T), e.V, e.N, e.Go, e.Lv, e.Gr, e.Tomb, byte(e.nonces), byte(e.nonces>>8))
	}
	put(w.base)
	l := w.left
	b = append(b, w.cut, w.history, l.term, l.kill, l.start, l.wipe, l.part, l.misjudge, l.leave, l.fail, l.settle)
	for i := range w.n {
		d, p := &w.node[i], &w.proc[i]
		flags := uint16(0)
		for k, is := range [...]bool{d.exists, d.up, d.lead, d.holds, p.unused, p.failed, p.seen, p.lost, p.steady, p.seasoned} {
			flags |= uint16(one(is)) << k
		}
		b = append(binary.LittleEndian.AppendUint16(b, flags), byte(p.intent), p.machine, p.run, byte(len(d.log)))
		b = binary.LittleEndian.AppendUint16(b, d.term)
		for _, e := range d.log {
			put(e)
		}
	}
	for _, e := range w.com {
		put(e)
	}
	return b
}

func (s *search) fails(t *testing.T) {
	t.Logf("%d worlds, %d left alone and looked at", s.worlds, s.closures)
	if s.found != "" {
		t.Errorf("%s\n    %s", s.found, strings.Join(s.path, "\n    "))
	}
	if s.worlds < 100 {
		t.Errorf("only %d worlds were seen", s.worlds)
	}
}

// stories are what a search may meet.
var stories = map[string]func(m mutant) *world{
	"three go and crash": func(m mutant) *world {
		return mutate(m, newWorld(3, 0, 3, 3, budgets{term: 2, kill: 1, start: 2, fail: 1}))
	},
	"three are cut": func(m mutant) *world {
		return mutate(m, newWorld(3, 0, 3, 3, budgets{term: 1, part: 1, kill: 1, start: 1, misjudge: 1}))
	},
	"three leave": func(m mutant) *world {
		return mutate(m, newWorld(3, 0, 3, 3, budgets{leave: 2, term: 1, start: 1}))
	},
	"three only go": func(m mutant) *world {
		return mutate(m, newWorld(3, 0, 3, 3, budgets{term: 3, start: 3}))
	},
	"one grows": func(m mutant) *world {
		return mutate(m, newWorld(3, 0, 1, 3, budgets{term: 1, kill: 2, start: 2}))
	},
	"one of four leaves": func(m mutant) *world {
		return mutate(m, newWorld(4, 0, 3, 3, budgets{leave: 1, kill: 1, start: 1}))
	},
	"three lose a disk": func(m mutant) *world {
		return mutate(m, newWorld(3, 1, 3, 3, budgets{kill: 1, wipe: 1, start: 1, term: 1}))
	},
}

func mutate(m mutant, w *world) *world {
	w.mutant = m
	return w
}

// Three nodes, every order of events, nearest first. Invariants R1 to R9 as far as a model without time and stores can see them.
func TestModelOfThree(t *testing.T) {
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := search{start: func() *world { return story(mutant{}) }, until: time.Now().Add(modelTime(t))}
			s.breadth()
			s.fails(t)
		})
	}
}

// Five nodes and a spare disk, walks at random.
func TestModelOfFive(t *testing.T) {
	for _, voters := range []int{1, 5} {
		t.Run(fmt.Sprint(voters, " seats at first"), func(t *testing.T) {
			t.Parallel()
			s := search{start: func() *world {
				return newWorld(5, 1, voters, 5, budgets{term: 4, kill: 3, start: 6, wipe: 1, part: 1, misjudge: 2, leave: 2, fail: 1, settle: 1})
			}, until: time.Now().Add(modelTime(t))}
			s.walk(uint64(voters), 300)
			s.fails(t)
		})
	}
}
