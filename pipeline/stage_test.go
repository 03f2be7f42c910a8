package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/pipeline/content"
	"github.com/stream-arrow/twgd/record"
)

// minutes is a stage, and a script that plays it. Batches are named by partition and number: a0, a1. Steps:
//
//	a5         a batch of five records of partition a is stored; a0 is one that holds none
//	ask        groups are begun; each is written as number(batches)
//	1:         group 1 is answered: no twins; 1:a0.2,b0.1 with twins; 1!why nothing is known
//	note       notes are begun; each is written as number[batch:twins, …]
//	1;         the note of group 1 is durable; 1;! it is not
//	+5s        time passes
//	end        everything has to leave
//
// Behind the steps comes what leaves, with the records that are dropped: a0-2.
type minutes struct {
	*stage
	now    time.Time
	names  map[*staged]string
	puts   map[string]int
	groups []*group
	log    []string
}

func play(t *testing.T, drop bool, script string) string {
	t.Helper()
	m := &minutes{stage: newStage(drop), now: time.Unix(0, 0), names: map[*staged]string{}, puts: map[string]int{}}
	for step := range strings.FieldsSeq(script) {
		m.step(t, step)
		m.leaves()
	}
	if m.bytes != 0 == m.empty() {
		t.Errorf("%q: empty is %v, %d bytes", script, m.empty(), m.bytes)
	}
	return strings.Join(m.log, " ")
}

func (m *minutes) step(t *testing.T, step string) {
	t.Helper()
	switch {
	case step == "ask":
		for g := m.ask(m.now); g != nil; g = m.ask(m.now) {
			m.groups = append(m.groups, g)
			m.log = append(m.log, fmt.Sprintf("%d(%s)", len(m.groups), m.list(g.batches)))
		}
	case step == "note":
		for g := m.note(m.now); g != nil; g = m.note(m.now) {
			var all []string
			for _, w := range g.twins {
				all = append(all, fmt.Sprintf("%s:%d", m.names[w.of], len(w.noted.Dropped)))
			}
			m.log = append(m.log, fmt.Sprintf("%d[%s]", slices.Index(m.groups, g)+1, strings.Join(all, " ")))
		}
	case step == "end":
		m.end()
	case step[0] == '+':
		d, err := time.ParseDuration(step[1:])
		if err != nil {
			t.Fatal(err)
		}
		m.now = m.now.Add(d)
		m.expire(m.now)
	case step[0] >= 'a':
		n, _ := strconv.Atoi(step[1:])
		m.store(step[:1], n)
	default:
		m.outcome(step)
	}
}

func (m *minutes) store(p string, records int) *staged {
	part := record.Partition{Topic: p}
	first := int64(1000 * m.puts[p])
	b := &record.Batch{Partition: part, First: first, Next: first + 1000}
	for i := range records {
		b.Records = append(b.Records, record.Record{Offset: first + int64(i)})
	}
	s := &staged{}
	m.put(newOffered(b.Weigh(nil), m.now, newIDMaker(part)), 10)
	if line := m.lines[part]; len(line) > 0 {
		s = line[len(line)-1]
	} else {
		s = m.ready[len(m.ready)-1]
	}
	m.names[s] = fmt.Sprintf("%s%d", p, m.puts[p])
	m.puts[p]++
	return s
}

func (m *minutes) outcome(step string) {
	g := m.groups[step[0]-'1']
	switch rest := step[2:]; {
	case step[1] == ';' && rest == "":
		m.noted(g, nil, m.now)
	case step[1] == ';':
		m.noted(g, errors.New("the bucket is away"), m.now)
	case step[1] == '!':
		m.answered(g, content.Verdict{}, &content.Unavailable{Reason: rest, Err: errors.New("x")}, m.now)
	default:
		v := content.Verdict{Checked: 1}
		for twin := range strings.SplitSeq(rest, ",") {
			name, i, ok := strings.Cut(twin, ".")
			for n, b := range g.batches {
				if at, _ := strconv.Atoi(i); ok && m.names[b] == name {
					v.Twins = append(v.Twins, content.Twin{Batch: n, Record: at})
				}
			}
		}
		m.answered(g, v, nil, m.now)
	}
}

func (m *minutes) list(all []*staged) string {
	var names []string
	for _, b := range all {
		names = append(names, m.names[b])
	}
	return strings.Join(names, " ")
}

func (m *minutes) leaves() {
	for _, b := range m.leave() {
		name := m.names[b]
		for _, i := range b.offered.dropped {
			name += fmt.Sprintf("-%d", i)
		}
		m.log = append(m.log, name)
	}
}

func TestStage(t *testing.T) {
	f := func(drop bool, script, want string) {
		t.Helper()
		if got := play(t, drop, script); got != want {
			t.Errorf("%s\n got %s\nwant %s", script, got, want)
		}
	}
	// Groups hold what waits, over all partitions, in the order it was stored; with a free slot nothing waits.
	f(true, "a5 ask b5 ask 1: 2:", "1(a0) 2(b0) a0 b0")
	f(true, "a5 b5 a5 ask 1:", "1(a0 b0 a1) a0 b0 a1")
	f(true, "a6000 a4000 a1 ask", "1(a0 a1) 2(a2)")
	f(true, "a20000 b1 ask", "1(a0) 2(b0)")
	f(true, "a5 ask a5 ask a5 ask a5 ask a5 b5 ask 2: ask", "1(a0) 2(a1) 3(a2) 4(a3) 5(a4 b0)")
	// Batches of a partition leave in order, whatever is answered first; others do not wait for them.
	f(true, "a5 ask a5 b5 ask 2: 1:", "1(a0) 2(a1 b0) b0 a0 a1")
	f(true, "a5 ask a5 ask a5 ask 3: 2!timeout 1:", "1(a0) 2(a1) 3(a2) a0 a1 a2")
	// What holds no records is not asked about, and keeps its place.
	f(true, "a0 a5 a0 ask b0 1:", "a0 1(a1) b0 a1 a2")
	// Twins are noted before their batch leaves without them; those beside them do not wait, and nor does the next question.
	f(true, "a5 b5 ask 1:a0.1,a0.3 note 1;", "1(a0 b0) b0 1[a0:2] a0-1-3")
	f(true, "a5 b5 a5 ask 1:a0.1,b0.0 note 1;", "1(a0 b0 a1) 1[a0:1 b0:1] a0-1 a1 b0-0")
	f(true, "a5 ask 1:a0.1 note a5 b5 ask 2: 1;", "1(a0) 1[a0:1] 2(a1 b0) b0 a0-1 a1")
	f(false, "a5 b5 ask 1:a0.1,a0.3 note", "1(a0 b0) a0 b0")
	// What cannot be noted leaves whole; what cannot be answered too.
	f(true, "a5 b5 ask 1:a0.1 note 1;!", "1(a0 b0) b0 1[a0:1] a0")
	f(true, "a5 b5 ask 1!no_leader note", "1(a0 b0) a0 b0")
	// Bounds: five seconds for the answer, ten more for the note. An outcome that comes later changes nothing.
	f(true, "a5 ask +4s +1s 1:a0.1 note", "1(a0) a0")
	f(true, "a5 ask +4s 1:a0.1 note +9s +1s 1;", "1(a0) 1[a0:1] a0")
	f(true, "a5 ask +5s a5 ask 1:a0.1 2:a1.1 note 2;", "1(a0) a0 2(a1) 2[a1:1] a1-1")
	// Where every slot hangs, nothing waits for one.
	f(true, "a1 ask a1 ask a1 ask a1 ask a1 ask +5s a1 ask +0s 1: a1 ask 5:",
		"1(a0) 2(a1) 3(a2) 4(a3) a0 a1 a2 a3 a4 a5 5(a6) a6")
	f(true, "a1 b1 c1 d1 ask e1 ask 1: 2:", "1(a0 b0 c0 d0) 2(e0) a0 b0 c0 d0 e0")
	f(true, "a1 ask b1 ask c1 ask d1 ask 1:a0.0 2:b0.0 3:c0.0 4:d0.0 note e1 ask 5:e0.0 note +9s f1 ask 6:f0.0 +1s note",
		"1(a0) 2(b0) 3(c0) 4(d0) 1[a0:1] 2[b0:1] 3[c0:1] 4[d0:1] 5(e0) 6(f0) a0 b0 c0 d0 e0 f0")
	// A note that hangs opens the circuit: those beside it have two seconds, and what has twins passes at once, but for one probe after a pause.
	f(true, "a5 ask 1:a0.1 note +3s b5 ask 2:b0.1 note +7s +1s +1s",
		"1(a0) 1[a0:1] 2(b0) 2[b0:1] a0 b0")
	const hung = "a5 ask 1:a0.1 note +10s 1;! "
	f(true, hung+"b5 ask 2:b0.1 note c5 ask 3:c0.1 note", "1(a0) 1[a0:1] a0 2(b0) b0 3(c0) c0")
	f(true, hung+"+1s b5 ask 2:b0.1 note c5 ask 3:c0.1 note 2; d5 ask 4:d0.1 note 4;", "1(a0) 1[a0:1] a0 2(b0) 2[b0:1] 3(c0) c0 b0-1 4(d0) 4[d0:1] d0-1")
	f(true, hung+"+1s b5 ask 2:b0.1 note +1s +1s c5 ask 3:c0.1 note +1s c5 ask 4:c1.1 note +1s 2; c5 ask 5:c2.1 note 5;",
		"1(a0) 1[a0:1] a0 2(b0) 2[b0:1] b0 3(c0) c0 4(c1) c1 5(c2) 5[c2:1] c2-1")
	// A failure that comes at once opens nothing, and one of a probe shows that nothing hangs; a failure that comes late is as good as none.
	f(true, "a5 ask 1:a0.1 note +1s 1;! b5 ask 2:b0.1 note", "1(a0) 1[a0:1] a0 2(b0) 2[b0:1]")
	f(true, "a5 ask 1:a0.1 note +2s 1;! b5 ask 2:b0.1 note", "1(a0) 1[a0:1] a0 2(b0) b0")
	f(true, hung+"+1s b5 ask 2:b0.1 note 2;! c5 ask 3:c0.1 note", "1(a0) 1[a0:1] a0 2(b0) 2[b0:1] b0 3(c0) 3[c0:1]")
	// The end: all goes on whole.
	f(true, "a5 ask a5 ask 1:a0.1 note a5 b5 end 1; 2:", "1(a0) 2(a1) 1[a0:1] a0 a1 a2 b0")
	f(true, "a5 ask 1:a0.1 end note", "1(a0) a0")
}

func TestStageCounts(t *testing.T) {
	s := newStage(true)
	m := &minutes{stage: s, now: time.Unix(0, 0), names: map[*staged]string{}, puts: map[string]int{}}
	const script = "a5 b4 ask 1:a0.1,a0.2 note 1;  a7 b3 ask 2:a1.0 note 2;!  a2 ask 3!circuit  a1 ask +5s  a9 ask 5:a4.1,a4.5 note +10s +1s  a8 ask 6:a5.3 note a6 end"
	for step := range strings.FieldsSeq(script) {
		m.step(t, step)
	}
	got := fmt.Sprint(s.counts.Duplicates, s.counts.Dropped, s.counts.Checked, s.counts.Unavailable)
	if want := "6 2 4 map[circuit:2 stopped:7 timeout:1 trail:3]"; got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
}

// TestStageModel plays what dice say, hangs included, and holds it against what must be: every batch leaves once, those of a partition in
// order, without rows only what was noted, whole only what had none or is counted, and all within the bounds.
func TestStageModel(t *testing.T) {
	for seed := range uint64(60) {
		newDiced(t, seed).play()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type diced struct {
	*testing.T
	*minutes
	dice    *rand.Rand
	asked   []*group // under way
	writing []*group
	twins   map[*staged][]int // by an answer that came in time
	notes   map[*staged]bool  // durable
	order   map[record.Partition][]*staged
	since   map[*staged]time.Time
	whole   int64 // records that left whole though they had twins or no answer
	clean   map[*staged]bool
}

func newDiced(t *testing.T, seed uint64) *diced {
	m := &minutes{stage: newStage(seed%4 > 0), now: time.Unix(0, 0), names: map[*staged]string{}, puts: map[string]int{}}
	return &diced{T: t, minutes: m, dice: rand.New(rand.NewPCG(seed, 3)), twins: map[*staged][]int{}, notes: map[*staged]bool{},
		order: map[record.Partition][]*staged{}, since: map[*staged]time.Time{}, clean: map[*staged]bool{}}
}

func (d *diced) play() {
	deaf := d.dice.IntN(100) // of a hundred outcomes never come
	for range 300 {
		switch n := d.dice.IntN(10); {
		case n < 4:
			b := d.store(string(rune('a'+d.dice.IntN(3))), d.dice.IntN(4)*d.dice.IntN(1200))
			p := b.offered.Batch.Partition
			d.order[p] = append(d.order[p], b)
			d.since[b] = d.now
		case n < 6 && len(d.asked) > 0 && d.dice.IntN(100) >= deaf/2:
			d.answer(take(&d.asked, d.dice))
		case n < 8 && len(d.writing) > 0 && d.dice.IntN(100) >= deaf/2:
			d.settleNote(take(&d.writing, d.dice))
		default:
			d.now = d.now.Add(time.Duration(d.dice.IntN(1500)) * time.Millisecond)
		}
		d.work()
	}
	d.now = d.now.Add(askBound + noteBound)
	d.work()
	d.now = d.now.Add(askBound + noteBound)
	d.work()
	if !d.empty() || d.bytes != 0 || len(d.waiting) > 0 || len(d.answers) > 0 {
		d.Errorf("%d bytes are left", d.bytes)
	}
	counted := int64(0)
	for _, n := range d.counts.Unavailable {
		counted += n
	}
	if counted != d.whole {
		d.Errorf("%d records are counted as unscreened, %d were", counted, d.whole)
	}
}

func take(from *[]*group, dice *rand.Rand) *group {
	i := dice.IntN(len(*from))
	g := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return g
}

// work does what the controller does after every event.
func (d *diced) work() {
	d.expire(d.now)
	for g := d.ask(d.now); g != nil; g = d.ask(d.now) {
		d.asked = append(d.asked, g)
	}
	for g := d.note(d.now); g != nil; g = d.note(d.now) {
		d.writing = append(d.writing, g)
	}
	for _, b := range d.leave() {
		d.left(b)
	}
	if at, ok := d.wake(); ok && !at.After(d.now) {
		d.Errorf("it wants to be woken at %v, and it is %v", at, d.now)
	}
	if len(d.asking.under) > groups || len(d.noting.under) > groups {
		d.Error("more is under way than there are slots")
	}
}

func (d *diced) answer(g *group) {
	over, v := g.over, content.Verdict{}
	if d.dice.IntN(4) == 0 {
		d.answered(g, v, errors.New("x"), d.now)
		return
	}
	for n, b := range g.batches {
		d.clean[b] = d.clean[b] || !over
		for i := range b.offered.Batch.Records {
			if d.dice.IntN(2000) == 0 {
				v.Twins = append(v.Twins, content.Twin{Batch: n, Record: i})
				if !over && d.drop {
					d.twins[b] = append(d.twins[b], i)
					d.clean[b] = false
				}
			}
		}
	}
	d.answered(g, v, nil, d.now)
}

func (d *diced) settleNote(g *group) {
	if d.dice.IntN(4) == 0 {
		d.noted(g, errors.New("x"), d.now)
		return
	}
	if !g.over {
		for _, w := range g.twins {
			d.notes[w.of] = true
		}
	}
	d.noted(g, nil, d.now)
}

func (d *diced) left(b *staged) {
	p := b.offered.Batch.Partition
	if len(d.order[p]) == 0 || d.order[p][0] != b {
		d.Fatalf("%s leaves out of order, or twice", d.names[b])
	}
	d.order[p] = d.order[p][1:]
	dropped := b.offered.dropped
	switch n := int64(len(b.offered.Batch.Records)); {
	case len(dropped) > 0 && !(d.notes[b] && slices.Equal(dropped, d.twins[b])):
		d.Errorf("%s leaves without %v, noted %v, twins %v", d.names[b], dropped, d.notes[b], d.twins[b])
	case len(dropped) == 0 && d.notes[b]:
		d.Errorf("%s leaves whole though its twins were noted in time", d.names[b])
	case len(dropped) == 0 && len(d.twins[b]) > 0:
		d.whole += int64(len(d.twins[b])) // the others were compared
	case len(dropped) == 0 && !d.clean[b]:
		d.whole += n
	}
}

func TestStageIsNotThere(t *testing.T) {
	var s *stage
	if _, ok := s.wake(); ok || !s.empty() || s.holding() != 0 {
		t.Error("a stage that is not there has something")
	}
	if c := newController(Options{}, new(crew)); c.dedup() != nil {
		t.Error("it is counted")
	}
}
