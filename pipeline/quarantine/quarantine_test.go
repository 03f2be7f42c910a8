package quarantine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var orders = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{0xab, 15: 1}, Number: 4, Generation: 2}

func reject(offset int64, value []byte) sinks.Reject {
	return sinks.Reject{Partition: orders, Offset: offset, ID: record.ID{1, 2, 15: 9}, Reason: "sink", Detail: "22001 v",
		Record: &record.Record{Offset: offset, Value: value, Timestamp: 1_700_000_000_123, TimestampType: record.TimestampCreate,
			LeaderEpoch: 3, ProducerID: -1, ProducerEpoch: -1}}
}

// running runs a quarantine in fake time, and f beside it. stop ends Run.
func running(t *testing.T, opt Options, f func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		b := faultbucket.New()
		opt.Bucket, opt.Stream, opt.Node = b, "s", "n-1~i"
		if opt.Budget == 0 {
			opt.Budget = 1 << 20
		}
		opt.Rand = func() float64 { return 0.5 }
		q := New(opt)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- q.Run(ctx) }()
		stop := func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			done <- nil
		}
		f(t, b, q, stop)
		stop()
	})
}

func rows(t *testing.T, b *faultbucket.Bucket) (out []Row) {
	t.Helper()
	files, err := List(t.Context(), b, "s", "", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := Cat(t.Context(), b, f.Key, func(r *Row) error { out = append(out, *r); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestReadsBackWhatWasOffered(t *testing.T) {
	running(t, Options{}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
		full := reject(7, []byte("v"))
		full.Record.Key = []byte{}
		full.Record.Headers = []record.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "\xff", Value: []byte("x")}, {}}
		none := reject(8, nil)
		none.Record.TimestampType, none.Record.Timestamp, none.Detail, none.Reason = record.TimestampNone, -1, "", "oversize"
		at := time.Now().UTC()
		q.Offer([]sinks.Reject{full, none}, "db")
		time.Sleep(time.Minute)
		want := []Row{
			{orders, *full.Record, full.ID, 0, 1, 4, "sink", "db", "22001 v", at},
			{orders, *none.Record, none.ID, -1, -1, 0, "oversize", "db", "", at},
		}
		if got := rows(t, b); !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v, want\n%+v", got, want)
		}
		if keys := b.Keys(); len(keys) != 1 || keys[0] != "s/db/20000101T000010.000Z-n-1~i-000000.avro" {
			t.Error(keys)
		}
		if got := fmt.Sprint(q.Counts()); got != "map[{db oversize}:{1 0} {db sink}:{1 0}]" {
			t.Error(got)
		}
		if s := q.State(); s != (State{}) {
			t.Errorf("%+v", s)
		}
	})
}

// D17: of a record beyond the sink's limit the quarantine has a preview, its whole size, and a reference into raw.
func TestCaseD17Preview(t *testing.T) {
	running(t, Options{}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
		large := reject(7, bytes.Repeat([]byte("x"), 1_200_000))
		large.Record.Key = bytes.Repeat([]byte("k"), 70_000)
		for range 20 {
			large.Record.Headers = append(large.Record.Headers, record.Header{Key: "h", Value: make([]byte, 10_000)})
		}
		q.Offer([]sinks.Reject{large, reject(8, []byte("0123456789"))}, "db")
		time.Sleep(time.Minute)
		got := rows(t, b)
		if len(got) != 2 {
			t.Fatalf("%d rows", len(got))
		}
		r := got[0]
		if len(r.Record.Value) != 64<<10 || r.ValueSize != 1_200_000 || len(r.Record.Key) != 64<<10 || r.KeySize != 70_000 ||
			len(r.Record.Headers) != 6 || r.HeadersCount != 20 || r.Record.Offset != 7 || r.Partition != orders {
			t.Errorf("value %d of %d, key %d of %d, headers %d of %d", len(r.Record.Value), r.ValueSize, len(r.Record.Key), r.KeySize, len(r.Record.Headers), r.HeadersCount)
		}
		if string(got[1].Record.Value) != "0123456789" || got[1].ValueSize != 10 {
			t.Errorf("%+v", got[1])
		}
	})
}

func TestKeepsNoMemoryOfCallers(t *testing.T) {
	running(t, Options{}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
		value := []byte("before")
		q.Offer([]sinks.Reject{reject(7, value)}, "db")
		copy(value, "behind")
		time.Sleep(time.Minute)
		if got := rows(t, b); len(got) != 1 || string(got[0].Record.Value) != "before" {
			t.Errorf("%+v", got)
		}
	})
}

func TestClosesByAgeAndBytes(t *testing.T) {
	running(t, Options{Age: 10 * time.Second, Bytes: 3000}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
		f := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := b.Keys(); !slices.Equal(got, want) {
				t.Errorf("at %s: files %q, want %q", time.Now().Format("05"), got, want)
			}
		}
		q.Offer([]sinks.Reject{reject(1, nil)}, "db")
		time.Sleep(9 * time.Second)
		q.Offer([]sinks.Reject{reject(2, nil)}, "db")
		q.Offer([]sinks.Reject{reject(2, nil)}, "lake")
		f()
		time.Sleep(time.Second)
		f("s/db/20000101T000010.000Z-n-1~i-000000.avro")
		for i := range int64(12) {
			q.Offer([]sinks.Reject{reject(i, nil)}, "db")
		}
		f("s/db/20000101T000010.000Z-n-1~i-000000.avro", "s/db/20000101T000010.000Z-n-1~i-000001.avro")
		time.Sleep(8 * time.Second)
		f("s/db/20000101T000010.000Z-n-1~i-000000.avro", "s/db/20000101T000010.000Z-n-1~i-000001.avro")
		time.Sleep(time.Second)
		f("s/db/20000101T000010.000Z-n-1~i-000000.avro", "s/db/20000101T000010.000Z-n-1~i-000001.avro", "s/lake/20000101T000019.000Z-n-1~i-000002.avro")
	})
}

// A store that is away costs shed rows and nothing else: Offer does not wait, memory is bounded, and what was kept is written when
// the store is back.
func TestStoreIsAway(t *testing.T) {
	for _, fault := range []faultbucket.Fault{faultbucket.Refuse, faultbucket.Deny, faultbucket.Vanish} {
		running(t, Options{Budget: 20_000, Bytes: 5000}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
			b.Fault(func(faultbucket.Call) faultbucket.Fault { return fault })
			for i := range int64(1000) {
				begin := time.Now()
				q.Offer([]sinks.Reject{reject(i, make([]byte, 100))}, "db")
				if d := time.Since(begin); d > 0 {
					t.Fatalf("an offer took %v", d)
				}
				time.Sleep(time.Second)
			}
			s := q.State()
			if s.Bytes > 20_000 || s.Err == nil || s.Rows == 0 {
				t.Errorf("%+v", s)
			}
			if n := b.Calls("create"); n < 30 || n > 100 {
				t.Errorf("%d attempts in 1,000 seconds", n)
			}
			b.Fault(nil)
			time.Sleep(time.Minute)
			c := q.Counts()[Key{"db", "sink"}]
			if got := len(rows(t, b)); c.Stored != int64(got) || c.Stored != s.Rows || c.Stored+c.Shed != 1000 || q.State() != (State{}) {
				t.Errorf("%d rows are there, counted are %+v, %+v", got, c, q.State())
			}
			q.Offer([]sinks.Reject{reject(5000, nil)}, "db")
			time.Sleep(time.Minute)
			if got := rows(t, b); got[len(got)-1].Record.Offset != 5000 {
				t.Error("a new row is not written")
			}
		})
	}
}

func TestLostRepliesStoreOnce(t *testing.T) {
	f := func(faults ...faultbucket.Fault) {
		t.Helper()
		running(t, Options{}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
			b.Script("create", faults...)
			q.Offer([]sinks.Reject{reject(1, nil)}, "db")
			time.Sleep(11 * time.Second)
			for b.Pending() > 0 {
				b.Land(0, false)
			}
			time.Sleep(time.Minute)
			if n := len(rows(t, b)); n != 1 {
				t.Errorf("%v: %d rows", faults, n)
			}
		})
	}
	f(faultbucket.Lost)
	f(faultbucket.Mine)
	f(faultbucket.Vanish, faultbucket.Lost)
	f(faultbucket.Late, faultbucket.Late, faultbucket.Refuse)
}

func TestNameIsTaken(t *testing.T) {
	running(t, Options{}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
		b.Put("s/db/20000101T000010.000Z-n-1~i-000000.avro", []byte("another's"))
		q.Offer([]sinks.Reject{reject(1, nil)}, "db")
		time.Sleep(time.Minute)
		if b.Get("s/db/20000101T000010.000Z-n-1~i-000001.avro") == nil {
			t.Error(b.Keys())
		}
	})
}

func TestFlushAtShutdown(t *testing.T) {
	running(t, Options{}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, stop func()) {
		q.Offer([]sinks.Reject{reject(1, nil)}, "db")
		q.Offer([]sinks.Reject{reject(2, nil)}, "lake")
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		b.Script("create", faultbucket.Refuse)
		if err := q.Flush(ctx); err != nil || len(rows(t, b)) != 2 {
			t.Errorf("%d rows, %v", len(rows(t, b)), err)
		}
	})
}

func TestFlushGivesUpInTime(t *testing.T) {
	for _, fault := range []faultbucket.Fault{faultbucket.Refuse, faultbucket.Hang} {
		running(t, Options{}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, stop func()) {
			b.Fault(func(faultbucket.Call) faultbucket.Fault { return fault })
			q.Offer([]sinks.Reject{reject(1, nil), reject(2, nil)}, "db")
			time.Sleep(15 * time.Second) // Run is at it, or hangs
			stop()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begin := time.Now()
			err := q.Flush(ctx)
			if d := time.Since(begin); err == nil || d != 10*time.Second {
				t.Errorf("after %v: %v", d, err)
			}
			if got := fmt.Sprint(q.Counts()); got != "map[{db sink}:{0 2}]" || q.State().Rows != 0 || q.State().Bytes != 0 {
				t.Error(got, q.State())
			}
		})
	}
}

func TestRowLargerThanTheBudget(t *testing.T) {
	running(t, Options{Budget: 1000}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
		q.Offer([]sinks.Reject{reject(1, make([]byte, 2000)), reject(2, nil)}, "db")
		time.Sleep(time.Minute)
		if got := fmt.Sprint(q.Counts()); got != "map[{db sink}:{1 1}]" {
			t.Error(got)
		}
	})
}

// The budget counts at least what a row takes.
func TestWeighIsEnough(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	blob := func(n int) []byte {
		b := make([]byte, rng.IntN(n))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for range 150 {
		r := reject(rng.Int64(), blob(200_000))
		r.Partition = record.Partition{Cluster: string(blob(50)), Topic: string(blob(250)), Number: 1 << 30, Generation: 1 << 30}
		r.Detail = string(blob(300))
		r.Record.Key, r.Record.Timestamp, r.Record.ProducerID = blob(100_000), -1<<63, -1<<63
		for range rng.IntN(2000) {
			r.Record.Headers = append(r.Record.Headers, record.Header{Key: string(blob(100)), Value: blob(300)})
		}
		if n, w := len(appendRow(nil, &r, "db", time.Now())), weigh(&r, "db"); int64(n) > w || w > 4*preview {
			t.Fatalf("%d bytes are weighed as %d", n, w)
		}
	}
}

func TestList(t *testing.T) {
	b := faultbucket.New()
	for _, k := range []string{"s/db/20000101T000010.000Z-n-1~i-000000.avro", "s/db/20000102T000010.500Z-n-1~i-000007.avro",
		"s/lake/20000101T000010.000Z-m-000000.avro", "s/db/readme.txt", "s/db/x-y-z.avro", "s/db/20000101T000010.000Z-1.avro", "t/db/20000101T000010.000Z-n-000000.avro"} {
		b.Put(k, []byte("?"))
	}
	f := func(sink string, since time.Time, want string) {
		t.Helper()
		files, err := List(t.Context(), b, "s", sink, since)
		var got []string
		for _, f := range files {
			got = append(got, fmt.Sprintf("%s:%s:%d:%s", f.Sink, f.Node, f.Sequence, f.Time.Format("02.000")))
		}
		if s := strings.Join(got, " "); err != nil || s != want {
			t.Errorf("got %s, %v, want %s", s, err, want)
		}
	}
	f("", time.Time{}, "db:n-1~i:0:01.000 db:n-1~i:7:02.500 lake:m:0:01.000")
	f("db", time.Time{}, "db:n-1~i:0:01.000 db:n-1~i:7:02.500")
	f("db", time.Date(2000, 1, 2, 0, 0, 10, 500_000_000, time.UTC), "db:n-1~i:7:02.500")
	f("none", time.Time{}, "")
}

func TestDamage(t *testing.T) {
	running(t, Options{}, func(t *testing.T, b *faultbucket.Bucket, q *Quarantine, _ func()) {
		for i := range int64(20) {
			q.Offer([]sinks.Reject{reject(i, bytes.Repeat([]byte{byte(i)}, 40_000))}, "db") // several blocks
		}
		time.Sleep(time.Minute)
		key := b.Keys()[0]
		whole, want := b.Get(key), rows(t, b)
		if len(want) != 20 {
			t.Fatalf("%d rows", len(want))
		}
		for i := 0; i < len(whole); i += 7 {
			b.Put(key, whole[:i])
			err := Cat(t.Context(), b, key, func(*Row) error { return nil })
			if !errors.Is(err, avrofile.ErrDamaged) {
				t.Fatalf("cut at byte %d: %v", i, err)
			}
		}
	})
}
