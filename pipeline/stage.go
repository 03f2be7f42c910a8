package pipeline

import (
	"slices"
	"time"

	"github.com/stream-arrow/twgd/pipeline/content"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
)

// stage is what lies between the gate and the lanes of a stream with screening. It decides and never waits: the controller, which owns it,
// tells it the time and how questions ended.
//
// Batches are asked about in the order they were stored, in groups over all partitions. As many groups as there are slots are under way, and a
// group is made of whatever waits when a slot is free: a stream with little to do is never delayed, and one with much asks in large groups.
// Answers come in any order, but the batches of a partition leave in the order they came, since the files of sinks with cuts hold offsets that
// follow each other. In what order partitions leave does not matter.
//
// Nothing here can hang. What is asked or noted is given up once its bound has passed, and where every slot is taken by something that does
// not even end when it is told to, nothing waits for a slot any more. What is given up leaves whole. Claims keep off by themselves what does not
// answer; for notes there is a circuit here, so that raw's store, where it takes segments and hangs on notes, does not hold up the lanes again
// and again: while it is open what has twins leaves whole at once, but for a probe at a time, whose bound is short.
//
// Invariants: a batch leaves once. Without rows it leaves only after its note is durable, else whole. bytes is what all that has not left
// has taken of the budget.
type stage struct {
	drop    bool
	waiting []*staged                      // not asked about yet
	lines   map[record.Partition][]*staged // all that has not left, in the order it came
	asking  desk
	noting  desk
	circuit flow.Circuit // of notes
	answers []*group     // whose twins are to be noted, without a slot yet
	ready   []*staged    // may leave
	bytes   int64
	counts  DedupStatus
}

// staged is a batch in the stage.
type staged struct {
	offered *Offered
	taken   int64 // bytes of the budget
	settled bool  // it may leave once those before it have
}

// group is batches that are asked about together.
type group struct {
	batches []*staged
	bound   time.Time // when its batches go on without the outcome
	twins   []twins   // what is being noted
	begun   time.Time // when that was begun
	probe   bool      // it is to find out whether notes are taken again
	over    bool      // they have gone on
}

// twins are the records of one batch that are to be dropped.
type twins struct {
	of      *staged
	indices []int // ascending
	noted   duplicates.Noted
}

// desk is groups of which one thing is being asked.
type desk struct {
	slots int
	under []*group // in the order they were begun
}

const (
	groupRecords = 10_000           // of a group, unless one batch has more: about what one entry of the replicated log takes
	groups       = 4                // asked about at a time, and as many noted
	askBound     = 5 * time.Second  // far above what a claim waits by itself
	noteBound    = 10 * time.Second // from the answer on
	probeBound   = 2 * time.Second  // of a note while the circuit is open; a failure that takes longer is one that hung
	firstPause   = time.Second      // of the circuit
	longestPause = 10 * time.Second
)

// Reasons of the stage's own why a batch leaves whole.
const (
	unscreenedTimeout = "timeout" // no answer within the bound
	unscreenedTrail   = "trail"   // what would be dropped could not be made durable
	unscreenedStopped = "stopped" // the process ends
)

func newStage(drop bool) *stage {
	return &stage{drop: drop, lines: map[record.Partition][]*staged{}, asking: desk{slots: groups}, noting: desk{slots: groups},
		circuit: flow.Circuit{First: firstPause, Longest: longestPause},
		counts:  DedupStatus{Unavailable: map[string]int64{}, Unkeyed: map[string]int64{}}}
}

// put takes a batch that was stored. Where there is nothing to ask about, it leaves behind those before it.
func (s *stage) put(o *Offered, taken int64) {
	b := &staged{offered: o, taken: taken}
	s.lines[o.Batch.Partition] = append(s.lines[o.Batch.Partition], b)
	s.bytes += taken
	if len(o.Batch.Records) == 0 {
		s.settle(b)
		return
	}
	s.waiting = append(s.waiting, b)
}

// settle lets a batch leave, and those behind it that only waited for it.
func (s *stage) settle(b *staged) {
	b.settled = true
	p := b.offered.Batch.Partition
	line := s.lines[p]
	n := 0
	for n < len(line) && line[n].settled {
		s.ready = append(s.ready, line[n])
		s.bytes -= line[n].taken
		line[n] = nil
		n++
	}
	if s.lines[p] = line[n:]; n == len(line) {
		delete(s.lines, p)
	}
}

// leave takes out what may leave.
func (s *stage) leave() []*staged {
	out := s.ready
	s.ready = nil
	return out
}

// holding is how many bytes of the budget the stage has.
func (s *stage) holding() int64 {
	if s == nil {
		return 0
	}
	return s.bytes
}

func (s *stage) empty() bool { return s == nil || len(s.lines) == 0 && len(s.ready) == 0 }

// holds reports whether anything of p has not left.
func (s *stage) holds(p record.Partition) bool { return len(s.lines[p]) > 0 }

// ask makes the next group to ask about; nil where nothing waits or no slot is free.
func (s *stage) ask(now time.Time) *group {
	if len(s.waiting) == 0 || s.asking.full() {
		return nil
	}
	n, records := 0, 0
	for n < len(s.waiting) {
		records += len(s.waiting[n].offered.Batch.Records)
		if n > 0 && records > groupRecords {
			break
		}
		n++
	}
	g := &group{batches: slices.Clone(s.waiting[:n]), bound: now.Add(askBound)}
	clear(s.waiting[:n])
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	s.asking.begin(g)
	return g
}

// answered takes what is known of a group, or that nothing is. What has no twins, or is only measured, may leave.
func (s *stage) answered(g *group, v content.Verdict, err error, now time.Time) {
	s.asking.end(g)
	switch {
	case g.over:
		return
	case err != nil:
		s.pass(g, content.Reason(err))
		return
	}
	s.count(v)
	if s.drop {
		g.twins = twinsOf(g, v.Twins)
	}
	waits := map[*staged]bool{}
	for _, t := range g.twins {
		waits[t.of] = true
	}
	for _, b := range g.batches {
		if !waits[b] {
			s.settle(b)
		}
	}
	if len(g.twins) > 0 {
		g.bound = now.Add(noteBound)
		s.answers = append(s.answers, g)
	}
}

func (s *stage) count(v content.Verdict) {
	s.counts.Checked += v.Checked
	s.counts.Duplicates += int64(len(v.Twins))
	for reason, n := range v.Unkeyed {
		s.counts.Unkeyed[reason] += n
	}
}

// twinsOf gathers the twins of each batch.
func twinsOf(g *group, all []content.Twin) (out []twins) {
	for _, t := range all {
		b := g.batches[t.Batch]
		if n := len(out); n == 0 || out[n-1].of != b {
			batch := b.offered.Batch
			out = append(out, twins{of: b, noted: duplicates.Noted{Partition: batch.Partition, Span: span(batch)}})
		}
		last := &out[len(out)-1]
		last.indices = append(last.indices, t.Record)
		last.noted.Dropped = append(last.noted.Dropped,
			duplicates.Dropped{Offset: b.offered.Batch.Records[t.Record].Offset, ID: b.offered.IDs()[t.Record], Stands: t.Stands})
	}
	return out
}

// note is the next group whose twins are to be made durable; nil where there is none or no slot is free. While the circuit is open groups
// wait for nothing.
func (s *stage) note(now time.Time) *group {
	for len(s.answers) > 0 {
		full := s.noting.full()
		if full && s.circuit.Closed() {
			return nil
		}
		g := s.answers[0]
		s.answers = slices.Delete(s.answers, 0, 1)
		if !s.circuit.Closed() {
			if full || !s.circuit.Probe(now) {
				s.pass(g, unscreenedTrail)
				continue
			}
			g.probe, g.bound = true, now.Add(probeBound)
		}
		g.begun = now
		s.noting.begin(g)
		return g
	}
	return nil
}

// noted takes how it ended. Only what is durable is left out.
func (s *stage) noted(g *group, err error, now time.Time) {
	s.noting.end(g)
	if g.over {
		return
	}
	if err != nil && !now.Before(g.begun.Add(probeBound)) {
		s.hung(g, now)
	} else {
		s.circuit.Answered(g.probe)
	}
	switch {
	case err != nil:
		s.pass(g, unscreenedTrail)
		return
	}
	for _, t := range g.twins {
		t.of.offered.dropped = t.indices
		s.counts.Dropped += int64(len(t.indices))
		s.settle(t.of)
	}
}

// hung takes that a note got no answer in time. When that opens the circuit, the notes under way have no more time than a probe.
func (s *stage) hung(g *group, now time.Time) {
	if !s.circuit.Hung(now, g.probe) {
		return
	}
	for _, other := range s.noting.under {
		if short := now.Add(probeBound); short.Before(other.bound) {
			other.bound = short
		}
	}
}

// pass lets what is left of a group leave whole. Once it is answered only twins pass that should not have: the others were compared, so that
// they count as unavailable no more than those that leave without a note.
func (s *stage) pass(g *group, reason string) {
	g.over = true
	for _, t := range g.twins {
		s.passOne(t.of, len(t.indices), reason)
	}
	for _, b := range g.batches {
		s.passOne(b, len(b.offered.Batch.Records), reason)
	}
}

// passOne lets a batch leave whole unless it may leave already, and counts those of its records that nobody could tell or note.
func (s *stage) passOne(b *staged, records int, reason string) {
	if !b.settled {
		s.counts.Unavailable[reason] += int64(records)
		s.settle(b)
	}
}

// expire lets go of what has waited for its bound, and of everything that waits for slots which are all taken by what hangs.
func (s *stage) expire(now time.Time) {
	s.asking.expire(now, func(g *group) { s.pass(g, unscreenedTimeout) })
	s.noting.expire(now, func(g *group) { s.pass(g, unscreenedTrail); s.hung(g, now) })
	if s.asking.stuck() {
		s.passWaiting(unscreenedTimeout)
	}
	s.answers = slices.DeleteFunc(s.answers, func(g *group) bool {
		gone := !now.Before(g.bound)
		if gone {
			s.pass(g, unscreenedTrail)
		}
		return gone
	})
}

func (s *stage) passWaiting(reason string) {
	for _, b := range s.waiting {
		s.passOne(b, len(b.offered.Batch.Records), reason)
	}
	s.waiting = nil
}

// end lets everything leave whole, whatever is under way.
func (s *stage) end() {
	for _, d := range []desk{s.asking, s.noting} {
		for _, g := range d.under {
			s.pass(g, unscreenedStopped)
		}
	}
	for _, g := range s.answers {
		s.pass(g, unscreenedStopped)
	}
	s.answers = nil
	s.passWaiting(unscreenedStopped)
}

// wake is when expire has something to do though nothing happens; ok is false where nothing is under way.
func (s *stage) wake() (at time.Time, ok bool) {
	if s == nil {
		return at, false
	}
	sooner := func(g *group) {
		if !g.over && (!ok || g.bound.Before(at)) {
			at, ok = g.bound, true
		}
	}
	for _, d := range []desk{s.asking, s.noting} {
		for _, g := range d.under {
			sooner(g)
		}
	}
	for _, g := range s.answers {
		sooner(g)
	}
	return at, ok
}

func (d *desk) begin(g *group) { d.under = append(d.under, g) }

func (d *desk) end(g *group) {
	d.under = slices.DeleteFunc(d.under, func(other *group) bool { return other == g })
}

func (d *desk) full() bool { return len(d.under) >= d.slots }

// stuck reports whether every slot is taken by what should have ended.
func (d *desk) stuck() bool {
	return d.full() && !slices.ContainsFunc(d.under, func(g *group) bool { return !g.over })
}

func (d *desk) expire(now time.Time, pass func(*group)) {
	for _, g := range d.under {
		if !g.over && !now.Before(g.bound) {
			pass(g)
		}
	}
}
