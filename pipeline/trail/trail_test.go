package trail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/avro/ocf"
	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var orders = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{0xab, 15: 1}, Number: 4, Generation: 2}

func entry(offset int64) Entry {
	return Entry{Partition: orders, Span: checkpoint.Span{From: offset, To: offset + 1}, Sink: "db", Reason: "sink",
		Detail: "22001 column v", ID: record.ID{1, 2, 15: 9}, At: time.UnixMilli(1_700_000_000_123).UTC()}
}

func newWriter(b *faultbucket.Bucket, node string) *Writer {
	return NewWriter(Options{Bucket: b, Stream: "s", Node: node, Instance: "i"})
}

func all(t *testing.T, b *faultbucket.Bucket) (got []Entry) {
	t.Helper()
	if err := All(t.Context(), b, "s", func(e Entry) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func offsets(entries []Entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, fmt.Sprint(e.Span.From))
	}
	return strings.Join(out, " ")
}

func add(t *testing.T, w *Writer, offsets ...int64) {
	t.Helper()
	var es []Entry
	for _, o := range offsets {
		es = append(es, entry(o))
	}
	if err := w.Append(t.Context(), es); err != nil {
		t.Fatal(err)
	}
}

func TestReadsBackWhatWasAppended(t *testing.T) {
	b := faultbucket.New()
	span := Entry{Partition: record.Partition{Topic: "ü"}, Span: checkpoint.Span{From: 0, To: 1<<63 - 1}, Reason: "skip", At: time.UnixMilli(-5).UTC()}
	want := []Entry{entry(7), span}
	if err := newWriter(b, "n").Append(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got := all(t, b); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if keys := b.Keys(); len(keys) != 1 || keys[0] != "s/_trail/n~i/00000000000000000000.avro" {
		t.Error(keys)
	}
}

// A general Avro library reads the same file.
func TestAvroReads(t *testing.T) {
	b := faultbucket.New()
	add(t, newWriter(b, "n"), 7, 8)
	r, err := ocf.NewReader(bytes.NewReader(b.Get(b.Keys()[0])))
	if err != nil {
		t.Fatal(err)
	}
	if m := r.Metadata(); string(m["twgd.count"]) != "2" || string(m["twgd.sequence"]) != "0" || string(m["twgd.node"]) != "n" {
		t.Errorf("metadata %q", m)
	}
	var got []map[string]any
	for {
		var row any
		if err := r.Decode(&row); err != nil {
			break
		}
		got = append(got, row.(map[string]any))
	}
	if len(got) != 2 || got[1]["from"] != int64(8) || got[1]["topic_id"] != "ab000000000000000000000000000001" || got[0]["reason"] != "sink" {
		t.Errorf("%v", got)
	}
}

func TestRefusesWhatSaysNothing(t *testing.T) {
	f := func(change func(*Entry)) {
		t.Helper()
		e, b := entry(1), faultbucket.New()
		change(&e)
		if err := newWriter(b, "n").Append(t.Context(), []Entry{e}); err == nil || len(b.Keys()) > 0 {
			t.Errorf("%+v is taken", e)
		}
	}
	f(func(e *Entry) { e.Span.To = e.Span.From })
	f(func(e *Entry) { e.Span.From = -1 })
	f(func(e *Entry) { e.Reason = "" })
	b := faultbucket.New()
	if err := newWriter(b, "n").Append(t.Context(), nil); err != nil || len(b.Keys()) > 0 {
		t.Error("nothing is stored as something")
	}
	e := entry(1)
	e.Detail = "a\xffb"
	if err := newWriter(b, "n").Append(t.Context(), []Entry{e}); err != nil || all(t, b)[0].Detail != "a\ufffdb" {
		t.Error("a detail that is not UTF-8")
	}
}

func TestGoesOnAfterARestart(t *testing.T) {
	b := faultbucket.New()
	add(t, newWriter(b, "n"), 1)
	add(t, newWriter(b, "n"), 2)
	add(t, newWriter(b, "m"), 3)
	if want := "s/_trail/m~i/00000000000000000000.avro s/_trail/n~i/00000000000000000000.avro s/_trail/n~i/00000000000000000001.avro"; strings.Join(b.Keys(), " ") != want {
		t.Error(b.Keys())
	}
	if got := offsets(all(t, b)); got != "3 1 2" {
		t.Error(got)
	}
}

func TestLostReplies(t *testing.T) {
	// Two appends under these faults, each repeated until it succeeds; want are the offsets stored.
	f := func(want string, faults ...faultbucket.Fault) {
		t.Helper()
		b := faultbucket.New()
		w := newWriter(b, "n")
		b.Script("create", faults...)
		for o := range int64(2) {
			for tries := 0; w.Append(t.Context(), []Entry{entry(o)}) != nil; tries++ {
				if tries > len(faults) {
					t.Fatal("it never succeeds")
				}
				for b.Pending() > 0 {
					b.Land(0, false)
				}
			}
		}
		if got := offsets(all(t, b)); got != want {
			t.Errorf("%v: stored %s, want %s", faults, got, want)
		}
	}
	n, r, l, m, v, late := faultbucket.None, faultbucket.Refuse, faultbucket.Lost, faultbucket.Mine, faultbucket.Vanish, faultbucket.Late
	f("0 1", n, n)
	f("0 1", r, r, n, r)
	f("0 1", l, l)
	f("0 1", m, m)
	f("0 1", v, v, n)
	f("0 1", v, v, v, n)
	f("0 0 1", late, late, late) // the first of three late ones lands after the caller has been told; the next append passes it by
	f("0 1", late, n)
}

// What a dead process had on its way lands after its successor has begun: the successor passes it by.
func TestLateWriteOfADeadProcess(t *testing.T) {
	b := faultbucket.New()
	b.Script("create", faultbucket.Late, faultbucket.Late, faultbucket.Late)
	if err := newWriter(b, "n").Append(t.Context(), []Entry{entry(1)}); err == nil {
		t.Fatal("a lost write is durable")
	}
	next := newWriter(b, "n")
	add(t, next, 2)
	for b.Pending() > 0 {
		b.Land(0, false)
	}
	add(t, next, 3)
	if got := offsets(all(t, b)); got != "2 3" {
		t.Error(got)
	}
}

// While one object is on its way, what a hundred lanes bring becomes one more.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faultbucket.New()
		w := newWriter(b, "n")
		slow, release := context.WithCancel(t.Context())
		first := true
		b.Fault(func(c faultbucket.Call) faultbucket.Fault {
			if c.Op == "create" && first {
				first = false
				return faultbucket.Hang
			}
			return faultbucket.None
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := w.Append(slow, []Entry{entry(0)}); err == nil {
				t.Error("a write that hung is durable")
			}
		})
		synctest.Wait()
		for o := range int64(100) {
			wg.Go(func() { add(t, w, o+1) })
		}
		synctest.Wait()
		release()
		wg.Wait()
		if n := len(b.Keys()); n != 1 || len(all(t, b)) != 100 {
			t.Errorf("%d objects hold %d entries", n, len(all(t, b)))
		}
	})
}

// Whoever writes for others gives up: they do not, and write themselves.
func TestTheWriterOfAGroupGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faultbucket.New()
		w := newWriter(b, "n")
		b.Script("create", faultbucket.Hang, faultbucket.Hang)
		var wg sync.WaitGroup
		for _, seconds := range []time.Duration{1, 2} { // the second waits for the first, then has the turn for 3 as well
			ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
			defer cancel()
			wg.Go(func() {
				if err := w.Append(ctx, []Entry{entry(int64(seconds))}); err == nil {
					t.Errorf("write %d hung and is durable", seconds)
				}
			})
			synctest.Wait()
		}
		begin := time.Now()
		add(t, w, 3)
		if d := time.Since(begin); d != 2*time.Second || offsets(all(t, b)) != "3" {
			t.Errorf("after %v stored are %s", d, offsets(all(t, b)))
		}
		wg.Wait()
	})
}

func TestCallersContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faultbucket.New()
		w := newWriter(b, "n")
		b.Fault(func(faultbucket.Call) faultbucket.Fault { return faultbucket.Hang })
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- w.Append(long, []Entry{entry(1)}) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := w.Append(short, []Entry{entry(2)}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if err := <-done; err == nil {
			t.Error("a write that hung is durable")
		}
	})
}

func TestDamage(t *testing.T) {
	b := faultbucket.New()
	add(t, newWriter(b, "n"), 1, 2, 3)
	key := b.Keys()[0]
	whole := b.Get(key)
	want := all(t, b)
	same := 0 // some bits of a compressed block, of codes that it does not use, mean nothing
	f := func(what string, body []byte) {
		t.Helper()
		b.Put(key, body)
		var got []Entry
		err := All(t.Context(), b, "s", func(e Entry) error { got = append(got, e); return nil })
		if err == nil && len(body) == len(whole) && reflect.DeepEqual(got, want) {
			same++
			return
		}
		if !errors.Is(err, avrofile.ErrDamaged) || len(got) > 0 {
			t.Errorf("%s: %d entries, %v", what, len(got), err)
		}
	}
	for i := range whole {
		f(fmt.Sprintf("cut at %d", i), whole[:i])
	}
	f("one byte more", append(bytes.Clone(whole), 0))
	f("twice", append(bytes.Clone(whole), whole...))
	h, err := avrofile.ParseHeader(whole)
	if err != nil {
		t.Fatal(err)
	}
	for i := int(h.Size); i < len(whole); i++ {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1 << (i % 8)
		f(fmt.Sprintf("a flipped bit in byte %d", i), flipped)
	}
	if same > 10 {
		t.Errorf("%d flipped bits change nothing", same)
	}
	b.Put(key, bytes.Replace(whole, []byte("twgd.version\x021"), []byte("twgd.version\x022"), 1))
	if err := All(t.Context(), b, "s", func(Entry) error { return nil }); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("another version: %v", err)
	}
}

func TestIndex(t *testing.T) {
	b := faultbucket.New()
	w, other := newWriter(b, "n"), newWriter(b, "m")
	x := NewIndex(b, "s")
	f := func(want string, counts string) {
		t.Helper()
		if err := x.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(x.Spans(orders, "db")); got != want || fmt.Sprint(x.Counts()) != counts {
			t.Errorf("index %s %v, want %s %s", got, x.Counts(), want, counts)
		}
	}
	f("map[]", "map[]")
	add(t, w, 1, 2, 9)
	f("map[sink:[1, 3) [9, 10)]", "map[{db sink}:3]")
	add(t, w, 2, 9) // again, after a crash
	add(t, other, 3)
	e := entry(20)
	e.Reason, e.Span.To = "oversize", 25
	if err := other.Append(t.Context(), []Entry{e}); err != nil {
		t.Fatal(err)
	}
	f("map[oversize:[20, 25) sink:[1, 4) [9, 10)]", "map[{db oversize}:5 {db sink}:4]")
	e = entry(40)
	e.Sink, e.Partition.Number = "lake", 0
	x.Add(e)
	f("map[oversize:[20, 25) sink:[1, 4) [9, 10)]", "map[{db oversize}:5 {db sink}:4 {lake sink}:1]")
	before := b.Calls("read")
	f("map[oversize:[20, 25) sink:[1, 4) [9, 10)]", "map[{db oversize}:5 {db sink}:4 {lake sink}:1]")
	if n := b.Calls("read") - before; n > 0 {
		t.Errorf("%d objects are read anew", n)
	}
	b.Script("read", faultbucket.Refuse)
	add(t, w, 50)
	b.Script("read", faultbucket.Refuse)
	if err := x.Load(t.Context()); err == nil {
		t.Error("a failed read is none")
	}
	f("map[oversize:[20, 25) sink:[1, 4) [9, 10) [50, 51)]", "map[{db oversize}:5 {db sink}:5 {lake sink}:1]")
}

// The index knows by its tail what a sink refused, and what all did, and where it lies.
func TestIndexKnowsWhatASinkRejected(t *testing.T) {
	b := faultbucket.New()
	x := NewIndex(b, "s")
	f := func(sink string, n byte, want int64) {
		t.Helper()
		at, ok := x.Rejected(sink, [8]byte{7: n})
		if ok != (want >= 0) || ok && want < 100 && (at.Offset != want || at.Partition != entry(1).Partition) || want == 100 && at != (Rejected{}) {
			t.Errorf("sink %q rejected %d: %v at %+v, want %d", sink, n, ok, at, want)
		}
	}
	if x.RejectsAny("db") {
		t.Error("an empty index has rejects")
	}
	add(t, newWriter(b, "n"), 1)
	every := entry(2)
	every.Sink, every.ID = "", record.ID{15: 4}
	span := entry(3)
	span.ID = record.ID{}
	again, alike := every, entry(70)
	again.Reason, alike.ID = "oversize", record.ID{7: 1, 15: 9}
	if err := newWriter(b, "m").Append(t.Context(), []Entry{every, span, again}); err != nil {
		t.Fatal(err)
	}
	if err := x.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	f("db", 9, entry(1).Span.From)
	f("lake", 9, -1)
	f("db", 4, every.Span.From)
	f("lake", 4, every.Span.From)
	f("db", 0, -1)
	if !x.RejectsAny("db") || !x.RejectsAny("lake") {
		t.Error("something was rejected")
	}
	x.Add(alike)
	f("db", 9, 100) // somewhere
}
