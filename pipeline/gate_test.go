package pipeline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/sources"
)

func TestRecordsReachRawAndTheSourceIsTold(t *testing.T) {
	inHouse(t, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 50)
		h.src.Poll(orders, e, 50, 60)
		h.src.Poll(orders, e, 40, 60) // read twice
		time.Sleep(2 * time.Second)
		h.appends("0-60")
		h.stored(orders, 60)
		h.committed(orders, 60)
	})
}

func TestFailedCommitStopsThePosition(t *testing.T) {
	inHouse(t, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		f := h.assign(bills)
		h.raw.Before(func(_ context.Context, b []*record.Batch) error {
			if b[0].Partition == orders {
				return pipetest.ErrDown
			}
			return nil
		})
		h.src.Poll(orders, e, 0, 10)
		h.src.Poll(bills, f, 0, 10)
		time.Sleep(time.Minute)
		h.src.Poll(orders, e, 10, 20)
		h.src.Poll(bills, f, 10, 20)
		time.Sleep(time.Minute)
		h.committed(orders, 0)
		h.committed(bills, 20)
		if st := h.status(); st.State != "blocked" || st.Reason == "" {
			t.Error(st)
		}
		if n := len(h.raw.Appends()); n > 40 {
			t.Errorf("%d appends in two minutes of failures", n)
		}
		h.raw.Before(nil)
		time.Sleep(12 * time.Second)
		h.stored(orders, 20)
		h.committed(orders, 20)
		if st := h.status(); st.State != "running" {
			t.Error(st)
		}
	})
}

// A lost reply: what landed counts, whoever asks. D30.
func TestCaseD30ShorterAttemptOfOurs(t *testing.T) {
	inHouse(t, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		lost, unread := 1, 1
		h.bucket.Fault(func(c faultbucket.Call) faultbucket.Fault {
			switch {
			case c.Op == "create" && lost > 0:
				lost--
				return faultbucket.Lost
			case c.Op == "read" && lost == 0 && unread > 0: // nor can it be read back
				unread--
				return faultbucket.Refuse
			}
			return faultbucket.None
		})
		h.src.Poll(orders, e, 0, 2)
		time.Sleep(110 * time.Millisecond)
		h.appends("0-2")
		h.src.Poll(orders, e, 2, 3)
		time.Sleep(5 * time.Second)
		h.appends("0-3", "2-3")
		h.stored(orders, 3)
		h.committed(orders, 3)
	})
}

func TestShorterAttemptSplitsABatch(t *testing.T) {
	withLane(t, false, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		first := true
		h.raw.Before(func(ctx context.Context, b []*record.Batch) error {
			if !first {
				return nil
			}
			first = false
			short := h.src.Heap.Batch(orders, e, 0, 25, 100)
			defer short.Release()
			_, err := h.store.Append(ctx, orders, []*record.Batch{short})
			return errors.Join(err, pipetest.ErrDown)
		})
		h.raw.After(func(st sinks.Stored) (sinks.Stored, error) { // it was ours
			st.Ours = true
			return st, nil
		})
		h.src.Poll(orders, e, 0, 10)
		h.src.Poll(orders, e, 10, 40)
		time.Sleep(5 * time.Second)
		h.stored(orders, 40)
		h.committed(orders, 40)
		rows(h.T, h.table, orders, 0, 40)
	})
}

// zombie is another process's store over the same bucket.
func (h *house) zombie() *raw.Store {
	z, err := raw.Open(h.Context(), raw.Options{Bucket: h.bucket, Stream: "s", Codec: "null"})
	if err != nil {
		h.Fatal(err)
	}
	if _, err := z.Begin(h.Context(), orders, nil); err != nil {
		h.Fatal(err)
	}
	return z
}

func (h *house) writes(z *raw.Store, first, next int64) {
	h.Helper()
	b := h.src.Heap.Batch(orders, 0, first, next, 100)
	defer b.Release()
	if st, err := z.Append(h.Context(), orders, []*record.Batch{b}); err != nil || !st.Ours {
		h.Fatal(st, err)
	}
}

func TestCaseD01FencedRejoins(t *testing.T) {
	inHouse(t, pipeline.Options{Flush: pipeline.Flush{Age: time.Minute}}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 10)
		h.writes(h.zombie(), 0, 100)
		time.Sleep(2 * time.Minute)
		h.calls("seek orders/0 100", "rejoin")
		h.appends("0-10")
		h.src.Poll(orders, e, 10, 20) // nothing is admitted until the next assignment
		time.Sleep(2 * time.Minute)
		h.appends()
		h.committed(orders, 10)
		if open(h.src.Revoke(false, orders)) {
			t.Error("a fenced partition is not let go")
		}
		e = h.assign(orders)
		h.src.Poll(orders, e, 100, 110)
		time.Sleep(2 * time.Minute)
		h.stored(orders, 110)
		h.committed(orders, 110)
	})
}

func TestOverlapOfAnotherWriterIsDropped(t *testing.T) {
	withLane(t, false, pipeline.LaneOptions{}, pipeline.Options{Flush: pipeline.Flush{Age: time.Minute}}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 10)
		h.src.Poll(orders, e, 10, 30)
		h.writes(h.zombie(), 0, 15)
		time.Sleep(3 * time.Minute)
		h.appends("0-30", "15-30")
		h.calls()
		h.stored(orders, 30)
		h.committed(orders, 30)
		rows(h.T, h.table, orders, 15, 30) // what another stored, another offers
		if begin := h.stream.Assigned(h.Context())[orders].Begin; begin != 15 {
			t.Errorf("what another stored counts as ours from %d", begin)
		}
	})
}

func TestSegmentsSplitAtTheLimits(t *testing.T) {
	f := func(flush pipeline.Flush, batch int64, want ...string) {
		t.Helper()
		inHouse(t, pipeline.Options{Flush: flush}, func(h *house) {
			e := h.assign(orders)
			h.raw.Before(down)
			h.src.Poll(orders, e, 0, 1) // holds up the rest
			for o := int64(1); o < 60; o += batch {
				h.src.Poll(orders, e, o, min(o+batch, 60))
			}
			synctest.Wait()
			h.raw.Before(nil)
			h.raw.Appends()
			time.Sleep(time.Minute)
			h.appends(want...)
			h.stored(orders, 60)
		})
	}
	f(pipeline.Flush{Age: time.Second}, 7, "0-60")
	f(pipeline.Flush{Age: time.Second, Records: 20}, 7, "0-29", "29-57", "57-60") // 6 records each 7 offsets
	f(pipeline.Flush{Age: time.Second, Records: 10}, 59, "0-13", "13-25", "25-36", "36-48", "48-60")
	f(pipeline.Flush{Age: time.Second, Bytes: 1000}, 59, "0-7", "7-13", "13-19", "19-25", "25-30", "30-36", "36-42", "42-48", "48-54", "54-60") // 5 records
}

func TestGapIsACommitOfItsOwn(t *testing.T) {
	inHouse(t, pipeline.Options{Flush: pipeline.Flush{Age: time.Hour}}, func(h *house) {
		e := h.assign(orders)
		h.src.Send(sources.Polled{Batches: []*record.Batch{h.src.Heap.Batch(orders, e, 0, 10, 100), h.src.Heap.Gap(orders, e, 10, 500), h.src.Heap.Batch(orders, e, 500, 510, 100)}})
		h.appends("0-10", "10-500")
		h.src.Revoke(false, orders)
		h.appends("500-510")
		h.stored(orders, 510)
	})
}

// One commit in flight a chain, also across assignments: the old one's Append still runs when the partition is ours again.
func TestReassignedWhileAnAppendIsUnderWay(t *testing.T) {
	inHouse(t, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		h.raw.Loose()
		h.raw.Before(func(ctx context.Context, _ []*record.Batch) error { return sleep(ctx, 10*time.Second) })
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(time.Second)
		h.src.Revoke(true, orders)
		h.src.Send(sources.Assigned{Partitions: []sources.Assignment{{Partition: orders, Epoch: e + 1, Next: 0}}})
		h.src.Poll(orders, e+1, 0, 20)
		h.src.Poll(orders, e, 10, 20) // void
		time.Sleep(time.Minute)
		h.appends("0-10", "0-20", "10-20")
		h.stored(orders, 20)
		h.committed(orders, 20)
	})
}

// What an earlier assignment of ours stored late is no reason to rejoin, which would lose all other partitions too.
func TestOwnLateAppendIsNoFence(t *testing.T) {
	inHouse(t, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		h.raw.Before(func(ctx context.Context, _ []*record.Batch) error { return sleep(ctx, 10*time.Second) })
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(time.Second)
		h.src.Revoke(true, orders)
		h.src.Send(sources.Assigned{Partitions: []sources.Assignment{{Partition: orders, Epoch: e + 1, Next: 0}}})
		h.src.Poll(orders, e+1, 0, 10)
		time.Sleep(time.Minute)
		h.calls("seek orders/0 10")
	})
}

// The source asks raw where the chain ends while the last Append of the old assignment is under way; its end must not close the chain
// for good.
func TestChainIsOpenAfterReassignment(t *testing.T) {
	inHouse(t, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(time.Second)
		for range 20 {
			h.raw.Before(func(ctx context.Context, _ []*record.Batch) error { return sleep(ctx, time.Second) })
			end := int64(0)
			for _, p := range h.status().Partitions {
				end = p.Position
			}
			h.src.Poll(orders, e, end, end+10)
			time.Sleep(1050 * time.Millisecond)
			h.src.Revoke(true, orders)
			e = h.assign(orders)
		}
		h.raw.Before(nil)
		for _, p := range h.status().Partitions {
			h.src.Poll(orders, e, p.Position, 1000)
		}
		time.Sleep(5 * time.Second)
		h.stored(orders, 1000)
	})
}

func TestSourceThatLeavesOutOffsetsIsSentBack(t *testing.T) {
	inHouse(t, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 10)
		h.src.Poll(orders, e, 12, 20)
		h.src.Poll(orders, e, 20, 30)
		h.calls("seek orders/0 10")
		time.Sleep(2 * time.Second)
		h.stored(orders, 10)
		h.committed(orders, 10)
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// D03: the committed position never goes back and is never beyond raw, whatever the group does.
func TestCaseD03Rebalances(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			third := record.Partition{Cluster: "c", Topic: "orders", Number: 1}
			all := []record.Partition{orders, bills, third}
			dice, heap, broker := pipetest.NewDice(seed), new(pipetest.Heap), pipetest.NewBroker(all...)
			store, err := raw.Open(t.Context(), raw.Options{Bucket: faultbucket.New(), Stream: "s", Codec: "null"})
			if err != nil {
				t.Fatal(err)
			}
			slow := pipetest.Watch(store)
			slow.Before(func(ctx context.Context, _ []*record.Batch) error {
				return sleep(ctx, dice.Between(200*time.Millisecond, 2*time.Second))
			})
			broker.Stored = func(p record.Partition) int64 { head, _ := store.Head(context.Background(), p); return head.Next }
			member := broker.Join(heap, dice)
			member.Before = func(ctx context.Context) error { return sleep(ctx, dice.Between(0, 3*time.Second)) }
			s := pipeline.New(pipeline.Options{Stream: "s", Source: member, Raw: slow, Budget: 50_000, Flush: pipeline.Flush{Records: 50, Age: 100 * time.Millisecond}})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- s.Run(ctx) }()
			for range 20 {
				for range 10 {
					broker.Produce(all[dice.N(3)], dice.N(100))
					time.Sleep(dice.Between(0, 500*time.Millisecond))
				}
				n := 1 + dice.N(3)
				member.Rebalance(dice.Percent(30), all[:n]...)
			}
			time.Sleep(5 * time.Minute)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for _, p := range all {
				holds(t, store, p, broker.End(p))
				if got, wrong := broker.Committed(p); got != broker.End(p) || len(wrong) > 0 {
					t.Errorf("seed %d: %v committed %d of %d, wrong: %q", seed, p, got, broker.End(p), wrong)
				}
			}
			if live, _, err := heap.Live(); live != 0 || err != nil || len(slow.Wrong()) > 0 {
				t.Errorf("seed %d: %d batches live, %v, raw misused: %v", seed, live, err, slow.Wrong())
			}
		})
	}
}
