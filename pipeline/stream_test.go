package pipeline_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/store"
)

var orders = record.Partition{Cluster: "c", Topic: "orders", Number: 0}

// script is a source whose events a test writes.
type script struct {
	events  chan sources.Event
	gate    sources.Gate
	mu      sync.Mutex
	commits []sources.Position
	seeks   []int64
}

func (s *script) Traits() sources.Traits { return sources.Traits{Kind: "script", Replayable: true} }
func (s *script) Open(_ context.Context, g sources.Gate) error {
	s.gate = g
	return nil
}
func (s *script) Next(ctx context.Context) (sources.Event, error) {
	select {
	case ev := <-s.events:
		return ev, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
func (s *script) Pause()                           {}
func (s *script) Resume()                          {}
func (s *script) Seek(_ record.Partition, n int64) { s.seeks = append(s.seeks, n) }
func (s *script) Rejoin()                          {}
func (s *script) Commit(_ context.Context, ps []sources.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits = append(s.commits, ps...)
	return nil
}
func (s *script) Close(context.Context) error { return nil }

// table is a sink that keeps rows in memory.
type table struct {
	mu   sync.Mutex
	rows map[record.ID]int64
	set  checkpoint.SpanSet
	fail error
}

func (t *table) Traits() sinks.Traits       { return sinks.Traits{Kind: "table"} }
func (t *table) Open(context.Context) error { return nil }
func (t *table) Begin() (sinks.Load, error) {
	return &tableLoad{t: t, spans: map[record.Partition]checkpoint.SpanSet{}}, nil
}
func (t *table) Coverage(context.Context, record.Partition) (checkpoint.SpanSet, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.set.Clone(), nil
}
func (t *table) Count(context.Context, record.Partition, []checkpoint.Span) ([]int64, error) {
	return nil, nil
}
func (t *table) Close() error { return nil }

type tableLoad struct {
	t     *table
	ids   []record.ID
	spans map[record.Partition]checkpoint.SpanSet
}

func (l *tableLoad) Add(b *row.Batch) error {
	l.ids = append(l.ids, b.IDs...)
	set := l.spans[b.Partition]
	set.Add(b.Span)
	l.spans[b.Partition] = set
	return nil
}
func (l *tableLoad) Size() sinks.Size {
	return sinks.Size{Rows: int64(len(l.ids)), Held: int64(len(l.ids)) * 100, Out: int64(len(l.ids)) * 100}
}
func (l *tableLoad) Spans() map[record.Partition]checkpoint.SpanSet { return l.spans }
func (l *tableLoad) Discard()                                       {}
func (l *tableLoad) Commit(context.Context, sinks.Report) (sinks.Receipt, error) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if l.t.fail != nil {
		return sinks.Receipt{}, l.t.fail
	}
	for _, id := range l.ids {
		l.t.rows[id]++
	}
	for _, s := range l.spans {
		l.t.set.Union(s)
	}
	return sinks.Receipt{Spans: l.spans, Rows: int64(len(l.ids))}, nil
}

func batch(epoch uint64, first, next int64) *record.Batch {
	b := &record.Batch{Partition: orders, Epoch: epoch, First: first, Next: next, LeaderEpoch: 1}
	for o := first; o < next; o++ {
		b.Records = append(b.Records, record.Record{Offset: o, Timestamp: o, Value: []byte(fmt.Sprint(o))})
	}
	return b.Weigh(nil)
}

func TestRecordsReachRawThenTheSinkAndTheSourceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := store.Open(t.Context(), "mem://"+t.Name(), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := raw.Open(t.Context(), raw.Options{Bucket: b, Stream: "s", Codec: "zstd"})
		if err != nil {
			t.Fatal(err)
		}
		src := &script{events: make(chan sources.Event)}
		sink := &table{rows: map[record.ID]int64{}}
		lane := pipeline.NewLane(pipeline.LaneOptions{Stream: "s", Name: "t", Sink: sink, Roll: pipeline.Roll{Rows: 1000, Age: time.Second},
			Deadline: time.Minute, Queue: 1 << 20, Covered: func(record.Partition, checkpoint.SpanSet) {}, Log: slog.New(slog.DiscardHandler)})
		s := pipeline.New(pipeline.Options{Stream: "s", Source: src, Raw: r, Lanes: []*pipeline.Lane{lane},
			Flush: pipeline.Flush{Bytes: 1 << 20, Records: 100, Age: 100 * time.Millisecond}, Budget: 1 << 20, Grace: 10 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		start, err := src.gate(ctx, orders, func(context.Context) (int64, error) { return 5, nil })
		if err != nil || start.Next != 5 {
			t.Fatal(start, err)
		}
		src.events <- sources.Assigned{Partitions: []sources.Assignment{{Partition: orders, Epoch: 1, Next: 5}}}
		src.events <- sources.Polled{Batches: []*record.Batch{batch(1, 5, 300), batch(1, 300, 310)}}
		time.Sleep(3 * time.Second)
		if len(sink.rows) != 305 {
			t.Errorf("the sink has %d rows", len(sink.rows))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(src.commits) == 0 || src.commits[len(src.commits)-1].Next != 310 {
			t.Errorf("committed %v", src.commits)
		}
		head, err := r.Head(t.Context(), orders)
		if err != nil || head.Next != 310 {
			t.Error(head, err)
		}
	})
}
