package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
)

var part = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{1}}

// world is raw of one partition with 10 commits of 10 offsets, of which each holds 9 records, and a sink that answers as told.
type world struct {
	*testing.T
	bucket store.Bucket
	wrote  time.Time // of the last commit; each is a minute after the one before
	sink   *scripted
	opt    Options
	reads  int
}

type scripted struct {
	sinks.Sink
	coverage checkpoint.SpanSet
	rows     func(checkpoint.Span) int64
	err      error
}

func (s *scripted) Coverage(context.Context, record.Partition) (checkpoint.SpanSet, error) {
	return s.coverage.Clone(), s.err
}

func (s *scripted) Count(_ context.Context, _ record.Partition, spans []checkpoint.Span) ([]int64, error) {
	var out []int64
	for _, sp := range spans {
		out = append(out, s.rows(sp))
	}
	return out, s.err
}

type broker struct {
	r map[record.Partition]checkpoint.Span
}

func (b broker) Ranges(context.Context) (map[record.Partition]checkpoint.Span, error) {
	return b.r, nil
}

// counted counts what is read.
type counted struct {
	*raw.Store
	n *int
}

func (c counted) Read(ctx context.Context, p record.Partition, s checkpoint.Span, f func(*record.Batch) error) error {
	return c.Store.Read(ctx, p, s, func(b *record.Batch) error { *c.n++; return f(b) })
}

func newWorld(t *testing.T, url string) *world {
	t.Helper()
	w := &world{T: t, wrote: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	bucket, err := store.Open(t.Context(), url, store.Options{})
	w.check(err)
	t.Cleanup(func() { bucket.Close() })
	w.bucket = bucket
	r, err := raw.Open(t.Context(), raw.Options{Bucket: bucket, Stream: "orders", Codec: "null", Roll: 1, Now: func() time.Time { return w.wrote }})
	w.check(err)
	_, err = r.Begin(t.Context(), part, func(context.Context) (int64, error) { return 0, nil })
	w.check(err)
	for i := int64(0); i < 10; i++ {
		w.wrote = w.wrote.Add(time.Minute)
		b := &record.Batch{Partition: part, First: i * 10, Next: i*10 + 10, LeaderEpoch: -1}
		for o := b.First; o < b.Next-1; o++ {
			b.Records = append(b.Records, record.Record{Offset: o, Value: fmt.Appendf(nil, "%d", o)})
		}
		_, err := r.Append(t.Context(), part, []*record.Batch{b})
		w.check(err)
	}
	w.check(r.Close())
	look, err := raw.Open(t.Context(), raw.Options{Bucket: bucket, Stream: "orders", Codec: "null", ReadOnly: true})
	w.check(err)
	w.sink = &scripted{coverage: set(0, 100), rows: func(s checkpoint.Span) int64 { return rowsIn(s.From, s.To) }}
	w.opt = Options{Stream: "orders", Raw: counted{look, &w.reads}, Bucket: bucket, Window: 20,
		Broker: broker{map[record.Partition]checkpoint.Span{part: {From: 0, To: 100}}},
		Sinks:  []Sink{{Name: "lake", Deadline: 5 * time.Minute, Sink: w.sink}}, Now: func() time.Time { return w.wrote.Add(time.Hour) }}
	return w
}

// rowsIn is how many records raw has in [from, to): the last offset of each ten has none.
func rowsIn(from, to int64) (n int64) {
	for o := from; o < to; o++ {
		if o%10 != 9 {
			n++
		}
	}
	return n
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) audit(change func(*Options)) string {
	w.Helper()
	w.reads = 0
	o := w.opt
	if change != nil {
		change(&o)
	}
	r, err := Run(w.Context(), o)
	w.check(err)
	return inShort(r)
}

func (w *world) wants(what string, change func(*Options), want string) {
	w.Helper()
	if got := w.audit(change); got != want {
		w.Errorf("%s: %s, want %s", what, got, want)
	}
}

func rows(o *Options) { o.Rows = true }
func full(o *Options) { o.Full = true }

func both(t *testing.T, f func(w *world)) {
	for name, url := range map[string]string{"files": "file://" + t.TempDir(), "objects": "mem://" + t.Name()} {
		t.Run(name, func(t *testing.T) { f(newWorld(t, url)) })
	}
}

func TestAuditOfAWholeStream(t *testing.T) {
	both(t, func(w *world) {
		w.wants("first", nil, "accounted")
		if w.reads != 10 {
			w.Errorf("the first audit read %d commits", w.reads)
		}
		w.wants("second", nil, "accounted")
		if w.reads != 1 {
			w.Errorf("the second audit read %d commits, and only the last segment can have grown", w.reads)
		}
		w.wants("full", full, "accounted")
		if w.reads != 10 {
			w.Errorf("a full audit read %d commits", w.reads)
		}
		w.wants("rows", rows, "accounted")
	})
}

func TestAuditFindsRows(t *testing.T) {
	both(t, func(w *world) {
		gone := checkpoint.Span{From: 47, To: 48}
		w.sink.rows = func(s checkpoint.Span) int64 {
			n := rowsIn(s.From, s.To)
			if s.Overlaps(gone) {
				n--
			}
			return n
		}
		w.wants("bookkeeping alone", nil, "accounted")
		w.wants("a row is gone", rows, "unaccounted; rows_missing [40, 60)")
		x := trail.NewWriter(trail.Options{Bucket: w.bucket, Stream: "orders", Node: "n", Instance: "1"})
		w.check(x.Append(w.Context(), []trail.Entry{{Partition: part, Span: gone, Sink: "lake", Reason: "sink", At: w.wrote}}))
		w.wants("it was rejected", rows, "accounted")
		w.sink.rows = func(s checkpoint.Span) int64 { return rowsIn(s.From, s.To) + s.Intersect(*at(90, 91)).Len() }
		w.wants("a row is there twice", rows, "unaccounted; rows_extra [80, 100)")
		w.sink.err = errors.New("away")
		w.wants("the sink is away, and no copy was ever written", rows, "unaccounted; missing [0, 47); missing [48, 100); uncounted")
	})
}

func TestAuditAsksTheCopies(t *testing.T) {
	both(t, func(w *world) {
		p := coverage.NewPublisher(coverage.Options{Bucket: w.bucket, Stream: "orders", Node: "n~1"})
		p.Covered("lake", part, set(0, 80))
		w.check(p.Flush(w.Context()))
		w.sink.coverage = set(0, 30, 40, 90)
		now := func(o *Options) { o.Now = func() time.Time { return w.wrote.Add(time.Minute) } }
		w.wants("a part is gone, the end is young", now, "unaccounted; lost [30, 40)")
		w.wants("the end is old", nil, "unaccounted; lost [30, 40); missing [90, 100)")
		w.sink.err = errors.New("away")
		w.wants("the sink is away", now, "accounted")
	})
}

func TestAuditOfASinkThatHasNotBegun(t *testing.T) {
	both(t, func(w *world) {
		w.sink.coverage = set(0, 100) // is not asked
		fresh := func(o *Options) {
			o.Sinks[0].Ready = func(context.Context) error { return fmt.Errorf("%w: table missing", ErrNotBegun) }
			o.Sinks[0].Deadline = 24 * time.Hour
			o.Rows = true
		}
		w.wants("all is pending", fresh, "accounted")
	})
}

func TestAuditFindsDamage(t *testing.T) {
	both(t, func(w *world) {
		w.wants("whole", nil, "accounted")
		middle := w.remove(50)
		w.wants("a segment in the middle is gone", nil, "damaged; damage")
		w.wants("so says a full audit", full, "damaged; damage")
		middle()
		last := w.remove(90)
		w.wants("the last one is gone", nil, "unaccounted; ahead [90, 100)")
		last()
		w.wants("all is back", nil, "accounted")
		last = w.remove(90)
		before := w.remove(80)
		if got := w.audit(nil); !strings.HasPrefix(got, "damaged; damage") {
			w.Errorf("an earlier audit has read further: %s", got)
		}
		before()
		last()
		if dir, ok := w.bucket.Local(); ok {
			w.check(os.Remove(filepath.Join(dir, "orders", part.Path(), "_genesis")))
		} else {
			w.check(w.bucket.Delete(w.Context(), "orders/"+part.Path()+"/_genesis"))
		}
		if got := w.audit(nil); !strings.HasPrefix(got, "damaged; damage") {
			w.Errorf("without a genesis: %s", got)
		}
	})
}

// remove takes the segment away that begins at first, and returns what brings it back.
func (w *world) remove(first int64) func() {
	w.Helper()
	key := "orders/" + part.Path() + "/" + record.OffsetName(first) + ".avro"
	body, err := w.bucket.Read(w.Context(), key)
	w.check(err)
	w.check(w.bucket.Delete(w.Context(), key))
	return func() { w.Helper(); w.check(w.bucket.Create(w.Context(), key, body)) }
}
