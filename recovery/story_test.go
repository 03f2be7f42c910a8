package recovery_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/cuts"
	"github.com/stream-arrow/twgd/sinks/raw"
)

var seed = flag.Uint64("seed", 0, "tells the story of this seed only")

// TestStory lets dice decide everything that can happen to a stream with a table and a file sink: polls of any size, rebalances,
// commits to raw that fail, take their time, lose their reply or land late, sinks that fail, hang and lose replies, restarts in
// peace and by a crash. Whatever happened, in the end raw holds every offset once, each sink every record once, coverage is raw, and
// nothing is held. A failure prints its seed: go test ./recovery -run Story -seed N.
//
// A story has one agent a sink, or, with claims that are shared, two or three processes more that only recover: these are killed, lose
// their claims and are paused for longer than a claim lasts.
func TestStory(t *testing.T) {
	for _, fleet := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("agents %d", fleet+1), func(t *testing.T) { tell(t, fleet, false) })
	}
}

func tell(t *testing.T, fleet int, screening bool) {
	seeds := []uint64{1, uint64(time.Now().UnixNano())}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, seed := range seeds {
		t.Logf("seed %d", seed)
		synctest.Test(t, func(t *testing.T) {
			s := newStory(t, seed, fleet)
			if screening {
				s.twins = newTwins(s)
			}
			s.tell()
		})
		if t.Failed() {
			t.Fatalf("the story of seed %d ends badly", seed)
		}
	}
}

type story struct {
	*testing.T
	dice   *pipetest.Dice
	heap   *pipetest.Heap
	bucket *faultbucket.Bucket
	broker *pipetest.Broker
	topics []record.Partition
	tables [2]*pipetest.Table
	trail  trail
	calm   bool   // no more faults
	fleet  *fleet // nil where one process does all
	twins  *twins // nil where nothing is screened
}

func newStory(t *testing.T, seed uint64, readers int) *story {
	third := record.Partition{Cluster: "c", Topic: "orders", Number: 1}
	s := &story{T: t, dice: pipetest.NewDice(seed), heap: new(pipetest.Heap), bucket: faultbucket.New(), topics: []record.Partition{orders, bills, third}}
	s.broker = pipetest.NewBroker(s.topics...)
	for i := range s.tables {
		s.tables[i] = pipetest.NewTable(i == 1)
		s.tables[i].Reject = rejected
	}
	if readers > 0 {
		s.fleet = &fleet{leases: newLeases(8 * time.Second), size: readers}
	}
	return s
}

func rejected(r *record.Record) bool { return r.Offset%97 == 5 }

func (s *story) tell() {
	for range 6 {
		s.chapter(s.dice.Between(2*time.Minute, 6*time.Minute), s.dice.Percent(50))
	}
	s.calm = true
	s.bucket.Fault(nil)
	for s.bucket.Pending() > 0 {
		s.bucket.Land(0, s.dice.Percent(50))
	}
	for _, t := range s.tables {
		t.Fault(nil)
	}
	if s.twins != nil {
		s.twins.claims.Fault(nil)
	}
	if s.fleet != nil { // what hangs would hang for as long as a window may take
		for len(s.fleet.members) > 0 {
			s.dismiss(0, false)
		}
	}
	s.chapter(5*time.Minute, false)
	s.verify()
	if s.fleet != nil {
		for len(s.fleet.members) > 0 {
			s.dismiss(0, false)
		}
		if never, live := s.fleet.leases.never, s.fleet.leases.live(); len(never) > 0 || len(live) > 0 {
			s.Errorf("%v, leases are left: %v", never, live)
		}
	}
}

// chapter is the life of one process.
func (s *story) chapter(length time.Duration, crash bool) {
	store, err := raw.Open(s.Context(), raw.Options{Bucket: s.bucket, Stream: "s", Codec: "null"})
	if err != nil {
		s.Fatal(err)
	}
	gate := pipetest.Watch(store)
	s.broker.Stored = func(p record.Partition) int64 {
		for { // until the bucket answers
			if head, err := store.Head(context.Background(), p); err == nil {
				return head.Next
			}
		}
	}
	member := s.broker.Join(s.heap, s.dice)
	opt := pipeline.Options{Stream: "s", Source: member, Raw: gate, Budget: 60_000, Grace: 20 * time.Second, Release: 15 * time.Second,
		Flush: pipeline.Flush{Bytes: 20_000, Records: 70, Age: s.dice.Between(50*time.Millisecond, 2*time.Second)}}
	if crash {
		opt.Grace = time.Millisecond
	}
	copies := coverage.NewPublisher(coverage.Options{Bucket: s.bucket, Stream: "s", Node: "writer"})
	var lanes []*pipeline.Lane
	for _, table := range s.tables {
		lanes = append(lanes, s.lane(table, copies))
	}
	opt.Lanes = lanes
	if s.twins != nil {
		opt.Screening = s.twins.screening()
	}
	stream := pipeline.New(opt)
	ctx, cancel := context.WithCancel(s.Context())
	ended, begun := make(chan error, 8), 0
	run := func(f func(context.Context) error) {
		begun++
		go func() { ended <- f(ctx) }()
	}
	run(stream.Run)
	c := &client{}
	if s.fleet != nil {
		s.muster()
		c = s.fleet.client()
		run(copies.Run)
		run(coverage.Merger{Bucket: s.bucket, Stream: "s", Sinks: []string{"table", "files"}}.Run)
	}
	for i, l := range lanes {
		o := recovery.Options{Stream: "s", Lane: l, Sink: s.tables[i], Raw: gate, Assigned: stream.Assigned, Claims: new(recovery.Local),
			Window: 100, Deadline: 20 * time.Second, Exclusive: s.calm || s.dice.Percent(30)}
		if s.fleet != nil {
			var survey *recovery.Survey
			o, survey = s.sharing(o, c, store, stream, lanes)
			run(survey.Run)
		}
		run(recovery.New(o).Run)
	}
	if !s.calm {
		s.spoil(gate, member)
	}
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(s.dice.Between(100*time.Millisecond, 2*time.Second)) {
		if s.calm {
			continue
		}
		s.turn(member)
		if s.twins != nil {
			s.twins.turn()
		}
		if s.fleet != nil {
			s.drill()
		}
	}
	if s.calm {
		s.covered(lanes)
	}
	if crash && s.fleet != nil {
		c.kill()
	}
	cancel()
	for range begun {
		if err := <-ended; err != nil && !(errors.Is(err, pipeline.ErrUnfinished) && !s.calm) && !(crash && errors.Is(err, pipeline.ErrHanging)) {
			s.Errorf("a chapter ends with %v", err)
		}
	}
	synctest.Wait()
	s.left(stream, gate, lanes)
	if s.twins != nil {
		s.twins.ended(stream)
	}
}

func (s *story) lane(table *pipetest.Table, copies *coverage.Publisher) *pipeline.Lane {
	opt := pipeline.LaneOptions{Stream: "s", Name: "table", Sink: table, Roll: pipeline.Roll{Rows: 300, Age: 3 * time.Second}, Deadline: 20 * time.Second,
		Queue: 80_000, MaxRecord: 1000, Report: func(ctx context.Context, r []sinks.Reject) error {
			if !s.calm && s.dice.Percent(20) {
				return pipetest.ErrDown
			}
			return s.trail.report(ctx, r)
		}}
	if table.Files {
		opt.Name = "files"
		opt.Cuts = cuts.New(cuts.Options{Bucket: s.bucket, Stream: "s", Sink: "files", Cell: 100,
			Genesis: func(context.Context, record.Partition) (int64, error) { return 0, nil }})
	}
	if s.twins != nil {
		opt.Duplicates = s.twins.leaveOut(opt.Name, table.Count)
	}
	if s.fleet != nil {
		opt.Covered = func(p record.Partition, set checkpoint.SpanSet) { copies.Covered(opt.Name, p, set) }
	}
	return pipeline.NewLane(opt)
}

// spoil makes everything unreliable.
func (s *story) spoil(gate *pipetest.Raw, member *pipetest.Member) {
	faults := []faultbucket.Fault{faultbucket.Refuse, faultbucket.Lost, faultbucket.Mine, faultbucket.Vanish, faultbucket.Late}
	s.bucket.Fault(func(faultbucket.Call) faultbucket.Fault {
		if s.dice.Percent(4) {
			return faults[s.dice.N(int64(len(faults)))]
		}
		return faultbucket.None
	})
	gate.Before(func(ctx context.Context, _ []*record.Batch) error {
		switch {
		case s.dice.Percent(3):
			return pipetest.ErrDown
		case s.dice.Percent(2):
			<-ctx.Done() // hangs, until a bound that is not its own
			return ctx.Err()
		}
		return pause(ctx, s.dice.Between(0, 500*time.Millisecond))
	})
	member.Before = func(ctx context.Context) error {
		if s.dice.Percent(10) {
			return pipetest.ErrDown
		}
		return pause(ctx, s.dice.Between(0, 3*time.Second))
	}
	for _, t := range s.tables {
		t.Fault(s.sinkFault())
	}
	if s.twins != nil {
		s.twins.claims.Fault(s.twins.fault())
	}
}

// sinkFault is well for a while and away for another.
func (s *story) sinkFault() func(context.Context, string) error {
	var until time.Time
	var is *sinks.Error
	lock := make(chan struct{}, 1)
	return func(ctx context.Context, op string) error {
		lock <- struct{}{}
		if !time.Now().Before(until) {
			until, is = time.Now().Add(s.dice.Between(time.Second, time.Minute)), nil
			if s.dice.Percent(40) {
				is = []*sinks.Error{{Kind: sinks.Retry, Reason: "away"}, {Kind: sinks.Blocked, Reason: "missing"}}[s.dice.N(2)]
			}
		}
		fault := is
		<-lock
		switch {
		case op == "begin" || op == "add":
			if s.dice.Percent(1) {
				return &sinks.Error{Kind: sinks.Retry, Reason: "no memory"}
			}
			return nil
		case fault != nil:
			return fault
		case s.dice.Percent(4):
			<-ctx.Done()
			return ctx.Err()
		case op == "landed" && s.dice.Percent(10):
			return &sinks.Error{Kind: sinks.Retry, Reason: "the reply is lost"}
		}
		return pause(ctx, s.dice.Between(0, 300*time.Millisecond))
	}
}

func (s *story) turn(member *pipetest.Member) {
	s.broker.Produce(s.topics[s.dice.N(3)], s.dice.N(50))
	switch {
	case s.dice.Percent(6):
		member.Rebalance(s.dice.Percent(40), s.topics[s.dice.N(3)])
	case s.dice.Percent(2):
		member.Rebalance(s.dice.Percent(40), s.topics...)
	case s.bucket.Pending() > 0 && s.dice.Percent(30):
		s.bucket.Land(int(s.dice.N(int64(s.bucket.Pending()))), s.dice.Percent(30))
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// left checks what must hold whenever a process has ended.
func (s *story) left(stream *pipeline.Stream, gate *pipetest.Raw, lanes []*pipeline.Lane) {
	if live, made, err := s.heap.Live(); live != 0 || err != nil {
		s.Errorf("%d of %d batches are not released, %v", live, made, err)
	}
	s.leftOf(stream, gate, lanes)
	for i := range lanes {
		if wrong, loads, _ := s.tables[i].Wrong(); len(wrong) > 0 || loads != 0 && s.fleet == nil {
			s.Errorf("sink %d was misused: %v, %d loads are not discarded", i, wrong, loads)
		}
	}
}

// leftOf checks what must hold when one process of several has ended.
func (s *story) leftOf(stream *pipeline.Stream, gate *pipetest.Raw, lanes []*pipeline.Lane) {
	if wrong := gate.Wrong(); len(wrong) > 0 {
		s.Errorf("raw was misused: %v", wrong)
	}
	if st, _ := stream.Status(context.Background()); st.InFlight != 0 {
		s.Errorf("%d bytes of the budget were not given back", st.InFlight)
	}
	for _, l := range lanes {
		if st := l.Status(); st.QueueBytes != 0 {
			s.Errorf("lane %s still counts %d bytes", st.Name, st.QueueBytes)
		}
	}
}

func (s *story) covered(lanes []*pipeline.Lane) {
	for _, l := range lanes {
		for _, p := range s.topics {
			within := sp(0, s.broker.End(p))
			have, ok := l.Coverage(p)
			if !ok || !have.Covers(within) || have.Len() != within.Len() {
				s.Errorf("%s covers %v of %v %v", l.Name(), have, p, within)
			}
		}
	}
}

// verify holds everything against the logs.
func (s *story) verify() {
	store, err := raw.Open(s.Context(), raw.Options{Bucket: s.bucket, Stream: "s", ReadOnly: true, Codec: "null"})
	if err != nil {
		s.Fatal(err)
	}
	for _, p := range s.topics {
		end := s.broker.End(p)
		if got := s.inRaw(store, p); !slices.Equal(got, present(end)) {
			s.Errorf("raw has %d records of %v, the log has %d", len(got), p, len(present(end)))
		}
		if got, wrong := s.broker.Committed(p); got != end || len(wrong) > 0 {
			s.Errorf("%v: committed %d of %d, wrong: %q", p, got, end, wrong)
		}
		for i, t := range s.tables {
			if s.twins == nil {
				s.inTable(i, t.Rows(p), p, end)
			}
		}
		for names := s.tables[1].Names(p); len(names) > 1; names = names[1:] {
			if names[0].Overlaps(names[1]) {
				s.Errorf("files %v and %v overlap", names[0], names[1])
			}
		}
	}
	if s.twins != nil {
		s.twins.verify()
	}
}

func present(end int64) (out []int64) {
	for o := range end {
		if pipetest.Present(o) {
			out = append(out, o)
		}
	}
	return out
}

func (s *story) inRaw(store sinks.Raw, p record.Partition) (out []int64) {
	err := store.Read(s.Context(), p, sp(0, 1<<60), func(b *record.Batch) error {
		for i := range b.Records {
			if err := pipetest.Check(&b.Records[i]); err != nil {
				return err
			}
			out = append(out, b.Records[i].Offset)
		}
		return nil
	})
	if err != nil {
		s.Error(err)
	}
	return out
}

func (s *story) inTable(i int, have map[int64]int, p record.Partition, end int64) {
	for _, o := range present(end) {
		want := 1
		if rejected(&record.Record{Offset: o}) {
			want = 0
			if !s.trail.has(o) {
				s.Errorf("sink %d: offset %d of %v was rejected, the trail does not know", i, o, p)
			}
		}
		if have[o] != want {
			s.Errorf("sink %d: offset %d of %v is there %d times, want %d", i, o, p, have[o], want)
			return
		}
		delete(have, o)
	}
	if len(have) > 0 {
		s.Errorf("sink %d has rows of %v that are in no log: %v", i, p, have)
	}
}

func (r *trail) has(offset int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offsets[offset]
}
