package raw_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
)

var orders = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{1, 2, 3}, Number: 4}

// bench is a raw store under test.
type bench struct {
	testing.TB
	*raw.Store
	p record.Partition
}

func openStore(t testing.TB, opt raw.Options) *bench {
	t.Helper()
	if opt.Stream == "" {
		opt.Stream = "s"
	}
	if opt.Codec == "" {
		opt.Codec = "zstd"
	}
	s, err := raw.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &bench{t, s, orders}
}

// sharedMark behind a directory's URL means that several nodes see it.
const sharedMark = "#shared"

func openBucket(t testing.TB, url string) store.Bucket {
	t.Helper()
	b, err := store.Open(t.Context(), strings.TrimSuffix(url, sharedMark), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func open(t testing.TB, url string) *bench {
	t.Helper()
	return openStore(t, raw.Options{Bucket: openBucket(t, url), Roll: 5000, Shared: strings.HasSuffix(url, sharedMark)})
}

func readOnly(t testing.TB, url string) *bench {
	t.Helper()
	return openStore(t, raw.Options{Bucket: openBucket(t, url), ReadOnly: true, Shared: strings.HasSuffix(url, sharedMark)})
}

// begin opens the chain and checks where its head is.
func (b *bench) begin(want int64) sinks.Head {
	b.Helper()
	head, err := b.Begin(b.Context(), b.p, from(0))
	if err != nil || head.Next != want {
		b.Fatalf("Begin: %+v, %v, want a head of %d", head, err, want)
	}
	return head
}

// put appends [first, next) in one commit of two batches and expects to be told that it is stored.
func (b *bench) put(first, next int64) sinks.Stored {
	b.Helper()
	st, err := b.Append(b.Context(), b.p, batches(b.p, first, next))
	if err != nil || !st.Ours || st.Next != next {
		b.Fatalf("Append [%d, %d): %+v, %v", first, next, st, err)
	}
	return st
}

func batches(p record.Partition, first, next int64) []*record.Batch {
	mid := (first + next) / 2
	if mid == first {
		return []*record.Batch{batch(p, first, next)}
	}
	return []*record.Batch{batch(p, first, mid), batch(p, mid, next)}
}

// batch has one record for each offset of [first, next), but every third is a hole.
func batch(p record.Partition, first, next int64) *record.Batch {
	b := &record.Batch{Partition: p, First: first, Next: next, LeaderEpoch: int32(next % 100)}
	for o := first; o < next; o++ {
		if o%3 != 2 {
			b.Records = append(b.Records, record.Record{Offset: o, Timestamp: o, Key: nil, Value: []byte(fmt.Sprint(o)), LeaderEpoch: 3, ProducerID: -1,
				Headers: []record.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "\xff"}}})
		}
	}
	return b.Weigh(nil)
}

func from(n int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return n, nil }
}

// offsets are those of batch in [first, next).
func offsets(first, next int64) (out []int64) {
	for o := first; o < next; o++ {
		if o%3 != 2 {
			out = append(out, o)
		}
	}
	return out
}

// read returns the offsets of the records in [first, next), and checks that they follow each other and hold what they held.
func (b *bench) read(first, next int64) (got []int64, err error) {
	b.Helper()
	at := int64(-1)
	err = b.Read(b.Context(), b.p, checkpoint.Span{From: first, To: next}, func(x *record.Batch) error {
		if at >= 0 && x.First != at {
			b.Errorf("[%d, %d) was read behind %d", x.First, x.Next, at)
		}
		at = x.Next
		for _, r := range x.Records {
			if r.Offset < x.First || r.Offset >= x.Next || string(r.Value) != fmt.Sprint(r.Offset) || r.Key != nil || len(r.Headers) != 3 || r.Headers[2].Key != "\xff" {
				b.Errorf("record %d came back as %+v", r.Offset, r)
			}
			got = append(got, r.Offset)
		}
		return nil
	})
	return got, err
}

// holds checks that the chain has exactly [first, next).
func (b *bench) holds(first, next int64) {
	b.Helper()
	if got, err := b.read(0, next+1000); err != nil || !slices.Equal(got, offsets(first, next)) {
		b.Fatalf("raw holds %v, %v, want all of [%d, %d)", got, err, first, next)
	}
	if head, err := b.Head(b.Context(), b.p); err != nil || head.Next != next || head.Genesis != first {
		b.Fatalf("the head is %+v, %v, want %d", head, err, next)
	}
	b.clean()
}

// findings are what Verify reports.
func (b *bench) findings() (out []raw.Finding) {
	b.Helper()
	if err := b.Verify(b.Context(), b.p, func(f raw.Finding) { out = append(out, f) }); err != nil {
		b.Fatal(err)
	}
	return out
}

func (b *bench) clean() {
	b.Helper()
	for _, f := range b.findings() {
		if f.Kind != raw.Stray {
			b.Errorf("Verify finds fault with a chain that has none: %+v", f)
		}
	}
}

var memories atomic.Int64

// memURL names an object store in memory that nobody has used.
func memURL() string { return fmt.Sprintf("mem://raw-%d", memories.Add(1)) }

// bothLayouts runs f with the URL of an empty directory of one node, of one that nodes share, and of an empty object store.
func bothLayouts(t *testing.T, f func(t *testing.T, url string)) {
	t.Run("files", func(t *testing.T) { f(t, "file://"+t.TempDir()) })
	severalNodes(t, f)
}

// severalNodes runs f with the URLs of empty places that several nodes see.
func severalNodes(t *testing.T, f func(t *testing.T, url string)) {
	t.Run("shared", func(t *testing.T) { f(t, "file://"+t.TempDir()+sharedMark) })
	t.Run("objects", func(t *testing.T) { f(t, memURL()) })
}

func TestReadsBackWhatWasAppended(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		s.begin(0)
		for o := int64(0); o < 100; o += 10 {
			if st := s.put(o, o+10); st.Last != o || st.LeaderEpoch != int32(st.Next%100) || st.Bytes == 0 || st.Written.IsZero() {
				t.Fatalf("%+v", st)
			}
		}
		s.holds(0, 100)
		s.Close()

		s = open(t, url)
		if head := s.begin(100); head != (sinks.Head{Genesis: 0, Last: 90, Next: 100, LeaderEpoch: 0}) {
			t.Fatalf("%+v", head)
		}
		s.put(100, 103)
		s.Close()
		s = readOnly(t, url)
		s.holds(0, 103)
		for _, sp := range [][2]int64{{0, 1}, {15, 33}, {99, 101}, {103, 200}, {5, 5}, {0, 1 << 60}, {40, 50}} {
			got, err := s.read(sp[0], sp[1])
			if want := offsets(sp[0], min(sp[1], 103)); err != nil || !slices.Equal(got, want) {
				t.Errorf("read %v: %v, %v, want %v", sp, got, err, want)
			}
		}
		if ps, err := s.Partitions(t.Context()); err != nil || !slices.Equal(ps, []record.Partition{orders}) {
			t.Fatal(ps, err)
		}
	})
}

func TestFidelity(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		in := []record.Record{
			{Offset: 0, Timestamp: 5, Value: []byte("D20 without key and headers"), ProducerID: -1, LeaderEpoch: -1},
			{Offset: 1, Timestamp: 6, Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{
				{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "c", Value: []byte{}}, {Key: ""}, {Key: "\xff\xfe", Value: []byte{0}}}},
			{Offset: 2, Key: []byte("k"), Value: nil},
			{Offset: 3, Key: []byte("k"), Value: []byte{}},
			{Offset: 4, Key: nil, Value: []byte("v")},
			{Offset: 5, Key: []byte{}, Value: []byte("v")},
			{Offset: 6, Timestamp: -1, TimestampType: record.TimestampNone},
			{Offset: 7, Timestamp: 1_700_000_000_000_000, TimestampType: record.TimestampLogAppend},
			{Offset: 8, Timestamp: -5, ProducerID: 1 << 60, ProducerEpoch: 32767, LeaderEpoch: 1<<31 - 1, Transactional: true},
			{Offset: 1 << 62, Timestamp: 1<<63 - 1, ProducerEpoch: -1},
		}
		s := open(t, url)
		s.begin(0)
		b := &record.Batch{Partition: orders, First: 0, Next: 1<<62 + 1, LeaderEpoch: 9, Records: in}
		if _, err := s.Append(t.Context(), orders, []*record.Batch{b.Weigh(nil)}); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s = readOnly(t, url)
		err := s.Read(t.Context(), orders, checkpoint.Span{From: 0, To: 1<<62 + 1}, func(got *record.Batch) error {
			if got.LeaderEpoch != 9 || len(got.Records) != len(in) {
				t.Errorf("%+v", got)
			}
			for i, r := range got.Records {
				if fmt.Sprintf("%#v", r) != fmt.Sprintf("%#v", in[i]) {
					t.Errorf("D18 D19 D20 D21: record %d\n%#v came back as\n%#v", i, in[i], r)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestCaseD04HolesOfCompactionAndMarkersAreNoGaps(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		s.begin(0)
		rec := func(o int64) record.Record { return record.Record{Offset: o, Value: []byte(fmt.Sprint(o))} }
		for _, b := range []*record.Batch{
			{First: 0, Next: 3, Records: []record.Record{rec(0), rec(1)}},
			{First: 3, Next: 10, Records: []record.Record{rec(4), rec(9)}},
			{First: 10, Next: 12}, // only markers: a segment without records is legal
		} {
			if _, err := s.Append(t.Context(), orders, []*record.Batch{b}); err != nil {
				t.Fatal(err)
			}
		}
		var got []int64
		s.Read(t.Context(), orders, checkpoint.Span{From: 0, To: 12}, func(b *record.Batch) error {
			if b.Gap != "" {
				t.Error("a gap that is none")
			}
			for _, r := range b.Records {
				got = append(got, r.Offset)
			}
			return nil
		})
		if want := []int64{0, 1, 4, 9}; !slices.Equal(got, want) {
			t.Error(got)
		}
		s.clean()
		s.Close()
		s = open(t, url)
		s.begin(12)
	})
}

func TestCaseD25GapsAreCommitsOfTheirOwn(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		s.begin(0)
		s.put(0, 100)
		gap := &record.Batch{Partition: orders, First: 100, Next: 500, LeaderEpoch: -1, Gap: "retention"}
		if st, err := s.Append(t.Context(), orders, []*record.Batch{gap}); err != nil || st.Next != 500 || st.LeaderEpoch != -1 {
			t.Fatal(st, err)
		}
		s.put(500, 510)
		s.Store.End(orders) // its partition changes hands: the skip opens it
		if st, err := s.Store.Skip(t.Context(), orders, 700, "an operator"); err != nil || st.Next != 700 || st.Last != 510 || !st.Ours {
			t.Fatal(st, err)
		}
		if _, err := s.Store.Begin(t.Context(), orders, nil); err != nil {
			t.Fatal(err)
		}
		s.put(700, 701)
		for _, to := range []int64{0, 700, 701} {
			if _, err := s.Store.Skip(t.Context(), orders, to, "back"); err == nil {
				t.Error("the chain went back to", to)
			}
		}
		if _, err := s.Store.Skip(t.Context(), orders, 800, ""); err == nil {
			t.Error("a skip without a reason")
		}
		s.Close()
		s = readOnly(t, url)
		var got []string
		err := s.Read(t.Context(), orders, checkpoint.Span{From: 400, To: 701}, func(b *record.Batch) error {
			got = append(got, fmt.Sprintf("[%d, %d) %s %d", b.First, b.Next, b.Gap, len(b.Records)))
			return nil
		})
		want := []string{"[400, 500) retention 0", "[500, 510)  6", "[510, 700) an operator 0", "[700, 701)  1"}
		if err != nil || !slices.Equal(got, want) {
			t.Error(got, err)
		}
		s.clean()
		if _, err := s.Store.Skip(t.Context(), orders, 800, "x"); err == nil {
			t.Error("a skip in a store that is open for reading only")
		}
	})
}

func TestWritten(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		now := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
		s := openStore(t, raw.Options{Bucket: openBucket(t, url), Shared: strings.HasSuffix(url, sharedMark), Now: func() time.Time { return now }})
		s.begin(0)
		s.put(0, 10)
		now = now.Add(time.Hour)
		if st := s.put(10, 20); !st.Written.Equal(now) {
			t.Error(st.Written)
		}
		f := func(offset int64, want time.Time, ok bool) {
			t.Helper()
			if got, have, err := s.Written(t.Context(), orders, offset); err != nil || have != ok || !got.Equal(want) {
				t.Errorf("offset %d: %v, %v, %v, want %v", offset, got, have, err, want)
			}
		}
		f(5, now.Add(-time.Hour), true)
		f(10, now, true)
		f(19, now, true)
		f(20, time.Time{}, false)
	})
}

func TestAppendPanicsOnWhatCouldNotBeRead(t *testing.T) {
	s := open(t, memURL())
	s.begin(0)
	rec := func(o int64) record.Record { return record.Record{Offset: o} }
	f := func(what string, bs ...*record.Batch) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Error("no panic: " + what)
			}
		}()
		s.Append(t.Context(), orders, bs)
	}
	f("nothing")
	f("a hole", &record.Batch{First: 1, Next: 2})
	f("an overlap", &record.Batch{First: 0, Next: 2}, &record.Batch{First: 1, Next: 3})
	f("an empty batch", &record.Batch{First: 0, Next: 0})
	f("a gap beside data", &record.Batch{First: 0, Next: 2}, &record.Batch{First: 2, Next: 3, Gap: "x"})
	f("a gap with records", &record.Batch{First: 0, Next: 2, Gap: "x", Records: []record.Record{rec(0)}})
	f("a record outside", &record.Batch{First: 0, Next: 2, Records: []record.Record{rec(2)}})
	f("records out of order", &record.Batch{First: 0, Next: 2, Records: []record.Record{rec(1), rec(0)}})
	f("a record twice", &record.Batch{First: 0, Next: 2, Records: []record.Record{rec(1), rec(1)}})
	s.put(0, 1)
}

func TestNeedsToBeOpen(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		if _, err := s.Head(t.Context(), orders); !errors.Is(err, sinks.ErrNoChain) {
			t.Error(err)
		}
		if _, err := s.read(0, 10); !errors.Is(err, sinks.ErrNoChain) {
			t.Error(err)
		}
		if _, err := s.Append(t.Context(), orders, batches(orders, 0, 10)); err == nil {
			t.Error("an append to a chain that is not open")
		}
		s.begin(0)
		s.put(0, 10)
		s.End(orders)
		s.End(orders)
		if _, err := s.Append(t.Context(), orders, batches(orders, 10, 20)); err == nil {
			t.Error("an append to a chain that was ended")
		}
		s.holds(0, 10)
		s.begin(10)
		s.put(10, 20)
		s.Close()
		ro := readOnly(t, url)
		if _, err := ro.Begin(t.Context(), orders, from(0)); err == nil {
			t.Error("a store that is open for reading only began a chain")
		}
		ro.holds(0, 20)
	})
}

func TestEveryFlipInAFoundingIsFound(t *testing.T) {
	f := func(key string, found func(s *bench) error) {
		b := &overlay{Bucket: openBucket(t, memURL())}
		s := openStore(t, raw.Options{Bucket: b})
		if _, err := s.Found(t.Context(), "c", map[record.Partition]int64{orders: 7}); err != nil {
			t.Fatal(err)
		}
		s.begin(0)
		s.Close()
		s = openStore(t, raw.Options{Bucket: b})
		b.key = "s/" + key
		b.body, _ = b.Bucket.Read(t.Context(), b.key)
		for bit := range len(b.body) * 8 {
			b.body[bit/8] ^= 1 << (bit % 8)
			if err := found(s); !errors.Is(err, avrofile.ErrDamaged) {
				t.Fatalf("bit %d of %s was flipped: %v", bit, key, err)
			}
			b.body[bit/8] ^= 1 << (bit % 8)
		}
		if err := found(s); err != nil {
			t.Fatal(err)
		}
	}
	f(orders.Path()+"/_genesis", func(s *bench) error { _, err := s.Head(t.Context(), orders); return err })
	f(orders.Path()+"/_genesis", func(s *bench) error { _, err := s.Partitions(t.Context()); return err })
	f(orders.Path()+"/_genesis", func(s *bench) error {
		if got := s.findings(); len(got) == 1 && got[0].Kind == raw.Damaged {
			return avrofile.ErrDamaged
		}
		return nil
	})
	f("_stream", func(s *bench) error { _, err := s.Found(t.Context(), "c", nil); return err })
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }
