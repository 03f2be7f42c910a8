package duplicates

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	orders = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{0xab, 15: 1}, Number: 4, Generation: 2}
	bills  = record.Partition{Cluster: "c", Topic: "bills", Number: 0}
)

func sp(from, to int64) checkpoint.Span { return checkpoint.Span{From: from, To: to} }

// dropped is a record of an offset with an id and a stand of its own.
func dropped(offset int64) (d Dropped) {
	d.Offset = offset
	binary.BigEndian.PutUint64(d.ID[8:], uint64(offset))
	d.ID[0] = 1
	binary.BigEndian.PutUint64(d.Stands[:], uint64(offset)+1<<32)
	return d
}

// noted is a batch of orders in [from, to) of which some offsets were dropped.
func noted(from, to int64, offsets ...int64) Noted {
	n := Noted{Partition: orders, Span: sp(from, to)}
	for _, o := range offsets {
		n.Dropped = append(n.Dropped, dropped(o))
	}
	return n
}

// shop is a bucket in one of the two layouts.
type shop struct {
	*testing.T
	bucket store.Bucket
	local  bool
	fs     store.FS
}

func (s *shop) writer(node string) *Writer {
	return NewWriter(Options{Bucket: s.bucket, Stream: "s", Node: node, Instance: "i", Local: s.local, FS: s.fs})
}

func (s *shop) add(w *Writer, batches ...Noted) {
	s.Helper()
	if err := w.Append(s.Context(), batches); err != nil {
		s.Fatal(err)
	}
}

// wants compares what is named of orders in a span.
func (s *shop) wants(span checkpoint.Span, offsets ...int64) {
	s.Helper()
	got, err := NewReader(s.bucket, "s").Within(s.Context(), orders, span)
	if err != nil {
		s.Fatal(err)
	}
	var want []Dropped
	for _, o := range offsets {
		want = append(want, dropped(o))
	}
	if !reflect.DeepEqual(got, want) {
		s.Errorf("in %v %v is named, want %v", span, offsetsOf(got), offsets)
	}
}

func offsetsOf(list []Dropped) (out []int64) {
	for _, d := range list {
		out = append(out, d.Offset)
	}
	return out
}

func (s *shop) keys() (out []string) {
	s.Helper()
	entries, err := s.bucket.List(s.Context(), "s/_duplicates/", "", 0)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Key)
	}
	return out
}

// names are the keys of orders, as first offsets.
func (s *shop) names() string {
	s.Helper()
	var out []string
	for _, k := range s.keys() {
		name, ours := strings.CutPrefix(k, "s/_duplicates/"+orders.Path()+"/")
		if ours {
			out = append(out, strings.TrimLeft(strings.TrimSuffix(name, ".avro"), "0"))
		}
	}
	return strings.Join(out, " ")
}

func inBoth(t *testing.T, f func(s *shop)) {
	t.Run("objects", func(t *testing.T) { f(&shop{T: t, bucket: faultbucket.New()}) })
	t.Run("files", func(t *testing.T) { f(localShop(t, 1)) })
}

func localShop(t *testing.T, seed uint64) *shop {
	disk := storetest.NewDisk(seed)
	b, err := store.Open(t.Context(), "file:///raw", store.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &shop{T: t, bucket: b, local: true, fs: disk}
}

func TestReadsBackWhatWasNoted(t *testing.T) {
	inBoth(t, func(s *shop) {
		w := s.writer("n")
		other := Noted{Partition: bills, Span: sp(0, 10), Dropped: []Dropped{dropped(3)}}
		s.add(w, noted(100, 200, 100, 150), other, noted(200, 300), noted(300, 400, 399))
		s.add(w, noted(400, 500, 401))
		s.wants(sp(0, 1000), 100, 150, 399, 401)
		s.wants(sp(101, 400), 150, 399)
		s.wants(sp(150, 151), 150)
		s.wants(sp(399, 401), 399)
		s.wants(sp(151, 399))
		s.wants(sp(0, 100))
		s.wants(sp(402, 1<<62))
		s.wants(sp(7, 7))
		totals, err := NewReader(s.bucket, "s").Totals(t.Context())
		if want := map[record.Partition]int64{orders: 4, bills: 1}; err != nil || !reflect.DeepEqual(totals, want) {
			t.Errorf("totals %v %v, want %v", totals, err, want)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if w.Append(t.Context(), []Noted{noted(500, 600, 500)}) == nil {
			t.Error("a writer that is closed takes notes")
		}
	})
}

func TestNothingDroppedIsNoNote(t *testing.T) {
	inBoth(t, func(s *shop) {
		w := s.writer("n")
		s.add(w)
		s.add(w, noted(0, 100))
		if keys := s.keys(); len(keys) != 0 {
			t.Error(keys)
		}
		totals, err := NewReader(s.bucket, "s").Totals(t.Context())
		if err != nil || len(totals) != 0 {
			t.Error(totals, err)
		}
		s.wants(sp(0, 100))
	})
}

func TestRefusesWhatNoReaderTakes(t *testing.T) {
	f := func(n Noted) {
		t.Helper()
		s := &shop{T: t, bucket: faultbucket.New()}
		if err := s.writer("n").Append(t.Context(), []Noted{noted(0, 5, 1), n}); err == nil || len(s.keys()) != 0 {
			t.Errorf("%+v is taken", n)
		}
	}
	f(noted(10, 20, 9))
	f(noted(10, 20, 20))
	f(noted(10, 20, 12, 12))
	f(noted(10, 20, 13, 12))
	f(noted(-1, 20, 12))
}

// A process that starts counts on, and in a local directory begins a file of its own.
func TestGoesOnAfterAStart(t *testing.T) {
	inBoth(t, func(s *shop) {
		s.add(s.writer("a"), noted(0, 100, 7))
		w := s.writer("b")
		s.add(w, noted(100, 200, 107, 108))
		s.add(w, noted(200, 300, 207))
		s.wants(sp(0, 300), 7, 107, 108, 207)
		totals, err := NewReader(s.bucket, "s").Totals(t.Context())
		if err != nil || totals[orders] != 4 {
			t.Error(totals, err)
		}
		want := " 100 200"
		if s.local {
			want = " 100"
		}
		if got := s.names(); got != want {
			t.Errorf("names %q, want %q", got, want)
		}
	})
}

// A partition wanders from one process to another and back: the count goes on from what the other had, and nothing is listed while the
// partition stays.
func TestCountsOnAfterWandering(t *testing.T) {
	c := &counting{Bucket: faultbucket.New()}
	s := &shop{T: t, bucket: c}
	a, b := s.writer("a"), s.writer("b")
	at := int64(0)
	f := func(w *Writer, total int64, most int) {
		t.Helper()
		c.read, c.lists = nil, 0
		s.add(w, noted(at, at+100, at+7, at+8))
		if at += 100; c.lists+len(c.read) > most {
			t.Errorf("an append makes %d listings and %d reads, want no more than %d", c.lists, len(c.read), most)
		}
		totals, err := NewReader(s.bucket, "s").Totals(t.Context())
		if err != nil || totals[orders] != total {
			t.Errorf("%v dropped, want %d, %v", totals, total, err)
		}
	}
	a.Forget(orders)
	f(a, 2, 10)
	f(a, 4, 0)
	b.Forget(orders)
	f(b, 6, 10)
	f(b, 8, 0)
	f(b, 10, 0)
	f(b, 12, 0)
	f(b, 14, 0)
	a.Forget(bills)
	a.Forget(orders)
	f(a, 16, 10)
	f(a, 18, 0)
	b.Forget(orders)
	f(b, 20, 10)
	a.Forget(orders)
	f(a, 22, 10)

	a.Forget(orders) // what cannot be read for damage is not forgotten
	for _, k := range s.keys() {
		body, err := c.Bucket.Read(t.Context(), k)
		if err == nil {
			body[len(body)-20] ^= 1
			err = c.Replace(t.Context(), k, body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.add(a, noted(at, at+100, at+7))
	if totals, err := NewReader(s.bucket, "s").Totals(t.Context()); totals[orders] != 23 {
		t.Errorf("%v dropped, %v", totals, err)
	}
}

// An append fails, and so does the cut of what it left: the writer goes on in another file.
func TestGoesOnAfterAFailedAppend(t *testing.T) {
	s := localShop(t, 1)
	disk := s.fs.(*storetest.Disk)
	w := s.writer("n")
	s.add(w, noted(0, 100, 7))
	disk.Fault(func(op storetest.Op) error {
		if op.Name == "sync" || op.Name == "truncate" {
			return errors.New("i/o error")
		}
		return nil
	})
	if w.Append(t.Context(), []Noted{noted(100, 200, 107)}) == nil {
		t.Error("an append that failed is said to be durable")
	}
	disk.Fault(nil)
	s.add(w, noted(200, 300, 207))
	s.add(w, noted(300, 400, 307))
	if got := s.names(); got != " 200" {
		t.Errorf("names %q", got)
	}
	got, err := NewReader(s.bucket, "s").Within(t.Context(), orders, sp(0, 1000))
	got = slices.DeleteFunc(got, func(d Dropped) bool { return d.Offset == 107 }) // nobody knows
	if err != nil || !slices.Equal(offsetsOf(got), []int64{7, 207, 307}) {
		t.Errorf("%v %v", offsetsOf(got), err)
	}
	r := NewReader(s.bucket, "s")
	for range 2 {
		if totals, err := r.Totals(t.Context()); err != nil || totals[orders] != 3 {
			t.Error(totals, err)
		}
		s.add(w, noted(400, 500)) // nothing
	}
	s.add(w, noted(500, 600, 507)) // the file has grown, its name is the same
	if totals, err := r.Totals(t.Context()); err != nil || totals[orders] != 4 {
		t.Error(totals, err)
	}
}

// Groups of batches are noted as they are screened: of two, the later one may be noted first. Wherever files end, every span finds its own.
func TestNotesComeInAnyOrder(t *testing.T) {
	inBoth(t, func(s *shop) {
		w := s.writer("n")
		s.add(w, noted(200, 300, 200, 299))
		s.add(w, noted(100, 200, 100, 199))
		s.add(w, noted(400, 500, 400, 499))
		s.add(w, noted(300, 400, 300, 399))
		for from := int64(100); from < 500; from += 100 {
			s.wants(sp(from, from+100), from, from+99)
			s.wants(sp(from+50, from+100), from+99)
			s.wants(sp(from, from+99), from)
		}
		totals, err := NewReader(s.bucket, "s").Totals(t.Context())
		if err != nil || totals[orders] != 8 {
			t.Error(totals, err)
		}
	})
}

// A local file that was left takes with it what it holds behind a straggler; the straggler must not hide that.
func TestAStragglerHidesNothing(t *testing.T) {
	s := localShop(t, 1)
	w := s.writer("n")
	w.roll = 1
	s.add(w, noted(0, 100, 50))
	s.add(w, noted(200, 300, 250, 290)) // begins a file
	s.add(w, noted(100, 200, 150))      // comes from in front of it
	s.add(w, noted(300, 400, 350))
	if got := s.names(); got != " 100 200 300" {
		t.Errorf("names %q", got)
	}
	w.roll = 1 << 20
	s.add(w, noted(500, 600, 550))
	s.add(w, noted(700, 800, 750)) // into the same file
	w.roll = 1
	s.add(w, noted(600, 700, 650)) // that one takes no more
	s.add(w, noted(800, 900, 850))
	if got := s.names(); got != " 100 200 300 600 800" {
		t.Errorf("names %q", got)
	}
	s.wants(sp(0, 1000), 50, 150, 250, 290, 350, 550, 650, 750, 850)
	s.wants(sp(740, 800), 750)
	s.wants(sp(100, 160), 150)
	s.wants(sp(260, 300), 290)
}

// Whoever asks again sees what a neighbour has written meanwhile, also in front of what was there.
func TestSeesWhatNeighboursWrite(t *testing.T) {
	inBoth(t, func(s *shop) {
		a, r := s.writer("a"), NewReader(s.bucket, "s")
		f := func(want ...int64) {
			t.Helper()
			got, err := r.Within(t.Context(), orders, sp(0, 1000))
			if err != nil || !slices.Equal(offsetsOf(got), want) {
				t.Errorf("%v %v, want %v", offsetsOf(got), err, want)
			}
		}
		f()
		s.add(a, noted(300, 400, 350))
		f(350)
		s.add(a, noted(100, 200, 150))
		f(150, 350)
		b := s.writer("b")
		s.add(b, noted(500, 600, 550))
		f(150, 350, 550)
		s.add(a, noted(400, 500, 450)) // a paused process notes what it stored before the other took over
		f(150, 350, 450, 550)
	})
}

// What is left over under a name keeps nothing from being named, and stays named itself.
func TestATakenNameLosesNothing(t *testing.T) {
	inBoth(t, func(s *shop) {
		s.add(s.writer("a"), noted(100, 200, 150))
		s.add(s.writer("b"), noted(100, 200, 150, 160))
		s.add(s.writer("c"), noted(100, 300, 250))
		if got := s.names(); got != "100-1 100-2 100" && got != " 100-1 100-2 100" {
			t.Errorf("names %q", got)
		}
		s.wants(sp(0, 1000), 150, 160, 250)
		s.wants(sp(200, 260), 250)
	})
}

// One record that two others were noted to stand for is named with both: it is written where either is missing.
func TestNamesAllThatStand(t *testing.T) {
	s := &shop{T: t, bucket: faultbucket.New()}
	n := noted(100, 200, 150)
	n.Dropped[0].Stands = [8]byte{9}
	s.add(s.writer("a"), noted(100, 200, 150))
	s.add(s.writer("b"), n)
	got, err := NewReader(s.bucket, "s").Within(t.Context(), orders, sp(0, 1000))
	if err != nil || len(got) != 2 || got[0].Stands == got[1].Stands {
		t.Error(got, err)
	}
}

// counting counts what is read and listed.
type counting struct {
	store.Bucket
	mu    sync.Mutex
	read  []string
	lists int
}

func (c *counting) List(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	c.mu.Lock()
	c.lists++
	c.mu.Unlock()
	return c.Bucket.List(ctx, prefix, after, limit)
}

func (c *counting) Read(ctx context.Context, key string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = append(c.read, key)
	return c.Bucket.Read(ctx, key)
}

func TestReadsOnlyWhatConcernsTheSpan(t *testing.T) {
	s := &shop{T: t, bucket: faultbucket.New()}
	w := s.writer("n")
	for from := int64(0); from < 200_000; from += 100 {
		s.add(w, noted(from, from+100, from+7))
	}
	c := &counting{Bucket: s.bucket}
	got, err := NewReader(c, "s").Within(t.Context(), orders, sp(150_050, 150_250))
	if err != nil || !slices.Equal(offsetsOf(got), []int64{150_107, 150_207}) || len(c.read) != 3 {
		t.Errorf("%v %v with %d reads", offsetsOf(got), err, len(c.read))
	}
	c.read = nil
	r := NewReader(c, "s")
	f := func(total int64, most int) {
		t.Helper()
		c.read = nil
		if totals, err := r.Totals(t.Context()); err != nil || totals[orders] != total || len(c.read) > most {
			t.Errorf("%v %v with %d reads, want %d with %d", totals, err, len(c.read), total, most)
		}
	}
	f(2000, lateNames)
	f(2000, 0)
	s.add(w, noted(200_000, 200_100, 200_007, 200_008))
	f(2002, 1)
	f(2002, 0)
}

// Batches in a random order, in random groups, by processes that follow each other, through a store or a disk that fails and loses
// power: what was acknowledged is named, nothing is named that was never noted, and nobody who reads is told of damage.
func TestAcknowledgedIsNamed(t *testing.T) {
	f := func(t *testing.T, s *shop, rng *rand.Rand, fail, crash, calm func()) {
		tried, acked := map[int64]bool{}, map[int64]bool{}
		head := int64(0)
		for range 8 { // processes
			w := s.writer(fmt.Sprint(rng.IntN(3)))
			w.roll, w.files.max = int64(rng.IntN(2000)), 1+rng.IntN(2)
			fail()
			for range 3 {
				disturb(s, w, rng, &head, tried, acked)
			}
			crash()
			calm()
			w.Close()
		}
		got, err := NewReader(s.bucket, "s").Within(t.Context(), orders, sp(0, head))
		if err != nil {
			t.Fatal(err)
		}
		named := map[int64]bool{}
		for _, d := range got {
			named[d.Offset] = true
			if !tried[d.Offset] || d != dropped(d.Offset) {
				t.Fatalf("%+v is named", d)
			}
		}
		for o := range acked {
			if !named[o] {
				t.Fatalf("offset %d was acknowledged and is not named; names %s", o, s.names())
			}
		}
		for range 20 { // any span names what all names of it
			from := rng.Int64N(head)
			span := sp(from, from+rng.Int64N(head-from)+1)
			some, err := NewReader(s.bucket, "s").Within(t.Context(), orders, span)
			want := slices.DeleteFunc(slices.Clone(got), func(d Dropped) bool { return d.Offset < span.From || d.Offset >= span.To })
			for _, d := range want {
				if acked[d.Offset] && !slices.Contains(some, d) {
					t.Fatalf("%v of %v is not named in %v: %v; names %s", d.Offset, offsetsOf(want), span, err, s.names())
				}
			}
		}
		if len(acked) == 0 {
			t.Error("nothing was acknowledged")
		}
	}
	t.Run("objects", func(t *testing.T) {
		for seed := range uint64(12) {
			b, rng := faultbucket.New(), rand.New(rand.NewPCG(seed, 7))
			faults := []faultbucket.Fault{faultbucket.Refuse, faultbucket.Lost, faultbucket.Mine, faultbucket.Vanish, faultbucket.Late}
			fail := func() {
				b.Fault(func(faultbucket.Call) faultbucket.Fault {
					if rng.IntN(4) > 0 {
						return faultbucket.None
					}
					return faults[rng.IntN(len(faults))]
				})
			}
			crash := func() {
				if b.Pending() > 0 {
					b.Land(rng.IntN(b.Pending()), rng.IntN(2) == 0)
				}
			}
			f(t, &shop{T: t, bucket: b}, rng, fail, crash, func() { b.Fault(nil) })
		}
	})
	t.Run("files", func(t *testing.T) {
		for seed := range uint64(12) {
			s, rng := localShop(t, seed), rand.New(rand.NewPCG(seed, 7))
			disk := s.fs.(*storetest.Disk)
			fail := func() {
				disk.Fault(func(op storetest.Op) error {
					switch {
					case rng.IntN(20) > 0:
						return nil
					case op.Name == "write" && op.Size > 1:
						return storetest.Partial{N: rng.IntN(op.Size), Err: errors.New("no room")}
					case op.Name == "sync" || op.Name == "truncate" || op.Name == "syncdir":
						return errors.New("i/o error")
					}
					return nil
				})
			}
			crash := func() {
				if rng.IntN(2) == 0 {
					disk.PowerLoss()
				} else {
					disk.Kill()
				}
			}
			f(t, s, rng, fail, crash, func() { disk.Fault(nil) })
		}
	})
}

// disturb notes the batches of a stretch of orders, and as many of bills, in a random order and in random groups.
func disturb(s *shop, w *Writer, rng *rand.Rand, head *int64, tried, acked map[int64]bool) {
	var groups [][]Noted
	for range 6 {
		var g []Noted
		for range 1 + rng.IntN(3) {
			from, to := *head, *head+1+rng.Int64N(20)
			*head = to
			n := noted(from, to)
			for o := from; o < to; o++ {
				if rng.IntN(3) == 0 {
					n.Dropped = append(n.Dropped, dropped(o))
					tried[o] = true
				}
			}
			other := n
			other.Partition = bills
			g = append(g, n, other)
		}
		groups = append(groups, g)
	}
	if rng.IntN(2) == 0 {
		rng.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	}
	for _, g := range groups {
		if w.Append(s.Context(), g) != nil {
			continue
		}
		for _, n := range g {
			for _, d := range n.Dropped {
				acked[d.Offset] = true
			}
		}
	}
}

// body is one name's content.
func (s *shop) body(i int) (key string, b []byte) {
	s.Helper()
	key = s.keys()[i]
	b, err := s.bucket.Read(s.Context(), key)
	if err != nil {
		s.Fatal(err)
	}
	return key, b
}

// A file that a dead process left torn, wherever, is no damage, and names all whose block is whole.
func TestATornTailIsIgnored(t *testing.T) {
	s := localShop(t, 1)
	w := s.writer("n")
	var ends []int
	for from := int64(0); from < 500; from += 100 {
		s.add(w, noted(from, from+100, from+7))
		_, b := s.body(0)
		ends = append(ends, len(b))
	}
	_, whole := s.body(0)
	for n := ends[0]; n <= len(whole); n++ {
		c, err := parse(whole[:n], "s", 0)
		want := slices.IndexFunc(append(ends, len(whole)+1), func(e int) bool { return e > n })
		if err != nil || len(c.entries) != want {
			t.Fatalf("cut at %d: %d entries, want %d: %v", n, len(c.entries), want, err)
		}
		zeros := make([]byte, len(whole)-n)
		if c, err = parse(append(slices.Clone(whole[:n]), zeros...), "s", 0); err != nil || len(c.entries) != want {
			t.Fatalf("zeros from %d on: %d entries, want %d: %v", n, len(c.entries), want, err)
		}
	}
	for n := range ends[0] { // a name never leads to less than the first block
		if _, err := parse(whole[:n], "s", 0); !errors.Is(err, avrofile.ErrDamaged) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

// Whatever bit is flipped, nothing is named that was not noted, what stands in front and behind is named, and it is called damage unless it
// lies in the last block of a file that grows.
func TestDamageIsNamed(t *testing.T) {
	inBoth(t, func(s *shop) {
		w := s.writer("n")
		s.add(w, noted(0, 100, 7, 8))
		lastBlock := 0
		if s.local {
			s.add(w, noted(100, 200, 107))
			_, b := s.body(0)
			lastBlock = len(b)
			s.add(w, noted(200, 300, 207))
		}
		_, whole := s.body(0)
		all, err := parse(whole, "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		for bit := range len(whole) * 8 {
			b := slices.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			c, err := parse(b, "s", 0)
			tail := s.local && bit/8 >= lastBlock
			if err == nil && !tail && !reflect.DeepEqual(c.entries, all.entries) { // padding of the codec means nothing
				t.Fatalf("bit %d of byte %d: nothing is noticed", bit%8, bit/8)
			}
			for _, e := range c.entries {
				if !slices.ContainsFunc(all.entries, func(w entry) bool { return reflect.DeepEqual(e, w) }) {
					t.Fatalf("bit %d of byte %d: %+v is named", bit%8, bit/8, e)
				}
			}
			if tail && len(c.entries) < 2 {
				t.Fatalf("byte %d: only %d entries are read in front of it", bit/8, len(c.entries))
			}
		}
	})
}

func TestWithinNamesTheDamagedObject(t *testing.T) {
	b := faultbucket.New()
	s := &shop{T: t, bucket: b}
	w := s.writer("n")
	s.add(w, noted(0, 100, 7))
	s.add(w, noted(100, 200, 107))
	s.add(w, noted(200, 300, 207))
	key, body := s.body(1)
	body[len(body)-30] ^= 1
	b.Put(key, body)
	got, err := NewReader(b, "s").Within(t.Context(), orders, sp(0, 300))
	if !errors.Is(err, avrofile.ErrDamaged) || !strings.Contains(err.Error(), key) || !slices.Equal(offsetsOf(got), []int64{7, 207}) {
		t.Errorf("%v %v", offsetsOf(got), err)
	}
	s.wants(sp(200, 300), 207)
	if totals, err := NewReader(b, "s").Totals(t.Context()); !errors.Is(err, avrofile.ErrDamaged) || totals[orders] != 3 {
		t.Error(totals, err)
	}
	s.add(s.writer("m"), noted(300, 400, 307)) // and whoever begins goes on
	s.wants(sp(300, 400), 307)
}

// One partition that cannot be written is said so; what is durable of the others is harmless.
func TestAnErrorIsAnError(t *testing.T) {
	b := faultbucket.New()
	s := &shop{T: t, bucket: b}
	b.Fault(func(c faultbucket.Call) faultbucket.Fault {
		if c.Op == "create" && strings.Contains(c.Key, bills.Path()) {
			return faultbucket.Refuse
		}
		return faultbucket.None
	})
	other := Noted{Partition: bills, Span: sp(0, 10), Dropped: []Dropped{dropped(3)}}
	if err := s.writer("n").Append(t.Context(), []Noted{noted(0, 100, 7), other}); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.writer("n").Append(ctx, []Noted{noted(0, 100, 7)}); err == nil {
		t.Error("no error though the context has ended")
	}
}

func TestVerifyNamesWhatIsDamaged(t *testing.T) {
	b := faultbucket.New()
	s := &shop{T: t, bucket: b}
	w := s.writer("n")
	for from := int64(0); from < 500; from += 100 {
		s.add(w, noted(from, from+100, from+7))
	}
	f := func(want ...string) {
		t.Helper()
		var got []string
		err := NewReader(b, "s").Verify(t.Context(), orders, func(key string, fault error) {
			if !errors.Is(fault, avrofile.ErrDamaged) {
				t.Error(fault)
			}
			got = append(got, key)
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v %v, want %v", got, err, want)
		}
	}
	f()
	var spoilt []string
	for _, i := range []int{1, 3} {
		key, body := s.body(i)
		body = slices.Clone(body)
		body[len(body)-30] ^= 1
		b.Put(key, body)
		spoilt = append(spoilt, key)
	}
	f(spoilt...)
}

// Whatever bytes are read, nothing panics, and what is taken for an entry can be written again.
func FuzzParse(f *testing.F) {
	b := faultbucket.New()
	for _, local := range []bool{false, true} {
		w := NewWriter(Options{Bucket: b, Stream: "s", Local: local})
		pt := w.part(orders)
		n := noted(0, 10, 3, 7)
		body, h, err := pt.seal(block{first: 0, to: 10, count: 1, entries: appendEntry(nil, &n, 2)}, map[bool]kind{true: kindFile, false: kindObject}[local])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		if body, err = appendBlock(body, &h, block{count: 1, entries: appendEntry(nil, &n, 4)}); err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(body[:len(body)-9])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, _ := parse(body, "s", 0)
		for _, e := range c.entries {
			again := appendEntry(nil, &Noted{Span: e.span, Dropped: e.dropped}, e.total)
			got, err := parseBlock(again, 1, 0)
			if err != nil || !reflect.DeepEqual(got[0], e) {
				t.Fatalf("%+v is read back as %+v, %v", e, got, err)
			}
		}
	})
}

// An entry whose checksum is right, whatever is in it, is refused or is what a writer could have written.
func FuzzEntry(f *testing.F) {
	for _, n := range []Noted{noted(0, 10, 3, 7), noted(5, 6), noted(1<<40, 1<<41, 1<<40)} {
		b := appendEntry(nil, &n, 2)
		f.Add(b[:len(b)-len(avrofile.AppendLong(nil, int64(crc32.Checksum(b, castagnoli))))])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sum := avrofile.AppendLong(slices.Clone(b), int64(crc32.Checksum(b, castagnoli)))
		got, err := parseBlock(sum, 1, 0)
		if err != nil {
			return
		}
		n := Noted{Partition: orders, Span: got[0].span, Dropped: got[0].dropped}
		if err := n.check(); err != nil {
			t.Fatal(err)
		}
		again, err := parseBlock(appendEntry(nil, &n, got[0].total), 1, 0)
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v is read back as %+v, %v", got, again, err)
		}
	})
}
