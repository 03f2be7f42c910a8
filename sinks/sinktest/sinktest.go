// Package sinktest is the suite that every sink passes: what the lane relies on, whichever destination it writes to.
package sinktest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
)

// Fixture is one destination, and how the suite looks at it from outside. Each test asks for a fresh one, whose destination
// may be shared with others as long as nothing is stored of the partitions that Topic names.
type Fixture struct {
	// Topic is a name that no other fixture has over this destination.
	Topic string

	// Sink opens a sink over the destination; each call makes another one, as another process or the same after a restart would.
	// The fixture closes them.
	Sink func(t *testing.T) sinks.Sink

	// Read returns what the destination holds of p, by a way that is not the sink's own, ordered by offset and with every copy.
	// Transactional is not compared.
	Read func(t *testing.T, p record.Partition) []Row

	// Break makes every Commit fail with an error of kind Retry until mend is called.
	Break func(t *testing.T) (mend func())

	// Spoil changes a record to one that this sink refuses for good, with a detail that shows no byte of key or value. Nil where
	// the sink takes everything.
	Spoil func(r *record.Record)
}

// Row is one stored row.
type Row struct {
	ID     record.ID
	Record record.Record
}

// Run runs the suite. Every subtest gets a fixture of its own from open.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *suite)
	}{
		{"Fidelity D18 D19 D20 D21", testFidelity},
		{"CoverageFollowsCommit", testCoverage},
		{"EmptySpan", testEmptySpan},
		{"RetryKeepsOneCopy", testRetry},
		{"CancelledCommit", testCancel},
		{"CommitTwice", testCommitTwice},
		{"TwoWritersOfOneSpan", testTwoWriters},
		{"RejectsBeforeCoverage", testRejects},
		{"RejectedWhole D32", testRejectedWhole},
		{"DiscardLeavesNothing", testDiscard},
		{"Count", testCount},
		{"SizeAndSpans", testSize},
		{"BatchIsNotKept", testNotKept},
		{"ManyPartitions", testManyPartitions},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t)
			s := &suite{Fixture: f, sink: f.Sink(t)}
			if err := s.sink.Open(t.Context()); err != nil {
				t.Fatalf("open: %v", err)
			}
			c.test(t, s)
		})
	}
}

// suite is a fixture with its first sink, open.
type suite struct {
	Fixture
	sink sinks.Sink
}

func (s *suite) partition(number int32) record.Partition {
	return record.Partition{Cluster: "sinktest", Topic: s.Topic, TopicID: [16]byte{0xc0, 0xff, 0xee, 1}, Number: number}
}

// batch makes rows of p that answer for [from, to).
func batch(p record.Partition, from, to int64, records ...record.Record) *row.Batch {
	b := &row.Batch{Partition: p, Span: checkpoint.Span{From: from, To: to}, Records: records}
	for i := range records {
		b.Bytes += records[i].Size()
	}
	b.IDs = record.NewHasher(p).IDs(nil, records)
	return b
}

// plain is a record with key and value and nothing unusual.
func plain(offset int64) record.Record {
	return record.Record{Key: []byte("key"), Value: []byte("value"), Offset: offset, Timestamp: 1_700_000_000_000 + offset,
		ProducerID: -1, LeaderEpoch: 3, ProducerEpoch: -1}
}

func plains(from, to int64) (out []record.Record) {
	for o := from; o < to; o++ {
		out = append(out, plain(o))
	}
	return out
}

// load begins a load with b in it, which is discarded when the test ends.
func (s *suite) load(t *testing.T, sink sinks.Sink, batches ...*row.Batch) sinks.Load {
	t.Helper()
	l, err := sink.Begin()
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	t.Cleanup(l.Discard)
	for _, b := range batches {
		if err := l.Add(b); err != nil {
			t.Fatalf("add %v: %v", b.Span, err)
		}
	}
	return l
}

// commit commits l and expects no rejects.
func (s *suite) commit(t *testing.T, l sinks.Load) sinks.Receipt {
	t.Helper()
	r, err := l.Commit(t.Context(), noRejects(t))
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return r
}

func noRejects(t *testing.T) sinks.Report {
	return func(_ context.Context, rejects []sinks.Reject) error {
		for _, r := range rejects {
			t.Errorf("rejected %v offset %d: %s %s", r.Partition, r.Offset, r.Reason, r.Detail)
		}
		return nil
	}
}

// covered expects the coverage of p to be exactly these spans, seen by sink and by another one that is opened for it.
func (s *suite) covered(t *testing.T, p record.Partition, want ...checkpoint.Span) {
	t.Helper()
	other := s.Sink(t)
	if err := other.Open(t.Context()); err != nil {
		t.Fatalf("open another sink: %v", err)
	}
	for _, sink := range []sinks.Sink{s.sink, other} {
		got, err := sink.Coverage(t.Context(), p)
		if err != nil {
			t.Fatalf("coverage of %v: %v", p, err)
		}
		if w := checkpoint.NewSpanSet(want...); got.String() != w.String() {
			t.Errorf("coverage of %v is %v, want %v", p, got, w)
		}
		s.spots(t, sink, p, want)
	}
}

// spots expects a sink that can say so of one file to say it of these, and of no other.
func (s *suite) spots(t *testing.T, sink sinks.Sink, p record.Partition, files []checkpoint.Span) {
	t.Helper()
	spot, ok := sink.(sinks.Spot)
	if !ok {
		return
	}
	f := func(span checkpoint.Span, want bool) {
		t.Helper()
		if got, err := spot.Holds(t.Context(), p, span); err != nil || got != want {
			t.Errorf("%v of %v is held: %v, %v", span, p, got, err)
		}
	}
	for _, file := range files {
		f(file, true)
		f(checkpoint.Span{From: file.From, To: file.To + 1}, false)
		f(checkpoint.Span{From: file.To, To: file.To + 7}, slices.ContainsFunc(files, func(o checkpoint.Span) bool { return o.From == file.To && o.To == file.To+7 }))
	}
}

// holds expects the destination to hold exactly these records of p, once each and with the right ids.
func (s *suite) holds(t *testing.T, p record.Partition, want ...record.Record) {
	t.Helper()
	got := s.Read(t, p)
	if len(got) != len(want) {
		t.Fatalf("%v has %d rows, want %d", p, len(got), len(want))
	}
	h := record.NewHasher(p)
	for i := range want {
		if id := h.ID(&want[i]); got[i].ID != id {
			t.Errorf("row %d of %v has id %v, want %v", i, p, got[i].ID, id)
		}
		if d := Difference(&got[i].Record, &want[i]); d != "" {
			t.Errorf("row %d of %v: %s", i, p, d)
		}
	}
}

// kind expects err to be an *Error of that kind.
func kind(t *testing.T, err error, want sinks.Kind) {
	t.Helper()
	var e *sinks.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error %v is %T and not a *sinks.Error", err, err)
	}
	if e.Kind != want || e.Reason == "" {
		t.Errorf("the error %v is of kind %v with the reason %q, want %v", err, e.Kind, e.Reason, want)
	}
}
