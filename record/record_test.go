package record

import (
	"fmt"
	"slices"
	"testing"
)

func panics(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

func TestBatchIsFreedByItsLastHolder(t *testing.T) {
	freed := 0
	b := (&Batch{First: 0, Next: 1}).Weigh(func() { freed++ })
	b.Retain().Retain()
	b.Release()
	b.Release()
	if freed != 0 {
		t.Fatal("freed while somebody held it")
	}
	b.Release()
	if freed != 1 {
		t.Fatal("not freed by the last holder")
	}
	panics(t, "one release too many", b.Release)
	panics(t, "retained after the end", func() { b.Retain() })
	if freed != 1 {
		t.Error("freed twice")
	}
	(&Batch{}).Weigh(nil).Release() // nothing to free is fine
}

func TestWeigh(t *testing.T) {
	b := &Batch{Records: []Record{{Value: make([]byte, 100)}, {Key: make([]byte, 7), Headers: []Header{{Key: "abc", Value: make([]byte, 5)}}}}}
	if got, want := b.Weigh(nil).Bytes, int64(2*overhead+100+7+40+3+5); got != want {
		t.Errorf("a weight of %d, want %d", got, want)
	}
	if again := b.Weigh(nil).Bytes; again != b.Records[0].Size()+b.Records[1].Size() {
		t.Error(again)
	}
}

func TestSlice(t *testing.T) {
	f := func(first, next int64, wantFirst, wantNext int64, offsets ...int64) {
		t.Helper()
		freed := 0
		b := &Batch{Partition: Partition{Topic: "t"}, Epoch: 3, First: 10, Next: 20, LeaderEpoch: 5}
		for _, o := range []int64{10, 13, 14, 19} {
			b.Records = append(b.Records, Record{Offset: o, Value: []byte(fmt.Sprint(o))})
		}
		b.Weigh(func() { freed++ })
		s := b.Slice(first, next)
		var got []int64
		bytes := int64(0)
		for i := range s.Records {
			got = append(got, s.Records[i].Offset)
			bytes += s.Records[i].Size()
		}
		if s.First != wantFirst || s.Next != wantNext || !slices.Equal(got, offsets) || s.Bytes != bytes || s.Epoch != 3 || s.LeaderEpoch != 5 || s.Partition.Topic != "t" {
			t.Errorf("[%d, %d): %+v %v, want [%d, %d) %v", first, next, s, got, wantFirst, wantNext, offsets)
		}
		s.Retain()
		s.Release()
		if freed != 0 {
			t.Error("freed while a part of it was held")
		}
		if s.Release(); freed != 1 {
			t.Error("not freed with its last part")
		}
	}
	f(10, 20, 10, 20, 10, 13, 14, 19)
	f(0, 100, 10, 20, 10, 13, 14, 19)
	f(11, 20, 11, 20, 13, 14, 19)
	f(13, 14, 13, 14, 13)
	f(14, 19, 14, 19, 14)
	f(11, 13, 11, 13)
	f(15, 100, 15, 20, 19)
	f(0, 12, 10, 12, 10)
}

func TestFrom(t *testing.T) {
	b := (&Batch{First: 10, Next: 20, Gap: "retention"}).Weigh(nil)
	if b.From(5) != b || b.From(10) != b {
		t.Error("nothing was to be cut")
	}
	if p := b.From(15); p.First != 15 || p.Next != 20 || p.Gap != "retention" {
		t.Errorf("%+v", p)
	}
}

func TestPartitionsAreOrdered(t *testing.T) {
	all := []Partition{
		{Topic: "a"}, {Topic: "a", Number: 1}, {Topic: "a", Number: 1, Generation: 1}, {Topic: "a", TopicID: [16]byte{1}}, {Topic: "b"},
	}
	for i, p := range all {
		for j, q := range all {
			if p.Less(q) != (i < j) {
				t.Errorf("%v < %v is %v", p, q, p.Less(q))
			}
		}
	}
	if s := all[2].String() + " " + all[1].String(); s != "a/1.1 a/1" {
		t.Error(s)
	}
}
