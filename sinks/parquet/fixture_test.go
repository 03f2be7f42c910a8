package parquet

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/sinktest"
	"github.com/stream-arrow/twgd/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformanceOnFiles(t *testing.T) {
	conform(t, func(t *testing.T) string { return "file://" + t.TempDir() })
}
func TestConformanceOnObjects(t *testing.T) { conform(t, memURL) }

func memURL(t *testing.T) string { return "mem://" + fmt.Sprintf("%x", t.Name()) }

func conform(t *testing.T, url func(t *testing.T) string) {
	for _, compression := range []string{"zstd", "snappy", "none"} {
		t.Run(compression, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
				target := url(t)
				b := openFaulty(t, target)
				open := func(t *testing.T) sinks.Sink { return newSink(t, b, Options{Compression: compression}) }
				return sinktest.Fixture{
					Topic: "_conformance",
					Sink:  open,
					Read:  func(t *testing.T, p record.Partition) []sinktest.Row { return readAll(t, open(t).(*Sink), p) },
					Break: func(*testing.T) func() {
						b.set(func(string) error { return fmt.Errorf("the network is away") })
						return func() { b.set(nil) }
					},
					Spoil: func(r *record.Record) { r.Headers = []record.Header{{Key: "a"}, {Key: "\xff"}} },
				}
			})
		})
	}
}

func newSink(t testing.TB, b store.Bucket, o Options) *Sink {
	t.Helper()
	o.Bucket, o.Stream = b, "orders"
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readAll reads all files of p, in the order of their names.
func readAll(t testing.TB, s *Sink, p record.Partition) (rows []sinktest.Row) {
	t.Helper()
	files, err := s.Files(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := s.ReadFile(t.Context(), f, func(id record.ID, r *record.Record) error {
			rows = append(rows, sinktest.Row{ID: id, Record: *r})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// faulty is a bucket whose operations fail as fault says, which is told their names.
type faulty struct {
	store.Bucket
	mu      sync.Mutex
	fault   func(op string) error
	calls   map[string]int
	refused int
}

func openFaulty(t testing.TB, url string) *faulty {
	t.Helper()
	b, err := store.Open(context.Background(), url, store.Options{SpoolDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &faulty{Bucket: b, calls: map[string]int{}}
}

func (b *faulty) set(fault func(op string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = fault
}

func (b *faulty) fail(op string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[op]++
	if b.fault == nil {
		return nil
	}
	err := b.fault(op)
	if err != nil {
		b.refused++
	}
	return err
}

func (b *faulty) Probe(ctx context.Context) error {
	if err := b.fail("probe"); err != nil {
		return err
	}
	return b.Bucket.Probe(ctx)
}

func (b *faulty) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := b.fail("read"); err != nil {
		return nil, err
	}
	return b.Bucket.ReadRange(ctx, key, off, n)
}

func (b *faulty) List(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	if err := b.fail("list"); err != nil {
		return nil, err
	}
	return b.Bucket.List(ctx, prefix, after, limit)
}

func (b *faulty) Stage(ctx context.Context) (store.Stage, error) {
	if err := b.fail("stage"); err != nil {
		return nil, err
	}
	s, err := b.Bucket.Stage(ctx)
	return &faultyStage{Stage: s, b: b}, err
}

type faultyStage struct {
	store.Stage
	b      *faulty
	stored bool
}

func (s *faultyStage) Write(p []byte) (int, error) {
	if err := s.b.fail("write"); err != nil {
		return 0, err
	}
	return s.Stage.Write(p)
}

// Publish may fail before the object is stored, or after it: a lost reply.
func (s *faultyStage) Publish(ctx context.Context, key string) error {
	if err := s.b.fail("publish"); err != nil {
		return err
	}
	if s.stored { // and its reply was lost
		return &store.Error{Op: "publish", Key: key, Kind: store.ErrExists}
	}
	if err := s.Stage.Publish(ctx, key); err != nil {
		return err
	}
	s.stored = true
	return s.b.fail("published")
}

var partition = record.Partition{Cluster: "c1", Topic: "orders", TopicID: [16]byte{1, 2, 3, 4, 5}, Number: 7}

func rowsOf(p record.Partition, from, to int64, records ...record.Record) *row.Batch {
	b := &row.Batch{Partition: p, Span: checkpoint.Span{From: from, To: to}, Records: records}
	b.IDs = record.NewHasher(p).IDs(nil, records)
	return b
}

func loadOf(t testing.TB, s *Sink, batches ...*row.Batch) *load {
	t.Helper()
	l, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Discard)
	for _, b := range batches {
		if err := l.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	return l.(*load)
}
