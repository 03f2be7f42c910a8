package sinktest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// spoiled is a record that the sink refuses, with secrets that no detail may show.
func (s *suite) spoiled(t *testing.T, offset int64) record.Record {
	if s.Spoil == nil {
		t.Skip("the sink takes every record")
	}
	r := plain(offset)
	r.Key, r.Value = []byte("secret-key"), []byte("secret-value")
	s.Spoil(&r)
	return r
}

// collector is a Report that keeps copies, after failing as often as it is told to.
type collector struct {
	t       *testing.T
	failing int
	check   func()
	got     []sinks.Reject
}

func (c *collector) report(_ context.Context, rejects []sinks.Reject) error {
	if c.check != nil {
		c.check()
	}
	if c.failing > 0 {
		c.failing--
		return errors.New("the trail is away")
	}
	for _, r := range rejects {
		if r.Record == nil {
			c.t.Fatalf("reject %+v has no record", r)
		}
		kept := *r.Record
		kept.Value = bytes.Clone(kept.Value)
		r.Record = &kept
		c.got = append(c.got, r)
	}
	return nil
}

func testRejects(t *testing.T, s *suite) {
	p := s.partition(0)
	bad := s.spoiled(t, 1)
	l := s.load(t, s.sink, batch(p, 0, 3, plain(0), bad, plain(2)))
	c := &collector{t: t, failing: 1, check: func() { s.covered(t, p) }}
	if _, err := l.Commit(t.Context(), c.report); err == nil {
		t.Fatal("a commit succeeded although its rejects could not be reported")
	}
	s.covered(t, p)
	r, err := l.Commit(t.Context(), c.report)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	if r.Rows != 2 || r.Rejected != 1 {
		t.Errorf("the receipt says %d rows and %d rejected, want 2 and 1", r.Rows, r.Rejected)
	}
	s.rejected(t, c, p, bad)
	s.covered(t, p, span(0, 3))
	s.holds(t, p, plain(0), plain(2))
}

// rejected expects exactly one reject, of r.
func (s *suite) rejected(t *testing.T, c *collector, p record.Partition, r record.Record) {
	t.Helper()
	if len(c.got) != 1 {
		t.Fatalf("%d rejects were reported, want 1", len(c.got))
	}
	got := c.got[0]
	if got.Partition != p || got.Offset != r.Offset || got.ID != record.NewHasher(p).ID(&r) || got.Reason != sinks.ReasonSink {
		t.Errorf("the reject is %+v", got)
	}
	if got.Detail == "" || strings.Contains(got.Detail, "secret") {
		t.Errorf("the detail is %q: it must say what was found and show nothing of key or value", got.Detail)
	}
	if d := Difference(got.Record, &r); d != "" {
		t.Errorf("the rejected record differs: %s", d)
	}
}

// testRejectedWhole: no row is left of the span. A sink with cuts writes no file and leaves the span to the lane's mark.
func testRejectedWhole(t *testing.T, s *suite) {
	p := s.partition(0)
	bad := s.spoiled(t, 1)
	l := s.load(t, s.sink, batch(p, 0, 3, bad))
	c := &collector{t: t}
	r, err := l.Commit(t.Context(), c.report)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	if r.Rows != 0 || r.Rejected != 1 {
		t.Errorf("the receipt says %d rows and %d rejected, want 0 and 1", r.Rows, r.Rejected)
	}
	s.rejected(t, c, p, bad)
	if s.sink.Traits().Cuts {
		s.covered(t, p)
	} else {
		s.covered(t, p, span(0, 3))
	}
	s.holds(t, p)
}
