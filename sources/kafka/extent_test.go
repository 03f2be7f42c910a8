package kafka

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	f := func(at place, log extent, stop bool, want act, reason string, resume int64) {
		t.Helper()
		v := judge(at, log, stop)
		if v.act != want || v.resume != resume || (reason == "") != (v.reason == "") || !strings.Contains(v.reason, reason) {
			t.Errorf("%+v in %+v: %+v", at, log, v)
		}
	}
	log := func(start, end int64) extent { return extent{start: start, end: end} }
	epoch := func(start, end int64, epoch int32, epochEnd int64) extent {
		return extent{start, end, true, epoch, epochEnd}
	}
	f(place{50, -1}, log(0, 100), false, read, "", 0)
	f(place{0, -1}, log(0, 0), true, read, "", 0)
	f(place{100, -1}, log(0, 100), false, read, "", 0)
	f(place{100, -1}, log(100, 100), true, read, "", 0)
	f(place{101, -1}, log(0, 100), false, hold, "ends at offset 100, below our position 101", 0)
	f(place{50, -1}, log(60, 100), false, skip, "", 60)
	f(place{50, -1}, log(60, 100), true, hold, "[50, 60) and on_gap is stop; `twgd raw resume --skip-to 60` loses nothing more", 0)
	f(place{101, -1}, log(0, 100), false, hold, "before it reaches 102", 0)
	f(place{50, 3}, epoch(0, 100, 3, 49), false, hold, "`twgd raw resume --skip-to 51`", 0)
	f(place{50, 3}, epoch(0, 100, 3, 80), false, read, "", 0)
	f(place{50, 3}, epoch(0, 100, 3, 50), false, read, "", 0)
	f(place{50, 3}, epoch(0, 100, 3, 49), false, hold, "epoch 3 ends at offset 49", 0)
	f(place{50, 3}, epoch(0, 100, 2, 80), false, hold, "no epoch above 2", 0)
	f(place{50, 3}, epoch(0, 100, -1, -1), false, hold, "nothing of leader epoch 3", 0)
	f(place{50, 3}, epoch(60, 100, 3, 40), false, hold, "diverged", 0) // never a gap
	f(place{50, 3}, epoch(60, 100, 3, 60), false, skip, "", 60)        // the epoch is gone with the records
}
