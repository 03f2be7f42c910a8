package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"

	"github.com/stream-arrow/twgd/sinks/raw"
)

// A smaller budget takes nothing new until there is room, and what is in flight stays counted; a larger one lets at once go on who waits.
func TestBudgetOfARunningStream(t *testing.T) {
	inHouse(t, pipeline.Options{Budget: 20_000, Flush: late}, func(h *house) {
		e := h.assign(orders)
		let := make(chan struct{})
		h.raw.Before(func(context.Context, []*record.Batch) error { <-let; return nil })
		h.src.Poll(orders, e, 0, 50) // 10 KB
		synctest.Wait()
		taken := h.status().InFlight
		h.stream.Budget(5000)
		synctest.Wait()
		if got := h.status().InFlight; got != taken || taken < 8000 {
			t.Errorf("%d bytes are in flight after the change, %d before", got, taken)
		}
		h.src.Poll(orders, e, 50, 55)
		h.calls("pause")
		h.stream.Budget(20_000)
		h.calls("resume")
		h.stream.Budget(5000)
		h.src.Poll(orders, e, 55, 60)
		h.calls("pause")
		close(let)
		h.calls("resume")
		if got := h.status().InFlight; got > 5000 {
			t.Errorf("%d bytes are in flight", got)
		}
		h.stop()
		h.stored(orders, 60)
	})
}

// Segments follow the budget: half of it, half as many records and bytes.
func TestSegmentsFollowTheBudget(t *testing.T) {
	f := func(flush pipeline.Flush, budget int64, first string, commits int) {
		t.Helper()
		inHouse(t, pipeline.Options{Budget: 1 << 20, Flush: flush}, func(h *house) {
			e := h.assign(orders)
			h.stream.Budget(budget)
			synctest.Wait()
			h.src.Poll(orders, e, 0, 100)
			synctest.Wait()
			got := h.raw.Appends()
			if len(got) != commits || commits > 0 && got[0] != first {
				h.Errorf("flush %+v with a budget of %d: %d commits, %q", flush, budget, len(got), got)
			}
		})
	}
	f(pipeline.Flush{Records: 40, Age: time.Hour}, 1<<20, "0-47", 2) // the log has holes
	f(pipeline.Flush{Records: 40, Age: time.Hour}, 1<<19, "0-23", 4)
	f(pipeline.Flush{Records: 40, Age: time.Hour}, 1<<21, "0-93", 1)
	f(pipeline.Flush{Bytes: 8000, Age: time.Hour}, 1<<20, "0-39", 2)
	f(pipeline.Flush{Bytes: 8000, Age: time.Hour}, 1<<18, "0-11", 9)
	f(pipeline.Flush{Age: time.Hour}, 1<<19, "", 0)
}

// A budget that was set before the stream runs counts from the start.
func TestBudgetBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := raw.Open(t.Context(), raw.Options{Bucket: faultbucket.New(), Stream: "s", Codec: "null"})
		if err != nil {
			t.Fatal(err)
		}
		src := pipetest.NewScript()
		s := pipeline.New(pipeline.Options{Stream: "s", Source: src, Raw: store, Budget: 1 << 20, Flush: late})
		s.Budget(1 << 10)
		s.Budget(2000)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		e, _, err := src.Assign(t.Context(), orders, 0)
		if err != nil {
			t.Fatal(err)
		}
		src.Poll(orders, e, 0, 5)
		src.Poll(orders, e, 5, 30)
		synctest.Wait()
		if got := fmt.Sprint(src.Calls()); got != "[pause resume]" { // what waits lets the open segment be stored, then it passes alone
			t.Error(got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Budget(5) // of a stream that has ended: nothing
		if live, _, err := src.Heap.Live(); live != 0 || err != nil {
			t.Error(live, err)
		}
	})
}

// A stream without a source runs its lanes, answers questions, and ends within its grace period.
func TestStreamWithoutASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := pipetest.NewTable(false)
		lane := pipeline.NewLane(pipeline.LaneOptions{Stream: "s", Name: "t", Sink: table, Deadline: time.Minute, Queue: 1 << 20})
		s := pipeline.New(pipeline.Options{Stream: "s", Lanes: []*pipeline.Lane{lane}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		st, ok := s.Status(t.Context())
		if !ok || st.State != "running" || len(st.Partitions) > 0 {
			t.Errorf("%+v, %v", st, ok)
		}
		if got := s.Assigned(t.Context()); got == nil || len(got) > 0 {
			t.Errorf("assigned are %v", got)
		}
		table.Place(orders, sp(0, 50))
		lane.Adopt(orders)
		synctest.Wait()
		if set, ok := lane.Coverage(orders); !ok || set.String() != "[0, 50)" {
			t.Errorf("covered are %v, %v", set, ok)
		}
		table.Place(orders, sp(50, 60))
		if err := lane.Ask(t.Context(), orders); err != nil {
			t.Error(err)
		}
		if set, _ := lane.Coverage(orders); set.String() != "[0, 60)" {
			t.Errorf("asked anew, covered are %v", set)
		}
		s.Budget(5)
		begin := time.Now()
		cancel()
		if err := <-ended; err != nil || time.Since(begin) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if st, _ := s.Status(t.Context()); st.State != "stopped" {
			t.Errorf("%+v", st)
		}
		synctest.Wait()
		goleak.VerifyNone(t, goleak.IgnoreCurrent())
	})
}
