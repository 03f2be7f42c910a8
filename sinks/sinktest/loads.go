package sinktest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

func span(from, to int64) checkpoint.Span { return checkpoint.Span{From: from, To: to} }

func testCoverage(t *testing.T, s *suite) {
	p := s.partition(0)
	s.covered(t, p)
	l := s.load(t, s.sink, batch(p, 5, 10, plains(5, 8)...), batch(p, 10, 12, plain(11)))
	s.covered(t, p)
	r := s.commit(t, l)
	if got := r.Spans[p]; len(r.Spans) != 1 || got.String() != "[5, 12)" || r.Rows != 4 || r.Bytes <= 0 {
		t.Errorf("the receipt is %+v, want [5, 12) with 4 rows", r)
	}
	s.covered(t, p, span(5, 12))
	s.commit(t, s.load(t, s.sink, batch(p, 20, 21, plain(20))))
	s.covered(t, p, span(5, 12), span(20, 21))
	s.covered(t, s.partition(1))

	again := p
	again.TopicID[0]++
	s.covered(t, again) // a topic that was created again is another topic
	chain := p
	chain.Generation = 1
	s.covered(t, chain) // and so is another chain of it
}

// testEmptySpan: a sink with cuts leaves a span without rows to the lane's mark, others cover it.
func testEmptySpan(t *testing.T, s *suite) {
	p := s.partition(0)
	l := s.load(t, s.sink, batch(p, 0, 7))
	if s.sink.Traits().Cuts {
		s.commit(t, l)
		s.covered(t, p)
	} else {
		s.commit(t, l)
		s.covered(t, p, span(0, 7))
	}
	s.holds(t, p)
}

func testRetry(t *testing.T, s *suite) {
	p := s.partition(0)
	l := s.load(t, s.sink, batch(p, 0, 5, plains(0, 5)...))
	mend := s.Break(t)
	for range 2 {
		_, err := l.Commit(t.Context(), noRejects(t))
		kind(t, err, sinks.Retry)
	}
	mend()
	s.commit(t, l)
	s.covered(t, p, span(0, 5))
	s.holds(t, p, plains(0, 5)...)
}

func testCancel(t *testing.T, s *suite) {
	p := s.partition(0)
	l := s.load(t, s.sink, batch(p, 0, 5, plains(0, 5)...))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Commit(ctx, noRejects(t)); err != nil {
		kind(t, err, sinks.Retry)
	}
	s.commit(t, l)
	s.covered(t, p, span(0, 5))
	s.holds(t, p, plains(0, 5)...)
}

func testCommitTwice(t *testing.T, s *suite) {
	p := s.partition(0)
	l := s.load(t, s.sink, batch(p, 0, 5, plains(0, 5)...))
	s.commit(t, l)
	if r := s.commit(t, l); r.Rows != 5 {
		t.Errorf("the second receipt says %d rows, want 5", r.Rows)
	}
	s.holds(t, p, plains(0, 5)...)
}

// testTwoWriters: a lane, a zombie of it and recovery carry the same rows, and all are told that they are stored.
func testTwoWriters(t *testing.T, s *suite) {
	p := s.partition(0)
	other := s.Sink(t)
	if err := other.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	loads := []sinks.Load{
		s.load(t, s.sink, batch(p, 0, 5, plains(0, 5)...)),
		s.load(t, other, batch(p, 0, 3, plains(0, 3)...), batch(p, 3, 5, plains(3, 5)...)),
	}
	errs := make(chan error, len(loads))
	for _, l := range loads {
		go func() {
			_, err := l.Commit(t.Context(), noRejects(t))
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatalf("one of two writers of the same rows failed: %v", err)
	}
	late := s.load(t, s.sink, batch(p, 0, 5, plains(0, 5)...))
	s.commit(t, late)
	s.covered(t, p, span(0, 5))
	s.holds(t, p, plains(0, 5)...)
}

func testDiscard(t *testing.T, s *suite) {
	p := s.partition(0)
	l, err := s.sink.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Add(batch(p, 0, 5, plains(0, 5)...)); err != nil {
		t.Fatal(err)
	}
	l.Discard()
	s.covered(t, p)
	s.holds(t, p)
	if l, err = s.sink.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := l.Add(batch(p, 0, 2, plains(0, 2)...)); err != nil {
		t.Fatal(err)
	}
	s.commit(t, l)
	l.Discard()
	s.covered(t, p, span(0, 2))
	s.holds(t, p, plains(0, 2)...)
}

func testCount(t *testing.T, s *suite) {
	p := s.partition(0)
	spans := []checkpoint.Span{span(0, 10), span(0, 100), span(3, 6), span(8, 12), span(20, 30), span(4, 4), span(90, 100)}
	f := func(want ...int64) {
		t.Helper()
		got, err := s.sink.Count(t.Context(), p, spans)
		if err != nil {
			t.Fatalf("count: %v", err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("count of %v is %v, want %v", spans, got, want)
		}
	}
	f(0, 0, 0, 0, 0, 0, 0)
	s.commit(t, s.load(t, s.sink, batch(p, 0, 10, append(plains(0, 5), plain(9))...)))
	f(6, 6, 2, 1, 0, 0, 0)
	s.commit(t, s.load(t, s.sink, batch(p, 10, 50, plains(10, 25)...)))
	f(6, 21, 2, 3, 5, 0, 0)
}

func testSize(t *testing.T, s *suite) {
	p := s.partition(0)
	l := s.load(t, s.sink)
	if z := l.Size(); z.Rows != 0 || len(l.Spans()) != 0 {
		t.Errorf("an empty load has the size %+v and the spans %v", z, l.Spans())
	}
	var before sinks.Size
	for i := range int64(4) {
		r := plain(i)
		r.Value = bytes.Repeat([]byte("x"), 1<<20)
		if err := l.Add(batch(p, i, i+1, r)); err != nil {
			t.Fatal(err)
		}
		z := l.Size()
		if z.Rows != i+1 || z.Held < before.Held || z.Out < before.Out || z.Out == 0 || z.Held == 0 {
			t.Errorf("after %d rows of 1 MiB the size is %+v, before %+v", i+1, z, before)
		}
		before = z
	}
	if got := l.Spans()[p]; len(l.Spans()) != 1 || got.String() != "[0, 4)" {
		t.Errorf("the spans are %v", l.Spans())
	}
}

func testManyPartitions(t *testing.T, s *suite) {
	p, q := s.partition(0), s.partition(1)
	l := s.load(t, s.sink, batch(p, 0, 2, plains(0, 2)...))
	err := l.Add(batch(q, 7, 9, plains(7, 9)...))
	if s.sink.Traits().Cuts {
		if err == nil {
			t.Error("a load with cuts took a second partition")
		}
		if err := l.Add(batch(p, 3, 4, plain(3))); err == nil {
			t.Error("a load with cuts took a span that does not follow")
		}
		s.commit(t, l)
		s.covered(t, p, span(0, 2))
		s.holds(t, p, plains(0, 2)...)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	s.commit(t, l)
	for part, want := range map[record.Partition][]record.Record{p: plains(0, 2), q: plains(7, 9)} {
		s.covered(t, part, span(want[0].Offset, want[0].Offset+2))
		s.holds(t, part, want...)
	}
}
