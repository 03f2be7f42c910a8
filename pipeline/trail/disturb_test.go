package trail

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/record"
)

// Lanes append through a store that fails in every way, processes die and start again: what was acknowledged is there, and counted
// once.
func TestAcknowledgedIsThere(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { disturb(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

func disturb(t *testing.T, rng *rand.Rand) {
	b := faultbucket.New()
	faults := []faultbucket.Fault{faultbucket.Refuse, faultbucket.Lost, faultbucket.Mine, faultbucket.Vanish, faultbucket.Late}
	b.Fault(func(faultbucket.Call) faultbucket.Fault {
		if rng.IntN(3) > 0 {
			return faultbucket.None
		}
		return faults[rng.IntN(len(faults))]
	})
	var mu sync.Mutex
	var acked checkpoint.SpanSet
	offset := int64(0)
	for range 6 { // lives of the process
		w := newWriter(b, "n")
		var wg sync.WaitGroup
		for range 8 {
			o := offset
			offset += 5
			wg.Go(func() {
				for i := range int64(5) {
					if w.Append(t.Context(), []Entry{entry(o + i)}) == nil {
						mu.Lock()
						acked.Add(checkpoint.Span{From: o + i, To: o + i + 1})
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if b.Pending() > 0 {
			b.Land(rng.IntN(b.Pending()), rng.IntN(2) == 0)
		}
	}
	b.Fault(nil)
	x := NewIndex(b, "s")
	if err := x.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	there := x.Spans(orders, "db")["sink"]
	for _, s := range acked.Spans() {
		if !there.Covers(s) {
			t.Errorf("%v was acknowledged, and the trail has %v", s, there)
		}
	}
	if acked.Len() == 0 {
		t.Error("nothing was acknowledged")
	}
	for i, k := range b.Keys() {
		if want := "s/_trail/n~i/" + record.OffsetName(int64(i)) + ".avro"; k != want {
			t.Fatalf("object %d is %s", i, k)
		}
	}
}
