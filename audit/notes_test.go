package audit

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// note notes records of the world as dropped, all for the record of offset 90.
func (w *world) note(from, to int64, offsets ...int64) {
	w.Helper()
	ids := record.NewHasher(part)
	id := func(o int64) (id record.ID) {
		w.check(w.opt.Raw.Read(w.Context(), part, checkpoint.Span{From: o, To: o + 1}, func(b *record.Batch) error {
			id = ids.ID(&b.Records[0])
			return nil
		}))
		return id
	}
	n := duplicates.Noted{Partition: part, Span: checkpoint.Span{From: from, To: to}}
	for _, o := range offsets {
		n.Dropped = append(n.Dropped, duplicates.Dropped{Offset: o, ID: id(o), Stands: id(90).Tail()})
	}
	x := duplicates.NewWriter(duplicates.Options{Bucket: w.bucket, Stream: "orders", Node: "n", Instance: "1"})
	w.check(x.Append(w.Context(), []duplicates.Noted{n}))
	w.check(x.Close())
}

// without lets the sink hold all rows but some.
func (w *world) without(offsets ...int64) {
	w.sink.rows = func(s checkpoint.Span) int64 {
		n := rowsIn(s.From, s.To)
		for _, o := range offsets {
			n -= s.Intersect(*at(o, o+1)).Len()
		}
		return n
	}
}

func (w *world) reject(sink string, offset int64) {
	w.Helper()
	ids := record.NewHasher(part)
	x := trail.NewWriter(trail.Options{Bucket: w.bucket, Stream: "orders", Node: "n", Instance: sink})
	w.check(w.opt.Raw.Read(w.Context(), part, checkpoint.Span{From: offset, To: offset + 1}, func(b *record.Batch) error {
		return x.Append(w.Context(), []trail.Entry{{Partition: part, Span: *at(offset, offset+1), Sink: sink, Reason: "sink", ID: ids.ID(&b.Records[0]), At: w.wrote}})
	}))
}

func (w *world) duplicates(change func(*Options)) int64 {
	w.Helper()
	o := w.opt
	if change != nil {
		change(&o)
	}
	r, err := Run(w.Context(), o)
	w.check(err)
	return r.Partitions[0].Sinks[0].LeftOut["duplicate"]
}

// D32: all records of a span are duplicates.
func TestCaseD32AuditAccountsForDuplicates(t *testing.T) {
	both(t, func(w *world) {
		all := []int64{40, 41, 42, 43, 44, 45, 46, 47, 48}
		w.note(40, 50, all...)
		w.note(60, 70, 61)
		w.without(append(slices.Clone(all), 61)...)
		w.wants("bookkeeping", nil, "accounted")
		w.wants("rows", rows, "accounted")
		w.wants("full", full, "accounted")
		for name, change := range map[string]func(*Options){"plain": nil, "rows": rows, "full": full} {
			if got := w.duplicates(change); got != 10 {
				t.Errorf("%s: %d duplicates are left out", name, got)
			}
		}
		w.without(all...)
		w.wants("one of them passed", rows, "accounted")
		w.without(append(slices.Clone(all), 61, 62)...)
		w.wants("one more is gone", rows, "unaccounted; rows_missing [60, 80)")
	})
}

// A note that names another record for an offset excuses nothing.
func TestAuditBelievesOnlyTheRightRecord(t *testing.T) {
	both(t, func(w *world) {
		x := duplicates.NewWriter(duplicates.Options{Bucket: w.bucket, Stream: "orders", Node: "n", Instance: "1"})
		w.check(x.Append(w.Context(), []duplicates.Noted{{Partition: part, Span: *at(40, 50), Dropped: []duplicates.Dropped{{Offset: 47, ID: record.ID{1}}}}}))
		w.without(47)
		w.wants("a row is gone", rows, "unaccounted; rows_missing [40, 60)")
	})
}

// A record was rejected that stands for others: these are unaccounted for until they are written, or rejected themselves.
func TestAuditFindsTwinsOfARejectedRecord(t *testing.T) {
	both(t, func(w *world) {
		w.note(40, 50, 42, 43)
		w.without(42, 43, 90)
		w.reject("other", 90)
		w.wants("another sink has rejected it", nil, "accounted")
		w.reject("lake", 90)
		w.wants("this sink has", nil, "unaccounted; twin [42, 44)")
		w.wants("rows", rows, "unaccounted; twin [42, 44)")
		w.sink.coverage = set(0, 40, 50, 100)
		now := func(o *Options) { o.Sinks[0].Deadline = 1 << 62 }
		w.wants("they are pending", now, "accounted")
		w.sink.coverage = set(0, 100)
		w.without(42, 90)
		w.wants("one is written", nil, "unaccounted; twin [42, 43)")
		w.reject("lake", 42)
		w.wants("the other was rejected too", nil, "accounted")
	})
}

// The sink has taken the record that it rejected before: its twins need nobody. Into a file nothing comes later, so that it is not asked.
func TestAuditLeavesTwinsOfARecordThatWasTakenLater(t *testing.T) {
	both(t, func(w *world) {
		w.note(40, 50, 42, 43)
		w.noteFor([2]int64{60, 91}, [2]int64{60, 90})
		w.reject("lake", 90)
		w.without(42, 43, 60, 90)
		w.wants("it is not there", nil, "unaccounted; twin [42, 61)")
		w.without(42, 43, 60)
		w.wants("it is", nil, "accounted")
		w.wants("rows", rows, "accounted")
		w.reject("lake", 91)
		w.without(42, 43, 60, 91)
		w.wants("one of two is not", nil, "unaccounted; twin [60, 61)")
		w.opt.Sinks[0].Cuts = noCuts{}
		w.wants("files", nil, "unaccounted; twin [42, 61)")
	})
}

// noCuts has no empty cut.
type noCuts struct{ sinks.Cuts }

func (noCuts) Empties(context.Context, record.Partition) (checkpoint.SpanSet, error) {
	return checkpoint.SpanSet{}, nil
}

func TestAuditNamesDamagedNotes(t *testing.T) {
	w := newWorld(t, "mem://"+t.Name())
	w.note(40, 50, 42)
	w.note(60, 70, 61)
	key := "orders/_duplicates/" + part.Path() + "/" + record.OffsetName(40) + ".avro"
	body, err := w.bucket.Read(w.Context(), key)
	w.check(err)
	body[len(body)-20] ^= 1
	w.check(w.bucket.Replace(w.Context(), key, body))
	w.wants("damage", full, "damaged; damage")
}

// noteFor notes records of the world as dropped, each for the sake of another: pairs of offsets. Offset -1 is a record that raw has not.
func (w *world) noteFor(pairs ...[2]int64) {
	w.Helper()
	ids := record.NewHasher(part)
	id := func(o int64) (id record.ID) {
		w.check(w.opt.Raw.Read(w.Context(), part, checkpoint.Span{From: max(o, 0), To: max(o, 0) + 1}, func(b *record.Batch) error {
			r := b.Records[0]
			r.Offset = o
			id = ids.ID(&r)
			return nil
		}))
		return id
	}
	x := duplicates.NewWriter(duplicates.Options{Bucket: w.bucket, Stream: "orders", Node: "n", Instance: "1"})
	for _, p := range pairs {
		w.check(x.Append(w.Context(), []duplicates.Noted{{Partition: part, Span: checkpoint.Span{From: p[0], To: p[0] + 1},
			Dropped: []duplicates.Dropped{{Offset: p[0], ID: id(p[0]), Stands: id(p[1]).Tail()}}}}))
	}
	w.check(x.Close())
}

func TestAuditFindsWhomNobodyStandsFor(t *testing.T) {
	f := func(want string, pairs ...[2]int64) {
		t.Helper()
		w := newWorld(t, "file://"+t.TempDir())
		w.noteFor(pairs...)
		gone := map[int64]bool{}
		for _, p := range pairs {
			gone[p[0]] = true
		}
		w.without(slices.Sorted(maps.Keys(gone))...)
		for _, whole := range []bool{false, true} {
			o := w.opt
			o.Rows, o.Full = whole, !whole
			r, err := Run(t.Context(), o)
			w.check(err)
			got := ""
			for _, x := range r.Findings {
				if x.Kind != "orphan" {
					t.Errorf("%v: %s", pairs, x.Text)
				}
				got += x.Span.String()
			}
			if got != want {
				t.Errorf("%v with rows %v: orphans %q, want %q", pairs, whole, got, want)
			}
		}
	}
	f("", [2]int64{3, 90})
	f("[3, 4)", [2]int64{3, -1})
	f("", [2]int64{3, -1}, [2]int64{3, 90}) // one of two stands
	f("", [2]int64{3, 5}, [2]int64{5, 7}, [2]int64{7, 90})
	f("[3, 4)[5, 6)", [2]int64{3, 5}, [2]int64{5, 3})
	f("[3, 4)[5, 6)[7, 8)", [2]int64{7, 3}, [2]int64{3, 5}, [2]int64{5, 3}, [2]int64{11, 90})
}
