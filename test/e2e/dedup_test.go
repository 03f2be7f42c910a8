//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/servers"
)

// repeats is what the producers of these cases do: one record of twenty a second time, to another partition, within a second.
var repeats = harness.Retries{Every: 20, Within: time.Second}

// twinned is a bed whose node is a cluster of one, with a table, a lake, and dedup.
type twinned struct {
	*bed
	dsn, lake string
}

func layTwinned(t *testing.T, partitions int32, d harness.Dedup, shape func(*harness.Stream)) *twinned {
	t.Helper()
	if d.Window != "1s" { // a window is at least twice the time of an answer
		d.Timeout = "2s" // a machine with other work is no lost quorum
	}
	w := &twinned{dsn: suite.Database(t), lake: "file://" + harness.Dir(t)}
	w.bed = lay(t, partitions, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToPostgres("db", w.dsn), harness.ToParquet("lake", w.lake)}
		s.Deduplicate(d)
		if shape != nil {
			shape(s)
		}
	})
	w.node.Alone()
	return w
}

// begin starts the node and waits until it reads and somebody answers claims.
func (w *twinned) begin() {
	w.Helper()
	w.node.Start()
	w.ready()
	w.node.Led(20 * time.Second)
}

// unscreened is how many records passed because nobody could answer. Without it, which is what a machine with time to spare shows, the
// cases hold exactly.
func (w *twinned) unscreened() int64 {
	w.Helper()
	n := w.node.Unscreened()
	if n > 0 {
		w.Logf("%d records passed unscreened", n)
	}
	return n
}

// truth is what was sent, by whole values.
func (w *twinned) truth() *harness.Contents {
	w.Helper()
	return suite.Contents(w.topic, w.Acked(), nil)
}

// hold compares the sinks with the truth: each has every content, the records that it does not have are named, and no more duplicates
// are there than records passed unscreened. It returns the ids that the table has.
func (w *twinned) hold(c *harness.Contents, unscreened int64) []string {
	w.Helper()
	harness.SameRecords(w, "raw", w.records(), w.Acked())
	named := suite.Dropped(w, w.raw, "s", false)
	rows := harness.TableRows(w, w.dsn, "orders")
	for where, rows := range map[string][]harness.Held{"the table": rows, "the lake": suite.LakeRows(w, w.lake, "s")} {
		suite.SameValues(w, where, w.topic, w.Acked(), rows)
		extra := c.Present(w, where, rows)
		c.LeftOut(w, where, rows, named, false)
		if extra > unscreened || extra != c.Twins-int64(len(named)) {
			w.Errorf("%s has %d duplicates of %d, %d are named as dropped, and %d records passed unscreened", where, extra, c.Twins, len(named), unscreened)
		}
	}
	return harness.HeldIDs(rows)
}

// audited asks the auditor, who must be content, and returns how many records he says are left out as duplicates, by sink.
func (w *twinned) audited(args ...string) map[string]int64 {
	w.Helper()
	code, r := w.node.Audit(args...)
	if code != 0 {
		w.Errorf("audit %q exits with code %d: %v", args, code, r.Findings)
	}
	return r.LeftOut("duplicate")
}

// drops waits until the status says that so many records were dropped.
func (w *twinned) drops(n int64) {
	w.Helper()
	w.node.WaitUntil(fmt.Sprintf("%d dropped records", n), 20*time.Second, func(s harness.StreamStatus) bool {
		return s.Drops["duplicate"] == n
	})
}

// TestDedupMeasureCounts: what is sent twice is counted, and nothing is dropped.
func TestDedupMeasureCounts(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 4, harness.Dedup{Mode: "measure", Window: "1m"}, nil)
	w.begin()
	w.SendRetrying(10_000, 4000, repeats)
	w.complete(w.Count())
	c := w.truth()
	unscreened := w.unscreened()
	counted, checked := int64(w.metric("twg_dedup_duplicates_total")), int64(w.metric("twg_dedup_checked_total"))
	t.Logf("%d records, %d of them second copies, %d counted", c.Records(), c.Twins, counted)
	if off := math.Abs(float64(counted - c.Twins)); off > float64(c.Twins)/100+float64(unscreened) || counted > c.Twins {
		t.Errorf("%d duplicates were counted, and %d are there", counted, c.Twins)
	}
	if checked+unscreened != c.Records() {
		t.Errorf("of %d records %d were checked, and %d were not", c.Records(), checked, unscreened)
	}
	if c.Twins*20 < c.Records()*9/10 {
		t.Errorf("%d of %d records were sent twice: too few to say anything", c.Twins, c.Records())
	}
	w.stop()
	ids := suite.IDs(w.topic, w.Acked())
	harness.SameRecords(t, "raw", w.records(), w.Acked())
	harness.SameIDs(t, "the table", harness.TableIDs(t, w.dsn, "orders"), ids)
	harness.SameIDs(t, "the lake", suite.LakeIDs(t, w.lake, "s"), ids)
	if named := suite.Dropped(t, w.raw, "s", false); len(named) > 0 {
		t.Errorf("measuring names %d records as dropped", len(named))
	}
}

// TestDedupMeasureWithoutACluster: nobody remembers, so that everything passes and is counted as such.
func TestDedupMeasureWithoutACluster(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, harness.Dedup{Mode: "measure"}, nil)
	w.node.Cluster = nil
	w.node.Start()
	w.SendRetrying(200, 2000, repeats)
	w.complete(w.Count())
	if n := int64(w.node.Metric("twg_dedup_unavailable_total", `reason="size_0"`)); n != w.Count() || w.metric("twg_dedup_checked_total") != 0 {
		t.Errorf("%d of %d records count as passed because nobody remembers", n, w.Count())
	}
	w.stop()
	harness.SameIDs(t, "the table", harness.TableIDs(t, w.dsn, "orders"), suite.IDs(w.topic, w.Acked()))
}

// TestDedupDropLeavesEachContentOnce: raw has all, the sinks have each content once, and a sink that comes later leaves out the same ones.
func TestDedupDropLeavesEachContentOnce(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 4, harness.Dedup{Mode: "drop", Window: "1m"}, nil)
	w.begin()
	w.SendRetrying(10_000, 4000, repeats)
	w.complete(w.Count())
	c := w.truth()
	unscreened, counted := w.unscreened(), int64(w.metric("twg_dedup_duplicates_total"))
	w.drops(counted)
	if n := int64(w.node.Metric("twg_drops_total", `reason="duplicate"`)); n != counted {
		t.Errorf("twg_drops_total says %d, and %d duplicates were found", n, counted)
	}
	w.stop()
	first := w.hold(c, unscreened)
	if named := c.Records() - int64(len(first)); named != counted {
		t.Errorf("%d records are left out, and %d duplicates were counted", named, counted)
	}
	for _, args := range [][]string{nil, {"--rows"}} {
		if got := w.audited(args...); got["db"] != counted || got["lake"] != counted {
			t.Errorf("audit %q says that %v are left out, want %d each", args, got, counted)
		}
	}

	late, dsn := "file://"+harness.Dir(t), suite.Database(t)
	s := &w.node.Streams[0]
	s.Sinks = append(s.Sinks, harness.ToPostgres("late", dsn), harness.ToParquet("latelake", late))
	w.begin()
	w.complete(w.Count())
	w.drops(counted)
	w.stop()
	harness.SameIDs(t, "the table that came later", harness.TableIDs(t, dsn, "orders"), first)
	harness.SameIDs(t, "the lake that came later", suite.LakeIDs(t, late, "s"), first)
	if got := w.audited("--rows"); got["late"] != counted || got["latelake"] != counted {
		t.Errorf("audit says that %v are left out, want %d each", got, counted)
	}
}

// TestDedupRecoveryDropsTheSame: what a sink did not take while it was away, and what did not fit into its lane's queue, is brought by recovery without
// the records that the others were offered without.
func TestDedupRecoveryDropsTheSame(t *testing.T) {
	t.Parallel()
	faults, err := servers.NewTCPFaults(suite.Postgres.Addr())
	harness.Must(t, err)
	defer faults.Close()
	w := layTwinned(t, 3, harness.Dedup{Mode: "drop", Window: "5m"}, nil)
	through, err := servers.Via(w.dsn, faults.Addr())
	harness.Must(t, err)
	db := &w.node.Streams[0].Sinks[0]
	db.Postgres.DSN, db.Deadline, db.Queue = through, "3s", "1MiB"
	w.begin()
	w.SendRetrying(600, 1000, repeats)
	w.complete(w.Count())
	harness.Must(t, faults.Set(servers.TCPRefuse))
	o := w.observe("db")
	w.SendRetrying(6000, 2000, harness.Retries{Every: 10, Within: time.Second,
		Record: func(n int) harness.Record { // large ones, so that the queue overflows
			r := harness.Unique(10_000+n, 3)
			r.Value = append(r.Value[:len(r.Value)-2], strings.Repeat("y", 600)+`"}`...)
			return r
		}})
	w.stored(w.Count())
	w.node.WaitUntil("the lake to have all", 30*time.Second, func(s harness.StreamStatus) bool {
		return s.Sink("lake").Covers(w.Count())
	})
	harness.Must(t, faults.Set(servers.TCPPass))
	w.complete(w.Count())
	o.stop()
	if n := w.node.Metric("twg_lane_refused_total", `sink="db"`); o.gap == 0 || n == 0 {
		t.Errorf("at most %d offsets were left to recovery, and %v batches did not fit into the queue", o.gap, n)
	}
	unscreened := w.unscreened()
	w.stop()
	c := w.truth()
	ids := w.hold(c, unscreened)
	harness.SameIDs(t, "the lake, beside the table", suite.LakeIDs(t, w.lake, "s"), ids)
	w.audited("--rows")
}
