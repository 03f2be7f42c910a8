package raw_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
)

// Whoever has seen a chain finds its head again with one listing, and reads nothing where nothing was added.
func TestHeadFrom(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		w, r := open(t, url), readOnly(t, url)
		w.begin(0)
		was, err := r.Head(t.Context(), orders)
		if err != nil {
			t.Fatal(err)
		}
		for next := int64(10); next <= 100; next += 10 {
			w.put(next-10, next)
			want, werr := r.Head(t.Context(), orders)
			if was, err = r.HeadFrom(t.Context(), orders, was); err != nil || werr != nil || was != want {
				t.Fatalf("%+v, %v, want %+v, %v", was, err, want, werr)
			}
		}
		if again, err := r.HeadFrom(t.Context(), orders, was); err != nil || again != was {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

func TestLookingAgainIsCheap(t *testing.T) {
	b := faultbucket.New()
	w := openStore(t, raw.Options{Bucket: b})
	r := openStore(t, raw.Options{Bucket: b, ReadOnly: true})
	w.begin(0)
	for next := int64(1); next <= 3000; next++ {
		w.put(next-1, next)
	}
	was, err := r.Head(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	f := func(what string, lists, reads int, call func() error) {
		t.Helper()
		l, c := b.Calls("list"), b.Calls("read")
		if err := call(); err != nil {
			t.Error(err)
		}
		if l, c = b.Calls("list")-l, b.Calls("read")-c; l > lists || c > reads {
			t.Errorf("%s: %d listings and %d reads, want at most %d and %d", what, l, c, lists, reads)
		}
	}
	head := func() (err error) { was, err = r.HeadFrom(t.Context(), orders, was); return err }
	f("nothing new", 1, 0, head)
	w.put(3000, 3001)
	f("one new", 1, 1, head)
	f("the age of an offset", 3, 2, func() error { _, _, err := r.Written(t.Context(), orders, 2990); return err })
	if _, err := r.Chains(t.Context()); err != nil {
		t.Fatal(err)
	}
	f("the chains once more", 0, 0, func() error { _, err := r.Chains(t.Context()); return err })
}

// Bytes are estimated by the sizes of segments: of a span that segments cover exactly it is what they take, and what a listing does
// not show counts like what it shows.
func TestWeigh(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := openStore(t, raw.Options{Bucket: openBucket(t, url), Roll: 2000})
		s.begin(0)
		for next := int64(10); next <= 500; next += 10 {
			s.put(next-10, next)
		}
		segments, err := s.Segments(t.Context(), orders)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, g := range segments {
			total += g.Size
		}
		f := func(from, to, want int64) {
			t.Helper()
			got, err := s.Weigh(t.Context(), orders, checkpoint.Span{From: from, To: to})
			if err != nil || got < want*7/10 || got > want*13/10 {
				t.Errorf("[%d, %d) weighs %d, %v, want about %d of %d", from, to, got, err, want, total)
			}
		}
		f(0, 500, total)
		f(0, 1000, total)
		f(250, 500, total/2)
		f(495, 500, total/100)
		f(600, 700, 0)
	})
	b := faultbucket.New()
	s := openStore(t, raw.Options{Bucket: b})
	s.begin(0)
	for next := int64(1); next <= 2500; next++ {
		s.put(next-1, next)
	}
	lists := b.Calls("list")
	got, err := s.Weigh(t.Context(), orders, checkpoint.Span{From: 100, To: 2500})
	one := int64(len(b.Get("s/" + orders.Path() + "/" + record.OffsetName(1000) + ".avro")))
	if err != nil || got < one*2300 || got > one*2500 || b.Calls("list")-lists > 8 {
		t.Errorf("%d bytes, %v, %d listings; a segment has %d", got, err, b.Calls("list")-lists, one)
	}
}

// One folder that is damaged hides no other.
func TestPartitionsBesideDamage(t *testing.T) {
	b := faultbucket.New()
	s := openStore(t, raw.Options{Bucket: b})
	s.begin(0)
	other := orders
	other.Number = 9
	s.p = other
	s.begin(0)
	if err := b.Delete(t.Context(), "s/"+orders.Path()+"/_genesis"); err != nil {
		t.Fatal(err)
	}
	b.Put("s/"+orders.Path()+"/"+record.OffsetName(0)+".avro", []byte("x"))
	for _, list := range []func() ([]record.Partition, error){
		func() ([]record.Partition, error) { return s.Partitions(t.Context()) },
		func() ([]record.Partition, error) { return s.Chains(t.Context()) },
	} {
		if got, err := list(); !errors.Is(err, avrofile.ErrDamaged) || !slices.Equal(got, []record.Partition{other}) {
			t.Errorf("%v, %v", got, err)
		}
	}
}
