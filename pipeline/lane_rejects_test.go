package pipeline_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sources"
)

func TestCaseD05RejectsAreReportedBeforeCoverage(t *testing.T) {
	for _, files := range []bool{false, true} {
		withLane(t, files, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house) {
			h.table.Reject = func(r *record.Record) bool { return r.Offset == 1 }
			h.trail.set(pipetest.ErrDown)
			e := h.assign(orders)
			h.src.Poll(orders, e, 0, 3)
			time.Sleep(20 * time.Second)
			h.gaps(orders, 3, "[]") // still held
			if have, _ := h.lane.Coverage(orders); have.Len() != 0 {
				t.Errorf("coverage %v though the trail is down", have)
			}
			h.trail.set(nil)
			time.Sleep(20 * time.Second)
			have := h.table.Rows(orders)
			if got := h.trail.at(); !slices.Equal(got, []int64{1}) || len(have) != 2 || have[0] != 1 || have[2] != 1 {
				t.Errorf("rejected %v, rows %v", got, have)
			}
			if have, _ := h.lane.Coverage(orders); !have.Covers(sp(0, 3)) {
				t.Errorf("coverage %v", have)
			}
		})
	}
}

func TestCaseD17Oversize(t *testing.T) {
	for _, files := range []bool{false, true} {
		withLane(t, files, pipeline.LaneOptions{MaxRecord: 10_000}, pipeline.Options{Budget: 10 << 20}, func(h *house) {
			e := h.assign(orders)
			h.src.Send(sources.Polled{Batches: []*record.Batch{h.src.Heap.Batch(orders, e, 0, 1, 12_000), h.src.Heap.Batch(orders, e, 1, 2, 10)}})
			time.Sleep(time.Second)
			h.stored(orders, 2)
			rejected := h.trail.of(0)
			if rejected.Reason != sinks.ReasonOversize || len(rejected.Record.Value) != 4<<10 || len(h.table.Rows(orders)) != 1 {
				t.Errorf("%+v, rows %v", rejected, h.table.Rows(orders))
			}
			h.gaps(orders, 2, "[]")
			h.trail.set(pipetest.ErrDown)
			h.src.Send(sources.Polled{Batches: []*record.Batch{h.src.Heap.Batch(orders, e, 2, 3, 12_000)}})
			time.Sleep(10 * time.Second)
			if have, _ := h.lane.Coverage(orders); have.Covers(sp(2, 3)) {
				t.Error("coverage passes a reject that the trail has not got")
			}
		})
	}
}

func TestCaseD32TheSinkRefusesAllOfASpan(t *testing.T) {
	for _, files := range []bool{false, true} {
		withLane(t, files, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house) {
			h.table.Reject = func(*record.Record) bool { return true }
			e := h.assign(orders)
			h.src.Poll(orders, e, 0, 4)
			time.Sleep(5 * time.Second)
			h.gaps(orders, 4, "[]")
			have, _ := h.lane.Coverage(orders)
			if got := h.trail.at(); !slices.Equal(got, []int64{0, 1, 2}) || !have.Covers(sp(0, 4)) || len(h.table.Names(orders)) != 0 {
				t.Errorf("rejected %v, covered %v, files %v", got, have, h.table.Names(orders))
			}
		})
	}
}

func TestCaseD32NothingIsLeftOfASpan(t *testing.T) {
	for _, files := range []bool{false, true} {
		withLane(t, files, pipeline.LaneOptions{MaxRecord: 10}, pipeline.Options{}, func(h *house) {
			e := h.assign(orders)
			h.src.Poll(orders, e, 0, 10) // all are larger
			h.src.Poll(orders, e, 10, 11)
			time.Sleep(5 * time.Second)
			h.gaps(orders, 11, "[]")
			if have, ok := h.lane.Coverage(orders); !ok || !have.Covers(sp(0, 11)) || len(h.trail.at()) != 9 {
				t.Errorf("covered %v, reported %v", have, h.trail.at())
			}
			if files { // nobody waits for a file
				cells, err := h.cuts().Cells(h.Context(), orders, checkpoint.SpanSet{})
				empty, eerr := h.cuts().Empties(h.Context(), orders)
				if err != nil || eerr != nil || len(cells) != 1 || !empty.Covers(cells[0]) || len(h.table.Names(orders)) != 0 {
					t.Errorf("cells %v, %v, empty %v, %v, files %v", cells, err, empty, eerr, h.table.Names(orders))
				}
			}
		})
	}
}
