package pipeline_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/content"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sources"
)

// discard is a raw store that forgets everything, and says when it has had enough.
type discard struct {
	sinks.Raw
	want int64
	done chan struct{}
}

func (d *discard) Begin(context.Context, record.Partition, func(context.Context) (int64, error)) (sinks.Head, error) {
	return sinks.Head{}, nil
}

func (d *discard) Append(_ context.Context, p record.Partition, batches []*record.Batch) (sinks.Stored, error) {
	next := batches[len(batches)-1].Next
	if p.Number == 0 && next >= d.want && d.done != nil {
		close(d.done)
		d.done = nil
	}
	return sinks.Stored{Head: sinks.Head{Next: next}, Ours: true}, nil
}

func (d *discard) End(record.Partition) {}

// endless is a source of one busy partition among idle ones.
type endless struct {
	partitions int
	records    []record.Record
	next       int64
	paused     atomic.Bool
	resumed    chan struct{}
	told       bool
}

func (e *endless) Traits() sources.Traits                           { return sources.Traits{} }
func (e *endless) Open(context.Context, sources.Gate) error         { return nil }
func (e *endless) Seek(record.Partition, int64)                     {}
func (e *endless) Buffered() int64                                  { return 0 }
func (e *endless) Rejoin()                                          {}
func (e *endless) Commit(context.Context, []sources.Position) error { return nil }
func (e *endless) Close(context.Context) error                      { return nil }
func (e *endless) Pause()                                           { e.paused.Store(true) }
func (e *endless) Resume() {
	e.paused.Store(false)
	select {
	case e.resumed <- struct{}{}:
	default:
	}
}

func (e *endless) Next(ctx context.Context) (sources.Event, error) {
	if !e.told {
		e.told = true
		var as sources.Assigned
		for n := range e.partitions {
			as.Partitions = append(as.Partitions, sources.Assignment{Partition: record.Partition{Topic: "t", Number: int32(n)}, Epoch: 1})
		}
		return as, nil
	}
	for e.paused.Load() {
		select {
		case <-e.resumed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	b := &record.Batch{Partition: record.Partition{Topic: "t"}, Epoch: 1, First: e.next, Next: e.next + int64(len(e.records)), Records: e.records}
	e.next = b.Next
	return sources.Polled{Batches: []*record.Batch{b.Weigh(nil)}}, nil
}

// BenchmarkGate carries batches of 500 records of 200 bytes to a raw store that forgets them: what is left is the controller's cost a
// batch, with one assigned partition and with 2,000 idle ones beside it.
func BenchmarkGate(b *testing.B) {
	records := make([]record.Record, 500)
	for i := range records {
		records[i] = record.Record{Value: make([]byte, 200)}
	}
	for _, partitions := range []int{1, 2001} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			src := &endless{partitions: partitions, records: records, resumed: make(chan struct{}, 1)}
			done := make(chan struct{})
			raw := &discard{want: int64(b.N) * int64(len(records)), done: done}
			s := pipeline.New(pipeline.Options{Stream: "s", Source: src, Raw: raw, Budget: 256 << 20,
				Flush: pipeline.Flush{Bytes: 16 << 20, Records: 50_000, Age: 100 * time.Millisecond}})
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error)
			b.ReportAllocs()
			go func() { ended <- s.Run(ctx) }()
			<-done
			cancel()
			if err := <-ended; err != nil {
				b.Error(err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/record")
		})
	}
}

// nowhere is a sink that takes everything and keeps nothing.
type nowhere struct{ sinks.Sink }

func (nowhere) Traits() sinks.Traits       { return sinks.Traits{Kind: "nowhere"} }
func (nowhere) Open(context.Context) error { return nil }
func (nowhere) Begin() (sinks.Load, error) {
	return &swallow{spans: map[record.Partition]checkpoint.SpanSet{}}, nil
}
func (nowhere) Coverage(context.Context, record.Partition) (checkpoint.SpanSet, error) {
	return checkpoint.SpanSet{}, nil
}

type swallow struct {
	rows  int64
	spans map[record.Partition]checkpoint.SpanSet
}

func (s *swallow) Add(b *row.Batch) error {
	set := s.spans[b.Partition]
	set.Add(b.Span)
	s.spans[b.Partition] = set
	s.rows += int64(len(b.Records))
	return nil
}

func (s *swallow) Size() sinks.Size                               { return sinks.Size{Rows: s.rows} }
func (s *swallow) Spans() map[record.Partition]checkpoint.SpanSet { return s.spans }
func (s *swallow) Discard()                                       {}
func (s *swallow) Commit(context.Context, sinks.Report) (sinks.Receipt, error) {
	return sinks.Receipt{Spans: s.spans, Rows: s.rows}, nil
}

// fifth is claims that are answered at once: every twentieth row is held.
type fifth struct{}

func (fifth) Key(context.Context) (key [32]byte, err error) { return key, nil }

func (fifth) Claim(_ context.Context, _ *[32]byte, rows [][24]byte) (held []content.Held, err error) {
	for i := 0; i < len(rows); i += 20 {
		held = append(held, content.Held{Row: i, By: [8]byte{1}})
	}
	return held, nil
}

// BenchmarkScreening is BenchmarkGate with a lane into nowhere, without screening, and with it where claims cost nothing and 5 % are dropped:
// the difference is the stage, the hashes and the copies of rows. Values are JSON of 200 bytes.
func BenchmarkScreening(b *testing.B) {
	records := make([]record.Record, 500)
	for i := range records {
		value := fmt.Appendf(nil, `{"order":"0191d7a2-6c1e-7b3f-9a55-%012d","customer":48151623,"status":"paid","at":"2026-11-30T00:00:00Z",`+
			`"amount":{"sum":1299.95,"currency":"EUR"},"note":"`, i)
		records[i] = record.Record{Value: append(append(value, make([]byte, 198-len(value))...), `"}`...)}
		for j := range records[i].Value {
			if records[i].Value[j] == 0 {
				records[i].Value[j] = 'x'
			}
		}
	}
	for _, on := range [][]string{nil, {content.OnValue}, {content.OnFields, "order"}, {content.OnFields, "order", "status", "amount.sum"}} {
		name := "none"
		if len(on) > 0 {
			name = fmt.Sprintf("%s%d", on[0], len(on)-1)
		}
		b.Run(name, func(b *testing.B) {
			src := &endless{partitions: 1, records: records, resumed: make(chan struct{}, 1)}
			done := make(chan struct{})
			raw := &discard{want: int64(b.N) * int64(len(records)), done: done}
			lane := pipeline.NewLane(pipeline.LaneOptions{Stream: "s", Name: "t", Sink: nowhere{}, Roll: pipeline.Roll{Rows: 100_000, Age: time.Second},
				Deadline: time.Hour, Queue: 1 << 40})
			opt := pipeline.Options{Stream: "s", Source: src, Raw: raw, Lanes: []*pipeline.Lane{lane}, Budget: 256 << 20,
				Flush: pipeline.Flush{Bytes: 16 << 20, Records: 50_000, Age: 100 * time.Millisecond}}
			if len(on) > 0 {
				s, err := content.New(content.Options{Stream: "s", On: on[0], Fields: on[1:], Claims: fifth{}})
				if err != nil {
					b.Fatal(err)
				}
				opt.Screening = &pipeline.Screening{Contents: s, Drop: true, Note: func(context.Context, []duplicates.Noted) error { return nil }}
			}
			s := pipeline.New(opt)
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error)
			b.ReportAllocs()
			go func() { ended <- s.Run(ctx) }()
			<-done
			cancel()
			if err := <-ended; err != nil {
				b.Error(err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/record")
		})
	}
}
