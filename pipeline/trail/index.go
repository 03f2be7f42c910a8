package trail

import (
	"context"
	"sync"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// Index is the trail in memory: for each sink and partition the offsets that are missing there, by reason. Load reads only what is
// new since the last one. It is safe for concurrent use.
type Index struct {
	bucket store.Bucket
	stream string
	load   chan struct{} // held by a Load in progress; guards next
	next   map[string]int64
	mu     struct {
		sync.Mutex
		spans map[place]map[string]*checkpoint.SpanSet
		tails map[string]map[[8]byte]spot            // by sink, of the ids of records that it refused
		parts map[record.Partition]*record.Partition // each once, for the spots
	}
}

type place struct {
	sink      string
	partition record.Partition
}

// spot is where a record lies. Two records whose ids end alike have none: partition is nil.
type spot struct {
	partition *record.Partition
	offset    int64
}

// Rejected is where a record lies that a sink refused.
type Rejected struct {
	Partition record.Partition
	Offset    int64
}

// Count is how many offsets of a stream a sink misses for one reason.
type Count struct {
	Sink, Reason string
}

// NewIndex is empty until the first Load.
func NewIndex(bucket store.Bucket, stream string) *Index {
	x := &Index{bucket: bucket, stream: stream, load: make(chan struct{}, 1), next: map[string]int64{}}
	x.mu.spans = map[place]map[string]*checkpoint.SpanSet{}
	x.mu.tails, x.mu.parts = map[string]map[[8]byte]spot{}, map[record.Partition]*record.Partition{}
	return x
}

// Load reads what was written since the last one. After an error the index holds what was read before it, and the next Load goes
// on from there.
func (x *Index) Load(ctx context.Context) error {
	select {
	case x.load <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-x.load }()
	return since(ctx, x.bucket, x.stream, x.next, func(e Entry) error {
		x.Add(e)
		return nil
	})
}

// Add puts an entry into the index that its process has appended itself, before a Load finds it.
func (x *Index) Add(e Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := place{e.Sink, e.Partition}
	reasons := x.mu.spans[at]
	if reasons == nil {
		reasons = map[string]*checkpoint.SpanSet{}
		x.mu.spans[at] = reasons
	}
	if reasons[e.Reason] == nil {
		reasons[e.Reason] = &checkpoint.SpanSet{}
	}
	reasons[e.Reason].Add(e.Span)
	if e.ID == (record.ID{}) {
		return
	}
	if x.mu.tails[e.Sink] == nil {
		x.mu.tails[e.Sink] = map[[8]byte]spot{}
	}
	if x.mu.parts[e.Partition] == nil {
		x.mu.parts[e.Partition] = &e.Partition
	}
	here, tail := spot{x.mu.parts[e.Partition], e.Span.From}, e.ID.Tail()
	if was, ok := x.mu.tails[e.Sink][tail]; ok && was != here {
		here = spot{}
	}
	x.mu.tails[e.Sink][tail] = here
}

// Rejected is where the record lies whose id ends so, if sink refused it. The trail does not know whether a later attempt was taken: only the
// sink does. A place without a partition is one that is not known, since the ids of two records end so.
func (x *Index) Rejected(sink string, tail [8]byte) (at Rejected, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, ok := x.mu.tails[sink][tail]
	if !ok {
		s, ok = x.mu.tails[""][tail]
	}
	if s.partition != nil {
		at = Rejected{*s.partition, s.offset}
	}
	return at, ok
}

// RejectsAny reports whether there is a record at all that sink refused.
func (x *Index) RejectsAny(sink string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.tails[sink])+len(x.mu.tails[""]) > 0
}

// Spans are the offsets of p that sink misses, by reason. Those that concern all sinks stand under the empty sink.
func (x *Index) Spans(p record.Partition, sink string) map[string]checkpoint.SpanSet {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[string]checkpoint.SpanSet{}
	for reason, s := range x.mu.spans[place{sink, p}] {
		out[reason] = s.Clone()
	}
	return out
}

// Counts are the numbers of offsets by sink and reason, over all partitions.
func (x *Index) Counts() map[Count]int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[Count]int64{}
	for at, reasons := range x.mu.spans {
		for reason, s := range reasons {
			out[Count{at.sink, reason}] += s.Len()
		}
	}
	return out
}
