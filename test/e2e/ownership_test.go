//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/servers"
)

// segments picks what is immutable in raw.
func segments(key string) bool {
	return strings.HasSuffix(key, ".avro") && !strings.Contains(key, "/_") || strings.HasSuffix(key, "/_genesis")
}

// TestCaseD01: a writer that was stopped across a rebalance comes back with open records and does not touch what the next one stored.
func TestCaseD01(t *testing.T) {
	t.Parallel()
	raw := suite.Bucket(t, "raw")
	b := lay(t, 1, func(s *harness.Stream) {
		s.Raw = harness.Raw{To: raw, Flush: harness.Flush{Age: "3s", Records: 100}}
		s.Source.Kafka.Session = harness.Session()
	})
	suite.Watch(t, b.topic)
	b.node.Start()
	b.ready()
	b.Send(harness.Plain(0, 100, 50)...)
	b.stored(100)
	opened := time.Now()
	b.Send(harness.Plain(0, 10, 50)...)
	b.taken(110)
	b.node.Pause()
	before := suite.Objects(t, raw)
	if n := suite.RawEnds(t, raw, b.topic)[0]; n != 100 {
		t.Fatalf("raw ends at %d, and not at 100, with A stopped: the case needs open records", n)
	}
	second := b.stream
	second.Raw.Flush = harness.Flush{Age: "200ms"}
	other := suite.Node(t, "b", second).Start()
	b.Send(harness.Plain(0, 90, 50)...)
	other.WaitUntil("200 offsets in raw", 40*time.Second, func(s harness.StreamStatus) bool { return s.Raw() == 200 })
	taken := suite.Objects(t, raw)
	harness.Unchanged(t, before, taken, segments)

	time.Sleep(time.Until(opened.Add(3500 * time.Millisecond))) // what A has open is due when it goes on
	b.node.Continue()
	harness.Await(t, "A to notice that the partition is another's", 30*time.Second, func() (string, bool) {
		log := b.node.Log()
		_, last, _ := strings.Cut(log, `"msg":"reading a partition"`)
		return "nothing of the kind in its log", strings.Contains(last, "fenced: another writer owns the chain") || strings.Contains(last, "UNKNOWN_MEMBER_ID")
	})
	t.Logf("A was fenced by raw: %v; by the group: %v", strings.Contains(b.node.Log(), "fenced: another"), strings.Contains(b.node.Log(), "UNKNOWN_MEMBER_ID"))
	b.Send(harness.Plain(0, 10, 50)...)
	harness.Await(t, "210 offsets in raw", 40*time.Second, func() (string, bool) {
		n := suite.RawEnds(t, raw, b.topic)[0]
		return fmt.Sprint(n), n == 210
	})
	now := suite.Objects(t, raw)
	harness.Unchanged(t, taken, now, segments)
	for _, n := range []*harness.Node{b.node, other} {
		if code := n.Stop(); code != 0 {
			t.Errorf("node %s ends with code %d", n.ID, code)
		}
	}
	harness.SameRecords(t, "raw", b.records(), b.Acked())
}

// TestCaseD02: a second consumer joins while everything is still open in the first.
func TestCaseD02(t *testing.T) {
	t.Parallel()
	b := lay(t, 7, func(s *harness.Stream) {
		s.Raw = harness.Raw{To: suite.Bucket(t, "raw"), Flush: harness.Flush{Age: "60s"}}
	})
	suite.Watch(t, b.topic)
	b.node.Start()
	b.ready()
	for p := range int32(7) {
		b.Send(harness.Plain(p, 1500, 30)...)
	}
	b.taken(7 * 1500)
	time.Sleep(lasting(20*time.Second, time.Second))
	other := suite.Node(t, "b", b.stream).Start()
	both := func(n *harness.Node) {
		n.WaitUntil("a part of the partitions", 40*time.Second, func(s harness.StreamStatus) bool {
			return len(s.Partitions) == 3 || len(s.Partitions) == 4
		})
	}
	both(other)
	both(b.node)
	for _, n := range []*harness.Node{b.node, other} {
		if code := n.Stop(); code != 0 {
			t.Errorf("node %s ends with code %d", n.ID, code)
		}
	}
	harness.SameRecords(t, "raw", b.records(), b.Acked())
}

// TestCaseD06: what was read but not stored when the process was killed is read again.
func TestCaseD06(t *testing.T) {
	t.Parallel()
	b := lay(t, 1, func(s *harness.Stream) { s.Raw.Flush.Age = "10m" })
	b.node.Start()
	b.ready()
	b.Send(harness.Plain(0, 1000, 100)...)
	b.taken(1000)
	b.node.Kill()
	if n := len(b.records()); n != 0 || suite.Committed(t, b.topic)[0] != 0 {
		t.Fatalf("%d records in raw and offsets %v before the kill: the case needs none", n, suite.Committed(t, b.topic))
	}
	b.node.Streams[0].Raw.Flush.Age = "100ms"
	b.node.Start()
	b.complete(1000)
	b.stop()
	harness.SameRecords(t, "raw", b.records(), b.Acked())
}

// TestCaseD07: SIGTERM stores what is open, however long it could have waited.
func TestCaseD07(t *testing.T) {
	t.Parallel()
	b := lay(t, 1, func(s *harness.Stream) { s.Raw.Flush.Age = "30m" })
	b.node.Grace = "10s"
	b.node.Start()
	b.ready()
	b.Send(harness.Plain(0, 1, 10)...)
	b.taken(1)
	begin := time.Now()
	b.stop()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the end took %v", took)
	}
	harness.SameRecords(t, "raw", b.records(), b.Acked())
	if at := suite.Committed(t, b.topic)[0]; at != 1 {
		t.Errorf("the group's offset is %d, want 1", at)
	}
}

// TestCaseD07RawDown: with raw's store down, the process goes within the grace period, says so, and moves nothing.
func TestCaseD07RawDown(t *testing.T) {
	t.Parallel()
	faults, err := servers.NewS3Faults(suite.S3)
	harness.Must(t, err)
	defer faults.Close()
	bucket, err := suite.S3.NewBucket(t.Context())
	harness.Must(t, err)
	b := lay(t, 1, func(s *harness.Stream) {
		s.Raw = harness.Raw{To: faults.URL(bucket, "raw"), Flush: harness.Flush{Age: "30m"}}
	})
	b.node.Grace = "6s"
	b.node.Start()
	b.ready()
	b.Send(harness.Plain(0, 1, 10)...)
	b.taken(1)
	faults.Add(servers.S3Fault{Times: -1, Do: servers.Unavailable()})
	begin := time.Now()
	b.node.Terminate()
	code := b.node.Exit(20 * time.Second)
	if took := time.Since(begin); took > 7*time.Second {
		t.Errorf("the end took %v, the grace period is 6 s", took)
	}
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if at := suite.Committed(t, b.topic)[0]; at != 0 {
		t.Errorf("the group's offset moved to %d", at)
	}
	faults.Clear()
	b.node.Streams[0].Raw.Flush.Age = "100ms"
	b.node.Start()
	b.complete(1)
	b.stop()
	harness.SameRecords(t, "raw", b.records(), b.Acked())
}

// TestCaseD09: a segment is stored, and the process killed before anything else; the next one cuts otherwise.
func TestCaseD09(t *testing.T) {
	t.Parallel()
	b := lay(t, 1, func(s *harness.Stream) {
		s.Raw = harness.Raw{To: suite.Bucket(t, "raw"), Flush: harness.Flush{Records: 100, Age: "10m"}}
	})
	b.node.Start()
	b.ready()
	b.Send(harness.Plain(0, 100, 20)...)
	harness.Await(t, "the first segment", 30*time.Second, func() (string, bool) {
		ends := suite.RawEnds(t, b.raw, b.topic)
		return fmt.Sprint(ends), ends[0] == 100
	})
	b.node.Kill()
	before := suite.Objects(t, b.raw)
	b.node.Streams[0].Raw.Flush = harness.Flush{Records: 60, Age: "500ms"}
	b.node.Start()
	b.Send(harness.Plain(0, 150, 20)...)
	b.complete(250)
	b.stop()
	harness.Unchanged(t, before, suite.Objects(t, b.raw), segments)
	harness.SameRecords(t, "raw", b.records(), b.Acked())
}

// TestCaseD29: whatever becomes of the group's offset, the chain goes on where it ends.
func TestCaseD29(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int64{"ahead": 900, "back": 50, "inside": 150, "expires": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := lay(t, 1, nil)
			b.node.Start()
			b.Send(harness.Plain(0, 100, 10)...)
			b.complete(100)
			b.Send(harness.Plain(0, 100, 10)...)
			b.complete(200)
			b.stop()
			if at < 0 {
				suite.DeleteGroup(t, b.topic)
			} else {
				suite.SetCommitted(t, b.topic, 0, at)
			}
			b.Send(harness.Plain(0, 50, 10)...)
			b.node.Start()
			b.node.WaitUntil("250 offsets in raw", 30*time.Second, func(s harness.StreamStatus) bool { return s.Raw() == 250 })
			if at >= 0 {
				b.node.Says(10*time.Second, fmt.Sprintf("is %d", at), "200", "ignored")
			}
			b.stop()
			harness.SameRecords(t, "raw", b.records(), b.Acked())
			if c := b.chain(b.topic, 0); c.Next != 250 || len(c.Gaps) > 0 {
				t.Errorf("the chain ends at %d with gaps %v", c.Next, c.Gaps)
			}
		})
	}
}

// TestCaseD33: where a stream begins is fixed at its first start, though nothing was read then.
func TestCaseD33(t *testing.T) {
	t.Parallel()
	b := lay(t, 1, func(s *harness.Stream) { s.Source.Kafka.Start = "latest" })
	old := b.Send(harness.Plain(0, 5, 10)...)
	b.node.Start()
	b.ready()
	b.node.Kill()
	fresh := b.Send(harness.Plain(0, 10, 10)...)
	b.node.Start()
	b.node.WaitUntil("10 records behind the first 5", 30*time.Second, func(s harness.StreamStatus) bool { return s.Raw() == 15 })
	b.stop()
	harness.SameRecords(t, "raw", b.records(), fresh)
	if c := b.chain(b.topic, 0); c.First != int64(len(old)) {
		t.Errorf("the chain begins at %d, want 5", c.First)
	}
}

// files lists what lies in a lake.
func files(t *testing.T, location string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(suite.Local(t, location), "s", "*", "*", "*.parquet"))
	harness.Must(t, err)
	return found
}
