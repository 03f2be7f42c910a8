package dedupset

import (
	"math/rand/v2"
	"testing"
)

// TestTheIndexLeavesNoTrace puts entries in and takes them out in another order, spread and crowded, up to the last slot. Each is
// found while it is there; at the end every bucket is as it was at first.
func TestTheIndexLeavesNoTrace(t *testing.T) {
	f := func(contents func(uint64) [tailAt]byte, n uint32) {
		t.Helper()
		x := newIndex(1000)
		there := map[uint32]bool{}
		order := rand.New(rand.NewPCG(1, uint64(n)))
		for range 3 * n {
			row := order.Uint32N(n)
			if c := contents(uint64(row)); there[row] {
				x.remove(c[:], row)
			} else {
				x.add(c[:], row)
			}
			there[row] = !there[row]
			if probe := order.Uint32N(n); x.has(contents, probe) != there[probe] {
				t.Fatalf("entry %d: there %v", probe, there[probe])
			}
		}
		for row, is := range there {
			if c := contents(uint64(row)); is {
				x.remove(c[:], row)
			}
		}
		for i := range x.buckets {
			if b := &x.buckets[i]; b.tags != [slots]byte{} || b.over != 0 {
				t.Fatalf("bucket %d is left with %v, %d went past", i, b.tags, b.over)
			}
		}
	}
	f(spread, 1000)
	f(spread, 118*slots)
	f(crowded, 300)
}

// has says whether a search for the content comes to the row.
func (x *index) has(contents func(uint64) [tailAt]byte, row uint32) bool {
	c := contents(uint64(row))
	for i, n := x.home(c[:]), len(x.buckets); n > 0; i, n = x.after(i), n-1 {
		b := &x.buckets[i]
		if b.slotOf(tagOf(c[:]), row) < slots {
			return true
		}
		if b.over == 0 {
			return false
		}
	}
	return false
}
