//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/servers"
)

// TestDedupForgets: behind its window a content is new again, and beyond the cap the oldest are forgotten early, which shows.
func TestDedupForgets(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, harness.Dedup{Mode: "drop", Window: "1s"}, nil)
	w.begin()
	w.send(0, orders(50)...)
	w.screened()
	time.Sleep(3 * time.Second) // the case says so
	w.send(1, orders(50)...)
	w.screened()
	if n := w.metric("twg_dedup_duplicates_total"); n != 0 {
		t.Errorf("%v records are duplicates of what came three windows before", n)
	}
	w.stop()

	w = layTwinned(t, 2, harness.Dedup{Mode: "drop", Window: "5m", Entries: 1000}, nil)
	w.begin()
	for _, some := range [][]harness.Record{values(0, orders(1000)), values(0, orders(2000)[1000:])} {
		w.Send(some...)
		w.screened()
		time.Sleep(3 * time.Second) // what came a moment ago is not let go for want of room
	}
	w.Send(values(1, orders(2000)[1500:])...)
	w.screened()
	w.Send(values(1, orders(100))...)
	w.screened()
	if n := w.metric("twg_dedup_duplicates_total"); n != 500 {
		t.Errorf("%v duplicates were found, want the 500 that were still remembered", n)
	}
	entries, evicted, held := w.metric("twg_dedup_entries"), w.metric("twg_dedup_evicted_total"), w.metric("twg_dedup_window_held_seconds")
	if entries != 1000 || evicted != 1100 || held <= 0 || held >= 300 {
		t.Errorf("%v contents are remembered, %v were let go, and the window held is %v s", entries, evicted, held)
	}
	w.stop()
	w.audited("--rows")
}

// values are records of one partition.
func values(partition int32, all []string) (out []harness.Record) {
	for _, v := range all {
		out = append(out, harness.Record{Partition: partition, Value: []byte(v)})
	}
	return out
}

// TestDedupNotesFail: an answer about a note is lost, and then no note can be written for a while. The intake goes on, nothing is lost, what is
// not named as dropped is there, and once notes can be written duplicates are dropped again.
func TestDedupNotesFail(t *testing.T) {
	t.Parallel()
	faults, err := servers.NewS3Faults(suite.S3)
	harness.Must(t, err)
	t.Cleanup(func() { faults.Close() })
	bucket, err := suite.S3.NewBucket(t.Context())
	harness.Must(t, err)
	w := layTwinned(t, 2, dropping, func(s *harness.Stream) {
		s.Raw = harness.Raw{To: faults.URL(bucket, "raw"), Flush: harness.Flush{Age: "100ms"}}
	})
	w.raw = suite.S3.URL(bucket, "raw")
	note := servers.S3Match{Op: "PutObject", Key: "_duplicates"}
	w.begin()
	w.send(0, orders(30)...)
	w.complete(w.Count())

	faults.Add(servers.S3Fault{S3Match: note, Do: servers.DropAnswer()})
	w.Send(values(1, orders(10))...)
	w.complete(w.Count())
	met(t, faults, "a lost answer")

	faults.Clear()
	faults.Add(servers.S3Fault{S3Match: note, Times: -1, Do: servers.Unavailable()})
	w.Send(values(1, orders(20)[10:])...)
	w.stored(w.Count()) // the intake does not wait for notes
	w.complete(w.Count())
	if n := w.node.Metric("twg_dedup_unavailable_total", `reason="trail"`); n < 10 {
		t.Errorf("%v records count as passed for want of a note", n)
	}
	faults.Clear()
	w.Send(values(1, orders(30)[20:])...)
	w.complete(w.Count())
	harness.Await(t, "duplicates to be dropped again", 30*time.Second, func() (string, bool) {
		before := w.dropped()
		w.Send(values(1, orders(5))...)
		w.complete(w.Count())
		return fmt.Sprint(before), w.dropped() == before+5
	})
	w.stop()
	c := w.truth()
	harness.SameRecords(t, "raw", w.records(), w.Acked())
	named := suite.Dropped(t, w.raw, "s", false)
	for where, rows := range map[string][]harness.Held{"the table": harness.TableRows(t, w.dsn, "orders"), "the lake": suite.LakeRows(t, w.lake, "s")} {
		extra := c.Present(t, where, rows)
		c.LeftOut(t, where, rows, named, true)
		if extra < 10 {
			t.Errorf("%s has %d duplicates, and for ten no note could be written", where, extra)
		}
	}
	w.audited("--rows")
}

// dropped is how many records this process has dropped.
func (w *twinned) dropped() int64 {
	w.Helper()
	return int64(w.metric("twg_drops_total"))
}

// TestDedupIsTurnedOff: what was dropped stays dropped for a sink that comes when nobody deduplicates any more, and what comes from then on is all there.
func TestDedupIsTurnedOff(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, dropping, nil)
	w.begin()
	w.send(0, orders(40)...)
	w.screened()
	w.send(1, orders(40)[10:]...)
	w.screened()
	w.stop()
	late := suite.Database(t)
	s := &w.node.Streams[0]
	s.Dedup, s.Contract = nil, nil
	s.Sinks = append(s.Sinks, harness.ToPostgres("late", late))
	w.begin()
	w.send(1, orders(5)...)
	w.complete(w.Count())
	w.stop()
	for _, dsn := range []string{w.dsn, late} {
		landedOf(t, dsn, "orders", 1, 30, 31, 32, 33, 34)
	}
	w.audited("--rows")
}

// TestDedupDamagedNotes: damage of a note is named, by the auditor and by the check of raw, and nothing else is believed for it.
func TestDedupDamagedNotes(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, dropping, nil)
	w.begin()
	w.send(0, orders(40)...)
	w.screened()
	w.send(1, orders(40)[10:]...)
	w.screened()
	w.stop()
	paths, err := filepath.Glob(filepath.Join(strings.TrimPrefix(w.raw, "file://"), "s", "_duplicates", "*", "*", "*.avro"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("notes are in %q, %v", paths, err)
	}
	whole, err := os.ReadFile(paths[0])
	harness.Must(t, err)
	damaged := append([]byte(nil), whole...)
	damaged[300] ^= 1 // in the header: a torn end is no damage
	harness.Must(t, os.WriteFile(paths[0], damaged, 0o644))
	code, r := w.node.Audit()
	if code != 4 && code != 3 || !strings.Contains(fmt.Sprint(r.Findings), filepath.Base(paths[0])) {
		t.Errorf("audit exits with code %d and says %v", code, r.Findings)
	}
	if code, out := w.node.Ask("raw", "verify"); code != 4 || !strings.Contains(out, "_duplicates") {
		t.Errorf("raw verify exits with code %d:\n%s", code, out)
	}
	harness.Must(t, os.WriteFile(paths[0], whole, 0o644))
	w.audited("--rows")
	if code, out := w.node.Ask("raw", "verify"); code != 0 {
		t.Errorf("raw verify exits with code %d:\n%s", code, out)
	}
}
