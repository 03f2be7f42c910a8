package main

import (
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
)

func TestRefuseSkip(t *testing.T) {
	f := func(next, to int64, log checkpoint.Span, want string) {
		t.Helper()
		got := refuseSkip(record.Partition{Topic: "orders"}, next, to, log)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("from %d to %d in %v: %q, want %q", next, to, log, got, want)
		}
	}
	cut := checkpoint.Span{From: 3300, To: 3916}
	f(3000, 3300, cut, "")
	f(3000, 3100, cut, "")
	f(3000, 3301, cut, "can be read from 3300; --skip-to 3300 loses nothing more, and --force gives up [3300, 3301) too")
	f(3000, 50000, cut, "--force gives up [3300, 50000) too")
	f(3000, 3000, cut, "never goes back")
	diverged := checkpoint.Span{From: 0, To: 120}
	f(100, 101, diverged, "")
	f(100, 120, diverged, "")
	f(100, 121, diverged, "ends at 120: --skip-to 121 would give up records that are still to come; --force insists")
}

func TestResumedAt(t *testing.T) {
	p := record.Partition{Topic: "orders", Number: 2}
	f := func(at pipeline.PartitionStatus, want string) {
		t.Helper()
		at.Partition = p
		if got, _ := resumedAt(pipeline.Status{Partitions: []pipeline.PartitionStatus{{Held: "other"}, at}}, p, 60); got != want {
			t.Errorf("%+v: %s, want %s", at, got, want)
		}
	}
	f(pipeline.PartitionStatus{Position: 50, End: 90, Held: "retention"}, "unknown") // still the assignment before
	f(pipeline.PartitionStatus{Position: 60, End: -1}, "unknown")
	f(pipeline.PartitionStatus{Position: 60, End: -1, Held: "retention"}, "held")
	f(pipeline.PartitionStatus{Position: 60, End: 60}, "reading")
	f(pipeline.PartitionStatus{Position: 70, End: -1}, "reading")
}
