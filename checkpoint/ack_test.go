package checkpoint

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

type step struct {
	kind   byte // 'b' begin, 'r' resolve, 'a' assign anew
	batch  int
	parts  int    // of begin
	status Status // of resolve
}

func (s step) String() string {
	switch s.kind {
	case 'b':
		return fmt.Sprintf("begin %d in %d parts", s.batch, s.parts)
	case 'r':
		return fmt.Sprintf("%d %v", s.batch, s.status)
	}
	return "assign anew"
}

// histories calls visit with every complete interleaving: batches begin in order; every part of each is resolved, durable or
// failed, at any time after; where reassign is true, the partition is assigned anew at any time, after which batches that began
// before are resolved late. At most splits batches have two parts.
func histories(batches, splits int, reassign bool, visit func([]step)) {
	left := make([]int, batches) // parts still to be resolved
	var steps []step
	var next func(begun, open, splits int, reassign bool)
	next = func(begun, open, splits int, reassign bool) {
		try := func(s step, then func()) {
			steps = append(steps, s)
			then()
			steps = steps[:len(steps)-1]
		}
		if begun == batches && open == 0 {
			visit(steps)
		}
		if begun < batches {
			for parts := 1; parts <= 1+min(1, splits); parts++ {
				try(step{kind: 'b', batch: begun, parts: parts}, func() {
					left[begun] = parts
					next(begun+1, open+parts, splits-(parts-1), reassign)
					left[begun] = 0
				})
			}
		}
		for i := range begun {
			for _, st := range []Status{Durable, Failed} {
				if left[i] > 0 {
					try(step{kind: 'r', batch: i, status: st}, func() {
						left[i]--
						next(begun, open-1, splits, reassign)
						left[i]++
					})
				}
			}
		}
		if reassign && begun > 0 {
			try(step{kind: 'a'}, func() { next(begun, open, splits, false) })
		}
	}
	next(0, 0, splits, reassign)
}

const walked = "orders/0"

// opinion is what is true after some steps, computed from the beginning each time.
type opinion struct {
	position int64
	oldest   int // the batch that holds the position back, -1 where none does
	failed   bool
}

const first = 100

// judge replays the steps of the last assignment only.
func judge(steps []step) opinion {
	o := opinion{position: first, oldest: -1}
	for n, s := range steps {
		if s.kind == 'a' { // what was durable by then is where the new one begins; what was open is void
			before := judge(steps[:n])
			return judgeFrom(before.position, steps[n+1:])
		}
	}
	return judgeFrom(o.position, steps)
}

func judgeFrom(position int64, steps []step) opinion {
	type state struct {
		end, left int
		worst     Status
	}
	var order []int
	batches := map[int]*state{}
	end := int(position)
	for _, s := range steps {
		b := batches[s.batch]
		switch {
		case s.kind == 'b':
			end += size(s.batch)
			batches[s.batch] = &state{end: end, left: s.parts}
			order = append(order, s.batch)
		case b != nil: // else it began under an earlier assignment
			b.left--
			b.worst = max(b.worst, s.status)
		}
	}
	o := opinion{position: position, oldest: -1}
	for _, i := range order {
		b := batches[i]
		if b.left > 0 || b.worst == Failed {
			o.oldest, o.failed = i, b.left == 0
			return o
		}
		o.position = int64(b.end)
	}
	return o
}

// size of a batch in offsets: each another one, so that a position tells which have been passed.
func size(batch int) int { return 1 << batch }

var epoch0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// play walks one interleaving of up to four batches, some stored in two parts, with success and failure, an assignment anew in
// between and acks that come late, and compares what the package says after each step with a second opinion that is computed from
// the whole history.
func play(t *testing.T, steps []step) {
	c := NewCheckpointer[string]()
	tracker := c.Assign(walked, 1, first)
	epoch, last := uint64(1), int64(-1)
	acks := map[int]*Ack{}
	began := map[int]time.Time{}
	now := epoch0
	var old *Tracker // of the assignment that is over, and where it stood
	var frozen int64
	fail := func(n int, format string, args ...any) {
		var all []string
		for _, s := range steps[:n+1] {
			all = append(all, s.String())
		}
		t.Fatalf("%s: %s", strings.Join(all, ", "), fmt.Sprintf(format, args...))
	}
	for n, s := range steps {
		now = now.Add(time.Second)
		switch s.kind {
		case 'b':
			a := tracker.Begin(Span{tracker.End(), tracker.End() + int64(size(s.batch))}, now)
			if s.parts > 1 {
				a.Split(s.parts - 1)
			}
			acks[s.batch], began[s.batch] = a, now
		case 'r':
			acks[s.batch].Resolve(s.status)
		case 'a':
			old, frozen = tracker, tracker.Position()
			epoch++
			tracker = c.Assign(walked, epoch, tracker.Position())
			if c.Tracker(walked, epoch-1) != nil || c.Tracker(walked, epoch) != tracker || old == tracker {
				fail(n, "the old assignment is not over")
			}
		}
		if old != nil && old.Position() != frozen {
			fail(n, "a late ack moved the position of an assignment that is over to %d", old.Position())
		}
		want := judge(steps[:n+1])
		if got := tracker.Position(); got != want.position {
			fail(n, "the position is %d, want %d", got, want.position)
		}
		if tracker.Failed() != want.failed {
			fail(n, "failed is %v, want %v", tracker.Failed(), want.failed)
		}
		k, age, stalled := c.Stalled(now)
		if stalled != (want.oldest >= 0) || stalled && (k != walked || age != now.Sub(began[want.oldest])) {
			fail(n, "stalled is %v since %v, want batch %d", stalled, age, want.oldest)
		}
		due, ok := c.Due()[walked]
		if ok != (want.position > last) || ok && due != want.position {
			fail(n, "due is %d, %v; committed %d, position %d", due, ok, last, want.position)
		}
		if ok && n%2 == 0 { // commits lag
			c.Committed(walked, due)
			last = due
		}
		if got, ok := c.LastCommitted(walked); ok != (last >= 0) || ok && got != last {
			fail(n, "committed is %d, want %d", got, last)
		}
	}
	for i, a := range acks {
		for _, st := range []Status{Durable, Failed} {
			if before := tracker.Position(); !panicked(func() { a.Resolve(st) }) || tracker.Position() != before {
				fail(len(steps)-1, "batch %d was resolved once more without a panic", i)
			}
		}
		if !panicked(func() { a.Split(1) }) {
			fail(len(steps)-1, "batch %d was split after its end without a panic", i)
		}
	}
}

func panicked(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

func TestEveryInterleaving(t *testing.T) {
	n := 0
	for batches := 1; batches <= 4; batches++ {
		for _, reassign := range []bool{false, true} {
			splits := 2
			if batches == 4 && reassign {
				splits = 0
			} else if batches == 4 {
				splits = 1
			}
			histories(batches, splits, reassign, func(steps []step) {
				n++
				play(t, steps)
			})
		}
	}
	t.Logf("%d interleavings", n)
	if n < 100_000 {
		t.Errorf("only %d interleavings", n)
	}
}

func TestBatchesMustFollow(t *testing.T) {
	f := func(s Span) {
		t.Helper()
		tr := NewTracker(10)
		tr.Begin(Span{10, 20}, epoch0)
		if !panicked(func() { tr.Begin(s, epoch0) }) {
			t.Errorf("%v follows 20", s)
		}
		if tr.End() != 20 {
			t.Error(tr.End())
		}
	}
	f(Span{21, 30})
	f(Span{19, 30})
	f(Span{20, 20})
	f(Span{20, 10})
}

func TestCommittedNeverGoesBack(t *testing.T) {
	c := NewCheckpointer[int]()
	f := func(position int64, want int64) {
		t.Helper()
		c.Committed(1, position)
		if got, ok := c.LastCommitted(1); !ok || got != want {
			t.Errorf("committed %d: %d, want %d", position, got, want)
		}
	}
	f(50, 50)
	f(40, 50)
	f(60, 60)
	c.Assign(1, 7, 20) // assigned again further back: nothing is due until it has caught up
	if due := c.Due(); len(due) != 0 {
		t.Error(due)
	}
	c.Forget(1) // an operator's reset
	if due := c.Due(); due[1] != 20 {
		t.Error(due)
	}
	c.Revoke(1)
	c.Revoke(1)
	if due := c.Due(); len(due) != 0 || c.Tracker(1, 7) != nil {
		t.Error("a partition that is not assigned is due:", due)
	}
}

func TestStalledIsTheOldest(t *testing.T) {
	c := NewCheckpointer[int]()
	for k := range 5 {
		c.Assign(k, 1, 0).Begin(Span{0, 1}, epoch0.Add(time.Duration(5-k%4)*time.Second))
	}
	if k, age, ok := c.Stalled(epoch0.Add(time.Minute)); !ok || k != 3 || age != 58*time.Second {
		t.Error(k, age, ok)
	}
}
