package pipeline_test

import (
	"testing"

	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
)

// rows checks that the table has every record of [from, to), once, and nothing else of p.
func rows(t *testing.T, table *pipetest.Table, p record.Partition, from, to int64) {
	t.Helper()
	have := table.Rows(p)
	for o := from; o < to; o++ {
		want := 0
		if pipetest.Present(o) {
			want = 1
		}
		if have[o] != want {
			t.Errorf("offset %d is there %d times", o, have[o])
			return
		}
		delete(have, o)
	}
	if len(have) > 0 {
		t.Errorf("rows that should not be there: %v", have)
	}
}

// idle checks that a lane holds nothing any more and that its sink was used as it must be.
func idle(t *testing.T, lane *pipeline.Lane, table *pipetest.Table) {
	t.Helper()
	if n := lane.Status().QueueBytes; n != 0 {
		t.Errorf("the lane still counts %d bytes", n)
	}
	if spans := lane.Holding(orders); len(spans) > 0 {
		t.Errorf("the lane still holds %v", spans)
	}
	if wrong, loads, _ := table.Wrong(); len(wrong) > 0 || loads != 0 {
		t.Errorf("the sink was misused: %v, %d loads are not discarded", wrong, loads)
	}
}
