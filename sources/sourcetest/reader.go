// Package sourcetest holds what every source must keep to, and the reader that finds out.
package sourcetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// Gate is a gate in memory. It may be handed from one source to the next, as a store outlives a process. Safe for concurrent use.
type Gate struct {
	mu     sync.Mutex
	stored map[record.Partition]sources.Start
	asked  map[record.Partition]int
}

// NewGate has nothing stored.
func NewGate() *Gate {
	return &Gate{stored: map[record.Partition]sources.Start{}, asked: map[record.Partition]int{}}
}

// Answer is the gate as a source asks it: what is stored wins, and a genesis is kept.
func (g *Gate) Answer(ctx context.Context, p record.Partition, genesis func(context.Context) (int64, error)) (sources.Start, error) {
	g.mu.Lock()
	s, ok := g.stored[p]
	g.mu.Unlock()
	if !ok {
		at, err := genesis(ctx)
		if err != nil {
			return s, err
		}
		s = sources.Start{Next: at, LeaderEpoch: -1}
		g.Store(p, s)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked[p]++
	return s, nil
}

// Store sets what is stored of p.
func (g *Gate) Store(p record.Partition, s sources.Start) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stored[p] = s
}

// spend takes one asking for p away, and reports whether there was one.
func (g *Gate) spend(p record.Partition) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked[p]--
	return g.asked[p] >= 0
}

// Reader reads a source as a pipeline does, stores all it is given in its gate at once, and fails the test when an event breaks
// what the seam promises. What was seen is there to look at; only the test's goroutine may.
type Reader struct {
	T      *testing.T
	Source sources.Source
	Gate   *Gate

	Assigned map[record.Partition]sources.Assignment // now
	Next     map[record.Partition]int64
	Values   map[record.Partition][]string
	Records  map[record.Partition][]record.Record // with memory of their own
	Gaps     []string
	Held     map[record.Partition]string // why, for those that are
	Notices  []sources.Notice
	Ends     map[record.Partition]int64
	Log      []string // assignments and revocations

	Revoked func(sources.Revoked) // what is done about a revocation; first: Done at once
}

// Read begins to read a source that is not open yet.
func Read(t *testing.T, s sources.Source, g *Gate) *Reader {
	t.Helper()
	if err := s.Open(t.Context(), g.Answer); err != nil {
		t.Fatal(err)
	}
	return &Reader{T: t, Source: s, Gate: g, Assigned: map[record.Partition]sources.Assignment{}, Next: map[record.Partition]int64{},
		Values: map[record.Partition][]string{}, Records: map[record.Partition][]record.Record{}, Held: map[record.Partition]string{},
		Ends: map[record.Partition]int64{}, Revoked: func(e sources.Revoked) { e.Done() }}
}

// Close closes the source.
func (r *Reader) Close() {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.Source.Close(ctx); err != nil {
		r.T.Error(err)
	}
}

// Step takes one event, or none within d.
func (r *Reader) Step(d time.Duration) bool {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	e, err := r.Source.Next(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.T.Fatalf("Next: %v", err)
		}
		return false
	}
	switch e := e.(type) {
	case sources.Assigned:
		r.assigned(e)
	case sources.Revoked:
		r.revoked(e)
	case sources.Polled:
		for _, b := range e.Batches {
			r.take(b)
		}
	case sources.Held:
		r.Held[e.Partition] = e.Reason
		if e.Reason == "" {
			delete(r.Held, e.Partition)
		}
	case sources.Ends:
		maps.Copy(r.Ends, e.Ends)
	case sources.Notice:
		r.Notices = append(r.Notices, e)
	}
	return true
}

func (r *Reader) assigned(e sources.Assigned) {
	r.T.Helper()
	for _, a := range e.Partitions {
		if old, ok := r.Assigned[a.Partition]; ok {
			r.T.Fatalf("%s is assigned under epoch %d and again as %+v", a.Partition, old.Epoch, a)
		}
		if !r.Gate.spend(a.Partition) {
			r.T.Fatalf("%s is assigned without asking the gate", a.Partition)
		}
		r.Assigned[a.Partition], r.Next[a.Partition] = a, a.Next
		r.Log = append(r.Log, fmt.Sprintf("+%s@%d", a.Partition, a.Next))
	}
}

func (r *Reader) revoked(e sources.Revoked) {
	r.T.Helper()
	for _, p := range e.Partitions {
		if _, ok := r.Assigned[p]; !ok {
			r.T.Fatalf("%s is revoked, but was not assigned", p)
		}
		delete(r.Assigned, p)
		delete(r.Held, p)
		r.Log = append(r.Log, fmt.Sprintf("-%s lost=%v", p, e.Lost))
	}
	r.Revoked(e)
}

func (r *Reader) take(b *record.Batch) {
	r.T.Helper()
	p := b.Partition
	a, ok := r.Assigned[p]
	switch {
	case !ok || a.Epoch != b.Epoch:
		r.T.Fatalf("a batch of %s under epoch %d, assigned is %+v", p, b.Epoch, a)
	case b.First != r.Next[p] || b.Next <= b.First:
		r.T.Fatalf("a batch [%d, %d) of %s where %d should follow", b.First, b.Next, p, r.Next[p])
	case b.Gap != "" && len(b.Records) > 0:
		r.T.Fatalf("a gap [%d, %d) of %s has records", b.First, b.Next, p)
	case b.Gap != "":
		r.Gaps = append(r.Gaps, fmt.Sprintf("%s [%d, %d) %s", p, b.First, b.Next, b.Gap))
	}
	r.Next[p] = b.Next
	at := b.First
	for _, rec := range b.Records {
		if rec.Offset < at || rec.Offset >= b.Next {
			r.T.Fatalf("offset %d in a batch [%d, %d) of %s, at %d", rec.Offset, b.First, b.Next, p, at)
		}
		at = rec.Offset + 1
		r.Values[p] = append(r.Values[p], string(rec.Value))
		r.Records[p] = append(r.Records[p], own(rec))
	}
	r.Gate.Store(p, sources.Start{Next: b.Next, LeaderEpoch: b.LeaderEpoch, Stored: true})
	b.Release()
}

// own is the record with memory of its own.
func own(rec record.Record) record.Record {
	rec.Key, rec.Value, rec.Headers = clone(rec.Key), clone(rec.Value), slices.Clone(rec.Headers)
	for i := range rec.Headers {
		rec.Headers[i].Value = clone(rec.Headers[i].Value)
	}
	return rec
}

// clone keeps nil and empty apart.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

// Until takes events until cond holds, for five minutes at most.
func (r *Reader) Until(what string, cond func() bool) {
	r.T.Helper()
	for start := time.Now(); !cond(); {
		r.Step(time.Second)
		if time.Since(start) > 5*time.Minute {
			r.T.Fatalf("%s: did not come about. log %v, held %v, notices %v, next %v", what, r.Log, r.Held, r.Notices, r.Next)
		}
	}
}

// For takes what comes within d.
func (r *Reader) For(d time.Duration) {
	r.T.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		r.Step(time.Until(end))
	}
}

// Only is the one partition that is assigned, once there is one.
func (r *Reader) Only() record.Partition {
	r.T.Helper()
	r.Until("an assignment", func() bool { return len(r.Assigned) > 0 })
	if len(r.Assigned) > 1 {
		r.T.Fatalf("assigned are %v", r.Assigned)
	}
	for p := range r.Assigned {
		return p
	}
	return record.Partition{}
}

// Total counts the records of all partitions.
func (r *Reader) Total() (n int) {
	for _, v := range r.Values {
		n += len(v)
	}
	return n
}

// Offsets lists those of p.
func (r *Reader) Offsets(p record.Partition) (out []int64) {
	for _, rec := range r.Records[p] {
		out = append(out, rec.Offset)
	}
	return out
}

// Noticed reports whether there was a notice of the kind.
func (r *Reader) Noticed(kind string) bool {
	return slices.ContainsFunc(r.Notices, func(n sources.Notice) bool { return n.Kind == kind })
}
