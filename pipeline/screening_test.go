package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/content"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// judge takes every record whose offset ends with 1 for a twin, unless a test has it do something else first.
type judge struct {
	mu     sync.Mutex
	before func(context.Context) error
	notes  func(context.Context) error
	noted  map[record.Partition][]int64
	begun  []string
}

func (j *judge) Screen(ctx context.Context, batches []content.Batch) (content.Verdict, error) {
	j.mu.Lock()
	before := j.before
	j.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return content.Verdict{}, err
		}
	}
	v := content.Verdict{Unkeyed: map[string]int64{content.NullValue: 1}}
	for n, b := range batches {
		v.Checked += int64(len(b.Records))
		for i := range b.Records {
			if err := pipetest.Check(&b.Records[i]); err != nil {
				panic(err)
			}
			if b.Records[i].Offset%10 == 1 {
				v.Twins = append(v.Twins, content.Twin{Batch: n, Record: i, Stands: [8]byte{9}})
			}
		}
	}
	return v, nil
}

func (j *judge) note(ctx context.Context, all []duplicates.Noted) error {
	j.mu.Lock()
	notes := j.notes
	j.mu.Unlock()
	if notes != nil {
		if err := notes(ctx); err != nil {
			return err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.noted == nil {
		j.noted = map[record.Partition][]int64{}
	}
	for _, n := range all {
		for _, d := range n.Dropped {
			if d.Offset < n.Span.From || d.Offset >= n.Span.To || d.Stands != [8]byte{9} || d.ID == (record.ID{}) {
				panic(fmt.Sprintf("%+v of %v", d, n.Span))
			}
			j.noted[n.Partition] = append(j.noted[n.Partition], d.Offset)
		}
	}
	return nil
}

func (j *judge) set(before, notes func(context.Context) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.before, j.notes = before, notes
}

func (j *judge) begin(p record.Partition) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.begun = append(j.begun, fmt.Sprintf("%s after %d notes", p.Topic, len(j.noted[p])))
}

func (j *judge) of(p record.Partition) []int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(slices.Values(j.noted[p]))
}

// What a step may do.
func slow(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { return sleep(ctx, d) }
}

func failing(reason string) func(context.Context) error {
	return func(context.Context) error { return &content.Unavailable{Reason: reason, Err: errors.New("x")} }
}

func hanging(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// screened runs f in a house with a lane and a judge, in drop mode.
func screened(t *testing.T, files bool, lo pipeline.LaneOptions, opt pipeline.Options, f func(*house, *judge)) {
	t.Helper()
	j := &judge{}
	opt.Screening = &pipeline.Screening{Contents: j, Drop: true, Begin: j.begin, Note: j.note}
	withLane(t, files, lo, opt, func(h *house) { f(h, j) })
}

// lacks checks which offsets of [0, next) are missing in the destination.
func (h *house) lacks(p record.Partition, next int64, want ...int64) {
	h.Helper()
	synctest.Wait()
	have := h.table.Rows(p)
	var lacks []int64
	for o := range next {
		if have[o] > 1 {
			h.Errorf("offset %d is there %d times", o, have[o])
		}
		if have[o] == 0 && pipetest.Present(o) {
			lacks = append(lacks, o)
		}
	}
	if !slices.Equal(lacks, want) {
		h.Errorf("the sink lacks %v, want %v", lacks, want)
	}
}

func (h *house) dedup(want string) {
	h.Helper()
	d := h.status().Dedup
	got := fmt.Sprint(d.Checked, d.Duplicates, d.Dropped)
	for _, reason := range slices.Sorted(maps.Keys(d.Unavailable)) {
		got += fmt.Sprintf(" %s:%d", reason, d.Unavailable[reason])
	}
	if got != want {
		h.Errorf("counted %q, want %q", got, want)
	}
}

func TestDuplicatesDoNotReachTheSink(t *testing.T) {
	for _, files := range []bool{false, true} {
		metrics := pipeline.NewMetrics(prometheus.NewRegistry())
		screened(t, files, pipeline.LaneOptions{}, pipeline.Options{Metrics: metrics}, func(h *house, j *judge) {
			e, f := h.assign(orders), h.assign(bills)
			h.src.Poll(orders, e, 0, 20)
			h.src.Poll(bills, f, 0, 2)
			h.src.Poll(orders, e, 20, 50)
			time.Sleep(2 * time.Second)
			h.stored(orders, 50)
			h.lacks(orders, 50, 1, 11, 21, 41) // 31 is a hole of the log
			h.lacks(bills, 2, 1)
			if got := j.of(orders); !slices.Equal(got, []int64{1, 11, 21, 41}) || !slices.Equal(j.of(bills), []int64{1}) {
				t.Errorf("noted %v", got)
			}
			h.covers(orders, 50)
			h.dedup("45 5 5")
		})
	}
}

// covers checks that the lane knows all of [0, next) to be in the sink.
func (h *house) covers(p record.Partition, next int64) {
	h.Helper()
	set, _ := h.lane.Coverage(p)
	if !set.Covers(checkpoint.Span{From: 0, To: next}) {
		h.Errorf("%v is covered, want all below %d", set, next)
	}
}

// Each assignment is told before anything of it is noted.
func TestAssignmentsAreTold(t *testing.T) {
	screened(t, false, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house, j *judge) {
		h.src.Poll(orders, h.assign(orders), 0, 20)
		time.Sleep(2 * time.Second)
		h.src.Revoke(false, orders)
		time.Sleep(time.Minute)
		h.assign(bills)
		h.src.Poll(orders, h.assign(orders), 20, 30)
		time.Sleep(2 * time.Second)
		want := fmt.Sprintf("[%[1]s after 0 notes %[2]s after 0 notes %[1]s after 2 notes]", orders.Topic, bills.Topic)
		if got := fmt.Sprint(j.begun); got != want || len(j.of(orders)) != 3 {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

func TestMeasuringDropsNothing(t *testing.T) {
	j := &judge{}
	opt := pipeline.Options{Screening: &pipeline.Screening{Contents: j}}
	withLane(t, false, pipeline.LaneOptions{}, opt, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 20)
		time.Sleep(2 * time.Second)
		h.lacks(orders, 20)
		h.dedup("17 2 0")
	})
	inHouse(t, opt, func(h *house) { // a stream without sinks
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 20)
		time.Sleep(2 * time.Second)
		h.dedup("17 2 0")
	})
}

func TestDedupMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	screened(t, false, pipeline.LaneOptions{}, pipeline.Options{Metrics: pipeline.NewMetrics(reg)}, func(h *house, j *judge) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 20)
		time.Sleep(2 * time.Second)
		j.set(failing("circuit"), nil)
		h.src.Poll(orders, e, 20, 30)
		time.Sleep(2 * time.Second)
		h.src.Poll(orders, e, 30, 32)
		time.Sleep(2 * time.Second)
		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if strings.HasPrefix(f.GetName(), "twg_dedup_") && f.GetName() != "twg_dedup_screen_seconds" {
					got[strings.TrimSuffix(f.GetName()+"/"+m.GetLabel()[0].GetValue(), "/s")] = m.GetCounter().GetValue()
				}
			}
		}
		want := map[string]float64{"twg_dedup_checked_total": 17, "twg_dedup_duplicates_total": 2, "twg_dedup_unkeyed_total/null_value": 1,
			"twg_dedup_unavailable_total/circuit": 10}
		for _, reason := range []string{"key", "no_leader", "refused", "timeout", "trail"} {
			want["twg_dedup_unavailable_total/"+reason] = 0
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// Claims that are slow hold up neither the position nor anything else of the gate, and what they hold is no gap.
func TestSlowClaimsHoldUpNobody(t *testing.T) {
	screened(t, false, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house, j *judge) {
		j.set(slow(4*time.Second), nil)
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 20)
		time.Sleep(3 * time.Second)
		h.stored(orders, 20)
		h.committed(orders, 20)
		if n := len(h.table.Rows(orders)); n > 0 {
			t.Errorf("%d rows are written before there is an answer", n)
		}
		gaps, ok := h.lane.Gaps(orders, checkpoint.Span{From: 0, To: 20})
		if !ok || len(gaps) > 0 {
			t.Errorf("gaps %v, %v: recovery would write what is being screened", gaps, ok)
		}
		if st := h.status(); st.Dedup.Waiting == 0 || st.Dedup.Waiting != st.InFlight {
			t.Errorf("%d bytes wait, %d are in flight", st.Dedup.Waiting, st.InFlight)
		}
		time.Sleep(2 * time.Second)
		h.lacks(orders, 20, 1, 11)
	})
}

func TestWithoutAnAnswerRecordsPass(t *testing.T) {
	f := func(before, notes func(context.Context) error, after time.Duration, want string) {
		t.Helper()
		screened(t, true, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house, j *judge) {
			j.set(before, notes)
			e := h.assign(orders)
			h.src.Poll(orders, e, 0, 20)
			time.Sleep(after + 1500*time.Millisecond)
			h.lacks(orders, 20)
			h.dedup(want)
			j.set(nil, nil)
			h.src.Poll(orders, e, 20, 50)
			time.Sleep(2 * time.Second)
			h.lacks(orders, 50, 21, 41)
			h.covers(orders, 50)
		})
	}
	f(failing("no_leader"), nil, 0, "0 0 0 no_leader:17")
	f(hanging, nil, 5*time.Second, "0 0 0 timeout:17")
	f(nil, failing("x"), 0, "17 2 0 trail:2")
	f(nil, hanging, 10*time.Second, "17 2 0 trail:2")
}

// Notes that hang, while raw takes segments, cost the lanes one long wait and short ones between pauses, and are made again when they are taken.
func TestNotesThatHangAreNotWaitedForAgainAndAgain(t *testing.T) {
	screened(t, true, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house, j *judge) {
		j.set(nil, hanging)
		e, next := h.assign(orders), int64(0)
		poll := func() {
			h.src.Poll(orders, e, next, next+10)
			next += 10
			time.Sleep(time.Second)
		}
		for range 13 {
			poll()
		}
		for range 60 {
			poll()
			synctest.Wait()
			set, _ := h.lane.Coverage(orders)
			if behind := next - set.ContiguousFrom(0); behind > 30 {
				t.Errorf("after %d records %d wait", next, behind)
			}
		}
		hung := next
		j.set(nil, nil)
		for range 15 {
			poll()
		}
		time.Sleep(5 * time.Second)
		h.covers(orders, next)
		d := h.status().Dedup
		if lost := d.Duplicates - d.Dropped; d.Unavailable["trail"] != lost || d.Dropped < 4 || int64(len(j.of(orders))) != d.Dropped {
			t.Errorf("%+v, %d were noted", d, len(j.of(orders)))
		}
		if dropped := j.of(orders); len(dropped) == 0 || dropped[0] < hung-40 || dropped[len(dropped)-1] < next-20 {
			t.Errorf("of %d records, %d while notes hung, %v are dropped", next, hung, dropped)
		}
	})
}

// Whoever ignores his context is not waited for either.
func TestTheDeafAreNotWaitedFor(t *testing.T) {
	let := make(chan struct{})
	deaf := func(context.Context) error { <-let; return nil }
	f := func(before, notes func(context.Context) error, after time.Duration) {
		t.Helper()
		screened(t, false, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house, j *judge) {
			stop := make(chan struct{})
			let = stop
			j.set(before, notes)
			e := h.assign(orders)
			next := int64(0)
			for range 6 { // more than there are slots
				h.src.Poll(orders, e, next, next+10)
				next += 10
				time.Sleep(time.Second)
			}
			time.Sleep(after)
			h.lacks(orders, next)
			close(stop)
			j.set(nil, nil)
			h.src.Poll(orders, e, next, next+10)
			time.Sleep(2 * time.Second)
			h.lacks(orders, next+10, next+1)
		})
	}
	f(deaf, nil, 5*time.Second)
	f(nil, deaf, 11*time.Second)
}

// A partition is let go without waiting for claims, and what was stored of it is screened and offered all the same, and written soon.
func TestRevokedWhileScreening(t *testing.T) {
	lo := pipeline.LaneOptions{Roll: pipeline.Roll{Rows: 1000, Age: 10 * time.Minute}, Deadline: time.Hour}
	screened(t, true, lo, pipeline.Options{}, func(h *house, j *judge) {
		j.set(slow(3*time.Second), nil)
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 20)
		h.src.Poll(orders, e, 20, 30)
		time.Sleep(200 * time.Millisecond)
		begin := time.Now()
		<-h.src.Revoke(false, orders)
		if d := time.Since(begin); d > time.Second {
			t.Errorf("let go after %v", d)
		}
		h.committed(orders, 30)
		time.Sleep(4 * time.Second)
		h.lacks(orders, 30, 1, 11, 21)
	})
}

func TestShutdownWhileScreening(t *testing.T) {
	f := func(before, notes func(context.Context) error, within time.Duration, want string, lacks ...int64) {
		t.Helper()
		screened(t, false, pipeline.LaneOptions{}, pipeline.Options{Grace: 6 * time.Second}, func(h *house, j *judge) {
			j.set(before, notes)
			e := h.assign(orders)
			h.src.Poll(orders, e, 0, 20)
			time.Sleep(200 * time.Millisecond)
			if took, err := h.stop(); err != nil || took > within {
				t.Error(err, took)
			}
			h.dedup(want)
			h.lacks(orders, 20, lacks...)
		})
	}
	f(slow(time.Second), nil, 2*time.Second, "17 2 2", 1, 11)
	f(slow(time.Second), slow(time.Second), 3*time.Second, "17 2 2", 1, 11)
	f(hanging, nil, 6*time.Second, "0 0 0 stopped:17")
	f(nil, hanging, 6*time.Second, "17 2 0 stopped:2")
}

func TestShutdownNamesScreeningThatHangs(t *testing.T) {
	let := make(chan struct{})
	screened(t, false, pipeline.LaneOptions{}, pipeline.Options{Grace: 6 * time.Second}, func(h *house, j *judge) {
		stop := make(chan struct{})
		let = stop
		j.set(func(context.Context) error { <-let; return nil }, nil)
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 20)
		time.Sleep(200 * time.Millisecond)
		took, err := h.stop()
		if !errors.Is(err, pipeline.ErrHanging) || !strings.Contains(err.Error(), "asking for duplicates") || took > 6*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		h.lacks(orders, 20)
		close(stop)
	})
}

// What waits for claims counts against the budget: a source that is faster is slowed down, and nothing passes unscreened for it.
func TestClaimsSlowerThanTheSource(t *testing.T) {
	opt := pipeline.Options{Budget: 6000, Flush: pipeline.Flush{Records: 10, Age: 100 * time.Millisecond}}
	screened(t, false, pipeline.LaneOptions{}, opt, func(h *house, j *judge) {
		j.set(slow(time.Second), nil)
		e := h.assign(orders)
		for o := int64(0); o < 200; o += 10 {
			h.src.Poll(orders, e, o, o+10)
		}
		time.Sleep(500 * time.Millisecond)
		if calls := h.src.Calls(); !slices.Equal(calls, []string{"pause"}) {
			t.Errorf("the source was told %q", calls)
		}
		if st := h.status(); st.InFlight > 6000 || st.State != "paused" || !strings.Contains(st.Reason, "screened") {
			t.Errorf("%d bytes are in flight, and it is %s: %s", st.InFlight, st.State, st.Reason)
		}
		time.Sleep(20 * time.Second)
		h.calls("resume")
		h.stored(orders, 200)
		d := h.status().Dedup
		if d.Checked != 171 || len(d.Unavailable) > 0 || d.Dropped != 17 {
			t.Errorf("%+v", d)
		}
	})
}

// Lost ranges and markers pass through in their place.
func TestWhatHoldsNoRecordsKeepsItsPlace(t *testing.T) {
	screened(t, true, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house, j *judge) {
		j.set(slow(time.Second), nil)
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 3)
		h.src.Poll(orders, e, 3, 4) // a hole
		h.src.Poll(orders, e, 4, 10)
		time.Sleep(3 * time.Second)
		h.lacks(orders, 10, 1)
		h.covers(orders, 10)
		if names := h.table.Names(orders); len(names) != 1 || names[0] != (checkpoint.Span{From: 0, To: 10}) {
			t.Errorf("files of %v: what is offered was not contiguous", names)
		}
		h.src.Send(sources.Polled{Batches: []*record.Batch{h.src.Heap.Gap(orders, e, 10, 15)}})
		h.src.Poll(orders, e, 15, 30)
		time.Sleep(3 * time.Second)
		h.lacks(orders, 30, 1, 11, 12, 13, 14, 21)
		h.covers(orders, 30)
	})
}

// Two streams read one topic, and share the set: each sink has the record.
func TestCaseD36TwoStreamsOverOneTopic(t *testing.T) {
	claims := pipetest.NewClaims()
	for _, name := range []string{"one", "two"} {
		s, err := content.New(content.Options{Stream: name, On: content.OnValue, Claims: claims})
		if err != nil {
			t.Fatal(err)
		}
		j := &judge{}
		opt := pipeline.Options{Screening: &pipeline.Screening{Contents: s, Drop: true, Note: j.note}}
		withLane(t, false, pipeline.LaneOptions{}, opt, func(h *house) {
			e := h.assign(orders)
			h.src.Poll(orders, e, 0, 20)
			time.Sleep(2 * time.Second)
			h.lacks(orders, 20)
			h.dedup("17 0 0")
		})
	}
}
