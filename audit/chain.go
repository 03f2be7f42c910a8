package audit

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// readChain reads a chain up to its head: all of it, or what the last audit has not read. counters are told each batch.
func (a *auditor) readChain(ctx context.Context, f *PartitionFacts, counters []*counter) error {
	c := f.Chain
	if len(c.Damage) > 0 {
		return nil
	}
	segments, err := a.Raw.Segments(ctx, f.Partition)
	if err != nil {
		return err
	}
	next := c.Genesis // where the last segment begins, which may still grow
	for _, s := range segments {
		if s.First < c.Next {
			next = max(next, s.First)
		}
	}
	at := mark{Genesis: c.Genesis, Next: c.Genesis}
	m, ok := readMark(ctx, a.Bucket, a.Stream, f.Partition, c.Genesis)
	switch {
	case ok && m.Next > c.Next:
		c.Damage = append(c.Damage, fmt.Sprintf("an earlier audit read the chain up to %d, and now it ends at %d", m.Next, c.Next))
		return nil
	case ok && !a.Full && counters == nil && m.Listing == listing(segments, m.Next):
		at = m
	}
	begun := at.Next
	r := &reading{a: a, p: f.Partition, sum: at, next: next, at: at.Next, to: c.Next, counters: counters}
	if (counters != nil || a.standing != nil) && f.Dropped > 0 {
		r.dropping = &dropping{notes: a.notes, p: f.Partition, ids: record.NewHasher(f.Partition)}
	}
	if a.standing != nil {
		r.ids = record.NewHasher(f.Partition)
	}
	r.mark = r.sum
	err = a.Raw.Read(ctx, f.Partition, checkpoint.Span{From: begun, To: c.Next}, func(b *record.Batch) error { return r.take(ctx, b) })
	c.Commits, c.Records, c.Gaps = r.sum.Commits, r.sum.Records, r.sum.Gaps
	switch {
	case errors.Is(err, avrofile.ErrDamaged):
		c.Damage = append(c.Damage, err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("reading raw of %v: %w", f.Partition, err)
	case r.at != c.Next:
		c.Damage = append(c.Damage, fmt.Sprintf("the chain ends at %d, and its head was %d", r.at, c.Next))
		return nil
	}
	if r.mark.Next > begun {
		r.mark.Listing, r.mark.Read = listing(segments, r.mark.Next), a.Now().UTC().Format(time.RFC3339)
		if err := writeMark(ctx, a.Bucket, a.Stream, f.Partition, r.mark); err != nil {
			a.Progress("what was read cannot be noted beside raw, the next audit reads it again: " + err.Error())
		}
	}
	return nil
}

// reading is a chain being read.
type reading struct {
	a        *auditor
	p        record.Partition
	sum      mark  // of all that was read
	mark     mark  // of what lies below the last segment
	next     int64 // where that begins
	at, to   int64
	counters []*counter
	dropping *dropping      // nil where nothing was dropped, or nothing is counted
	ids      *record.Hasher // nil where nobody asks who stands
	told     time.Time
}

func (r *reading) take(ctx context.Context, b *record.Batch) error {
	if b.First != r.at {
		return fmt.Errorf("%w: [%d, %d) of %v stands where %d was expected", avrofile.ErrDamaged, b.First, b.Next, r.p, r.at)
	}
	r.at = b.Next
	r.sum.Commits++
	r.sum.Records += int64(len(b.Records))
	if b.Gap != "" {
		r.sum.Gaps = append(r.sum.Gaps, Gap{checkpoint.Span{From: b.First, To: b.Next}, b.Gap})
	}
	var dropped []int64
	if r.dropping != nil {
		var err error
		if dropped, err = r.dropping.in(ctx, b); err != nil {
			return err
		}
	}
	for _, c := range r.counters {
		c.take(b, dropped)
	}
	if r.ids != nil {
		r.a.standing.see(r.p, r.ids, b, dropped)
	}
	if r.at <= r.next {
		r.mark = r.sum
		r.mark.Next = r.at
	}
	if now := time.Now(); now.Sub(r.told) > time.Second {
		r.told = now
		r.a.Progress(fmt.Sprintf("reading raw of %v: %d of %d", r.p, r.at, r.to))
	}
	return nil
}

// young finds the first offset that was stored within the deadline, where the sink misses anything.
func (a *auditor) young(ctx context.Context, f *PartitionFacts, h *Holding, deadline time.Duration) error {
	c := f.Chain
	have := h.Coverage.Clone()
	for _, set := range h.Trail {
		have.Union(set)
	}
	missing := have.Missing(checkpoint.Span{From: c.Genesis, To: c.Next})
	if len(missing) == 0 || len(c.Damage) > 0 {
		return nil
	}
	limit := a.facts.At.Add(-deadline)
	first, last := missing[0].From, missing[len(missing)-1].To
	var failed error
	n := sort.Search(int(last-first), func(i int) bool { // segments are in the order of time
		if failed != nil {
			return true
		}
		at, stored, err := a.Raw.Written(ctx, f.Partition, first+int64(i))
		failed = err
		return !stored || !at.Before(limit)
	})
	if errors.Is(failed, avrofile.ErrDamaged) {
		return nil
	}
	h.Young = first + int64(n)
	return failed
}
