//go:build e2e

package kill

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

// twins lays three nodes of one group that deduplicate, and starts them. They share raw and a lake on object storage, and a table.
func twins(t *testing.T, mode string) *half {
	t.Helper()
	h := lay(t, suite.Bucket(t, "raw"), suite.Bucket(t, "lake"), 3, func(s *harness.Stream) {
		s.Deduplicate(harness.Dedup{Mode: mode, Window: "5m"})
	})
	harness.Gather(h, h.nodes)
	for _, n := range h.nodes {
		n.Start()
	}
	for _, n := range h.nodes {
		n.Led(30 * time.Second) // claims need no more; the seats fill meanwhile
	}
	h.shared()
	return h
}

// shared waits until the running nodes have all partitions, and each has some.
func (h *half) shared() {
	h.Helper()
	harness.Await(h, "the nodes to share the partitions", 60*time.Second, func() (seen string, ok bool) {
		sum := 0
		for _, n := range h.nodes {
			st, err := n.Status()
			if err != nil || len(st.Streams) == 0 || len(st.Streams[0].Partitions) == 0 {
				return fmt.Sprintf("%s has %v %v", n.ID, st, err), false
			}
			sum += len(st.Streams[0].Partitions)
			seen += st.String() + "\n"
		}
		return seen, sum == partitions
	})
}

// repeats makes one record of twenty come a second time, on another partition, within a second. Numbers begin at from.
func repeats(from int) harness.Retries {
	return harness.Retries{Every: 20, Within: time.Second, Record: func(n int) harness.Record { return harness.Unique(from+n, partitions) }}
}

// counts sums a metric over all nodes.
func (h *half) counts(name string) (sum int64) {
	h.Helper()
	for _, n := range h.nodes {
		sum += int64(n.Metric(name))
	}
	return sum
}

// TestDedupGroupMeasures: three processes count what was sent twice, most of it through different ones.
func TestDedupGroupMeasures(t *testing.T) {
	h := twins(t, "measure")
	want := h.producer.SendRetrying(12_000, rate, repeats(0))
	h.reach(want)
	counted, unscreened := h.counts("twg_dedup_duplicates_total"), h.counts("twg_dedup_unavailable_total")
	c := suite.Contents(h.topic, want, nil)
	t.Logf("%d records, %d of them second copies, %d counted, %d unscreened", c.Records(), c.Twins, counted, unscreened)
	if off := math.Abs(float64(counted - c.Twins)); off > float64(c.Twins)/100+float64(unscreened) || counted > c.Twins {
		t.Errorf("%d duplicates were counted, and %d are there", counted, c.Twins)
	}
	h.end()
	h.compare(want)
}

// TestDedupGroupDrops: three processes leave each content once in the table and in the lake, and raw has all. Then, under load, the leader is killed,
// and another one is stopped for longer than the group and the quorum wait: no content is absent, and no more duplicates survive than the bound
// says that harness.Lapses describes. Once all answer again, each content is there once as before.
func TestDedupGroupDrops(t *testing.T) {
	h := twins(t, "drop")
	want := h.producer.SendRetrying(6000, rate, repeats(0))
	h.reach(want)
	living := h.counts("twg_dedup_unavailable_total")
	h.survivors(want, living, fmt.Sprintf("%d records passed unscreened", living), false)

	lapses := &harness.Lapses{DSN: h.dsn, Ends: func() map[int32]int64 { return suite.RawEnds(t, h.raw, h.topic) }}
	h.full(h.nodes[0])
	h.producer.BeginRetrying(rate, repeats(1_000_000))
	h.grows(h.nodes)
	h.losesItsLeader(lapses)
	h.steady()
	before, unscreened := len(h.producer.End()), h.counts("twg_dedup_unavailable_total")
	want = h.producer.SendRetrying(before+4000, rate, repeats(2_000_000))
	h.reach(want)

	living = h.counts("twg_dedup_unavailable_total")
	unscreened = living - unscreened
	most, why := lapses.Most(suite.Contents(h.topic, want, nil), want, suite.IDs(h.topic, want), living)
	h.end()
	h.compareRaw(want)
	h.survivors(want, most, why, true)
	h.once(want[before:], unscreened)
	code, r := h.nodes[0].Audit("--rows")
	named := int64(len(suite.Dropped(t, h.raw, "s", false)))
	if left := r.LeftOut("duplicate"); code != 0 || left["db"] != named || left["lake"] != named {
		t.Errorf("%d records are named as dropped; audit exits with code %d and says %v of them: %v", named, code, left, r.Findings)
	}
}

// losesItsLeader kills the leader and starts it again, and then stops the leader for a while.
func (h *half) losesItsLeader(lapses *harness.Lapses) {
	h.Helper()
	leader := h.full(h.nodes[0])
	lapses.Kill(leader)
	h.grows(h.others(leader))
	leader.Start()
	h.full(leader)
	h.shared()
	leader = h.full(h.nodes[0])
	lapses.Pause(leader)
	paused := time.Now()
	h.grows(h.others(leader))
	time.Sleep(8*time.Second - time.Since(paused)) // more than the session of the group, and than a leader is waited for
	leader.Continue()
	h.shared()
	h.grows(h.nodes)
}

// steady waits until for two seconds no record has passed unscreened, while records are screened.
func (h *half) steady() {
	h.Helper()
	unscreened, since := int64(-1), time.Now()
	harness.Await(h, "claims to be answered at all nodes", 60*time.Second, func() (string, bool) {
		if now := h.counts("twg_dedup_unavailable_total"); now != unscreened {
			unscreened, since = now, time.Now()
		}
		return fmt.Sprintf("%d unscreened, the last one %v ago", unscreened, time.Since(since)), time.Since(since) > 2*time.Second
	})
}

// once fails where of these records more stand beside a twin than passed unscreened.
func (h *half) once(sent []harness.Record, unscreened int64) {
	h.Helper()
	c, ids := suite.Contents(h.topic, sent, nil), suite.IDs(h.topic, sent)
	for where, rows := range map[string][]harness.Held{"the table": harness.TableRows(h, h.dsn, "orders"), "the lake": suite.LakeRows(h, h.lake, "s")} {
		extra := c.Present(h, where, harness.Among(rows, ids))
		h.Logf("%s: of the last %d records %d of %d duplicates survive, %d passed unscreened", where, len(sent), extra, c.Twins, unscreened)
		if extra > unscreened {
			h.Errorf("%s has %d duplicates of what was sent when all answered again, and %d records passed unscreened", where, extra, unscreened)
		}
	}
}

// others are all nodes but one.
func (h *half) others(but *harness.Node) (out []*harness.Node) {
	for _, n := range h.nodes {
		if n != but {
			out = append(out, n)
		}
	}
	return out
}

// grows waits until these nodes together have found fifty duplicates more than at the call: claims are answered.
func (h *half) grows(nodes []*harness.Node) {
	h.Helper()
	found := func() (sum int64) {
		for _, n := range nodes {
			sum += int64(n.Metric("twg_dedup_duplicates_total"))
		}
		return sum
	}
	was := found()
	harness.Await(h, "duplicates to be found", 60*time.Second, func() (string, bool) {
		now := found()
		return fmt.Sprintf("%d, from %d", now, was), now >= was+50
	})
}

// survivors compares the sinks with the contents of what was produced: none is absent, what is left out is named, and no more than most records
// stand beside a twin.
func (h *half) survivors(want []harness.Record, most int64, why string, whole bool) {
	h.Helper()
	c := suite.Contents(h.topic, want, nil)
	named := suite.Dropped(h, h.raw, "s", false)
	for where, rows := range map[string][]harness.Held{"the table": harness.TableRows(h, h.dsn, "orders"), "the lake": suite.LakeRows(h, h.lake, "s")} {
		suite.SameValues(h, where, h.topic, want, rows)
		extra := c.Present(h, where, rows)
		c.LeftOut(h, where, rows, named, whole)
		h.Logf("%s: %d of %d records, %d of %d duplicates survive; %d may: %s", where, len(rows), c.Records(), extra, c.Twins, most, why)
		if extra > most {
			h.Errorf("%s has %d duplicates, and no more than %d may survive: %s", where, extra, most, why)
		}
	}
}

// TestKillClusterDropping is TestKillCluster with a stream that drops, and a producer that repeats itself: raw is exact, and no content is lost. A
// table that comes afterwards, and is filled by all nodes, leaves out exactly what is named.
func TestKillClusterDropping(t *testing.T) {
	h := twins(t, "drop")
	h.producer.BeginRetrying(rate, harness.Retries{Every: 20, Within: time.Second,
		Record: func(n int) harness.Record { return harness.Numbered(n, partitions) }})
	h.churn(max(2, *rounds/8))
	want := h.producer.End()
	h.reach(want)
	h.end()
	h.compareRaw(want)
	h.survivors(want, int64(len(want)), "only what is lost counts here", true)

	late := suite.Database(t)
	sink := harness.ToPostgres("late", late)
	for _, n := range h.nodes {
		n.Streams[0].Sinks = append(n.Streams[0].Sinks, sink)
		n.Start()
	}
	h.reach(want)
	h.end()
	c, rows := suite.Contents(h.topic, want, nil), harness.TableRows(t, late, "orders")
	c.Present(t, "the table that came later", rows)
	c.LeftOut(t, "the table that came later", rows, suite.Dropped(t, h.raw, "s", false), false)
}
