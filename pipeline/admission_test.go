package pipeline_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

func TestFullBudgetParksAndPauses(t *testing.T) {
	inHouse(t, pipeline.Options{Budget: 5000}, func(h *house) {
		e, f := h.assign(orders), h.assign(bills)
		h.raw.Before(down)
		for o := int64(0); o < 100; o += 10 {
			h.src.Poll(orders, e, o, o+10)
		}
		h.src.Poll(bills, f, 0, 10)
		h.calls("pause")
		if st := h.status(); st.State != "blocked" || st.InFlight > 5000 || st.InFlight < 2000 {
			t.Error(st)
		}
		// everything else goes on while parked
		if open(h.src.Revoke(true, bills)) {
			t.Error("a lost partition is not let go")
		}
		h.raw.Before(nil)
		h.src.Revoke(true, orders)
		h.calls("resume")
		e = h.assign(orders)
		for o := int64(0); o < 100; o += 10 {
			h.src.Poll(orders, e, o, o+10)
		}
		time.Sleep(30 * time.Second)
		calls := h.src.Calls()
		for i, c := range calls {
			if want := []string{"pause", "resume"}[i%2]; c != want || len(calls)%2 != 0 {
				t.Errorf("the source was told %q", calls)
			}
		}
		h.stored(orders, 100)
		h.committed(orders, 100)
		if st := h.status(); st.InFlight != 0 || st.State != "running" {
			t.Error(st)
		}
	})
}

// Whoever waits takes turns: one batch of bills is not behind twenty of orders.
func TestPartitionsTakeTurns(t *testing.T) {
	inHouse(t, pipeline.Options{Budget: 2500, Flush: pipeline.Flush{Records: 1, Age: time.Hour}}, func(h *house) {
		e, f := h.assign(orders), h.assign(bills)
		h.raw.Before(down)
		for o := int64(0); o < 200; o += 10 {
			h.src.Poll(orders, e, o, o+10)
		}
		h.src.Poll(bills, f, 0, 1)
		synctest.Wait()
		h.raw.Before(func(ctx context.Context, b []*record.Batch) error { return sleep(ctx, 100*time.Millisecond) })
		for range 3000 {
			time.Sleep(10 * time.Millisecond)
			if head, err := h.store.Head(h.Context(), bills); err == nil && head.Next == 1 {
				break
			}
		}
		if head, err := h.store.Head(h.Context(), orders); err != nil || head.Next > 60 {
			t.Errorf("bills waited until orders stood at %d, %v", head.Next, err)
		}
		time.Sleep(time.Minute)
		h.stored(orders, 200)
		h.stored(bills, 1)
	})
}

func TestRecordLargerThanTheBudgetPassesAlone(t *testing.T) {
	inHouse(t, pipeline.Options{Budget: 5000, Flush: pipeline.Flush{Age: time.Hour}}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 11)
		h.src.Send(sources.Polled{Batches: []*record.Batch{h.src.Heap.Batch(orders, e, 11, 12, 20_000), h.src.Heap.Batch(orders, e, 12, 20, 100)}})
		h.appends("0-11", "11-12") // whoever waits makes the largest segment be stored early
		h.stored(orders, 12)
		time.Sleep(2 * time.Hour)
		h.stored(orders, 20)
	})
}

func TestLargestSegmentIsFlushedEarly(t *testing.T) {
	inHouse(t, pipeline.Options{Budget: 10_000, Flush: pipeline.Flush{Age: time.Hour}}, func(h *house) {
		e, f := h.assign(orders), h.assign(bills)
		h.src.Poll(bills, f, 0, 6)    // 1.2 KB
		h.src.Poll(orders, e, 0, 19)  // 4 KB
		h.src.Poll(orders, e, 19, 26) // 1.5 KB
		h.appends()
		h.src.Poll(bills, f, 6, 12)
		h.appends("0-26")
	})
}

func TestEmptyBatchesPass(t *testing.T) {
	inHouse(t, pipeline.Options{Budget: 1000}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 3)
		h.src.Send(sources.Polled{Batches: []*record.Batch{h.src.Heap.Batch(orders, e, 3, 4, 100)}}) // nothing but a compacted offset
		time.Sleep(2 * time.Second)
		h.stored(orders, 4)
		h.committed(orders, 4)
	})
}
