//go:build e2e

package kill

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

var (
	rounds = flag.Int("rounds", 20, "how often something is done to the program, over both halves")
	seed   = flag.Uint64("seed", 0, "what decides when and what; 0 takes one at random, and the log says which")
)

// Load of each half.
const (
	partitions = 6
	rate       = 2000 // records a second
)

// half is one half of the rounds: a topic under steady load, what moves it, and where it goes.
type half struct {
	*testing.T
	dice     *rand.Rand
	topic    harness.Topic
	producer *harness.Producer
	raw      string
	lake     string
	dsn      string
	nodes    []*harness.Node
}

// begin lays a half and begins its load.
func begin(t *testing.T, raw, lake string, nodes int) *half {
	t.Helper()
	h := lay(t, raw, lake, nodes, nil)
	h.producer.Begin(rate)
	return h
}

// lay prepares a half; shape changes the stream before the nodes are made.
func lay(t *testing.T, raw, lake string, nodes int, shape func(*harness.Stream)) *half {
	t.Helper()
	n := *seed
	for n == 0 {
		n = rand.Uint64()
	}
	t.Logf("-seed %d", n)
	h := &half{T: t, dice: rand.New(rand.NewPCG(n, uint64(nodes))), topic: suite.Topic(t, partitions, nil), raw: raw, lake: lake, dsn: suite.Database(t)}
	stream := suite.Stream(h.topic, raw)
	if nodes > 1 {
		stream.Raw.Flush.Age = "200ms"
	}
	stream.Sinks = []harness.Sink{harness.ToParquet("lake", lake), harness.ToPostgres("db", h.dsn)}
	stream.Sinks[1].Deadline = "3s"
	if shape != nil {
		shape(&stream)
	}
	for i := range nodes {
		h.nodes = append(h.nodes, suite.Node(t, string(rune('a'+i)), stream))
	}
	suite.Watch(t, h.topic)
	h.producer = suite.Producer(t, h.topic)
	return h
}

// within is a random time up to d.
func (h *half) within(d time.Duration) time.Duration { return time.Duration(h.dice.Int64N(int64(d))) }

// moves waits until the node stores what it did not have at the call.
func (h *half) moves(n *harness.Node) {
	h.Helper()
	was := int64(-1)
	n.WaitUntil("raw to grow", 30*time.Second, func(s harness.StreamStatus) bool {
		if was < 0 {
			was = s.Raw()
		}
		return len(s.Partitions) > 0 && s.Raw() > was
	})
}

// complete waits until every sink has all that was produced, ends the nodes, and compares the stores with it.
func (h *half) complete() {
	h.Helper()
	want := h.producer.End()
	h.reach(want)
	h.end()
	h.compare(want)
}

// reach waits until every sink covers all that was produced.
func (h *half) reach(want []harness.Record) {
	h.Helper()
	harness.Await(h, fmt.Sprintf("all %d records in raw and both sinks", len(want)), 90*time.Second, func() (string, bool) {
		var sum harness.StreamStatus
		var seen strings.Builder
		for _, n := range h.nodes {
			st, err := n.Status()
			if err != nil || len(st.Streams) == 0 {
				return fmt.Sprint(err), false
			}
			sum = join(sum, st.Streams[0])
			seen.WriteString(st.String() + "\n")
		}
		return seen.String(), sum.Complete(int64(len(want)))
	})
}

// end ends the nodes.
func (h *half) end() {
	h.Helper()
	for _, n := range h.nodes {
		if code := n.Stop(); code != 0 {
			h.Errorf("node %s ends with code %d", n.ID, code)
		}
	}
}

func (h *half) compare(want []harness.Record) {
	h.Helper()
	h.compareRaw(want)
	ids := suite.IDs(h.topic, want)
	harness.SameIDs(h, "the lake", suite.LakeIDs(h, h.lake, "s"), ids)
	harness.SameIDs(h, "the table", harness.TableIDs(h, h.dsn, "orders"), ids)
}

// compareRaw compares raw with what was produced, and the group's offsets with raw.
func (h *half) compareRaw(want []harness.Record) {
	h.Helper()
	chains := suite.Raw(h, h.raw, "s")
	var stored []harness.Record
	for path, c := range chains {
		stored = append(stored, c.Records...)
		if len(c.Gaps) > 0 {
			h.Errorf("%s has gaps: %v", path, c.Gaps)
		}
	}
	harness.SameRecords(h, "raw", stored, want)
	harness.NotBeyond(h, suite.Committed(h, h.topic), chains, h.topic)
	h.Logf("%d records, %d chains", len(want), len(chains))
}

// join adds what two nodes say of their own partitions.
func join(a, b harness.StreamStatus) harness.StreamStatus {
	a.Partitions = append(a.Partitions, b.Partitions...)
	if len(a.Sinks) == 0 {
		a.Sinks = b.Sinks
		return a
	}
	for i := range a.Sinks {
		a.Sinks[i].Covered = add(a.Sinks[i].Covered, b.Sinks[i].Covered)
		a.Sinks[i].GapRecords = add(a.Sinks[i].GapRecords, b.Sinks[i].GapRecords)
	}
	return a
}

func add(a, b *int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	sum := *a + *b
	return &sum
}

// TestKillLocal kills one process over a local raw, at any moment: while it starts, joins, reads, stores, ends.
func TestKillLocal(t *testing.T) {
	h := begin(t, "file://"+harness.Dir(t), "file://"+harness.Dir(t), 1)
	n := h.nodes[0]
	for round := range (*rounds + 1) / 2 {
		n.Start()
		if h.dice.IntN(4) > 0 {
			h.moves(n)
		}
		time.Sleep(h.within(1500 * time.Millisecond))
		if h.dice.IntN(5) == 0 {
			n.Terminate()
			time.Sleep(h.within(100 * time.Millisecond))
			t.Logf("round %d: SIGTERM", round)
		}
		n.KillIfRunning()
		harness.NotBeyond(t, suite.Committed(t, h.topic), suite.RawAfterKill(t, h.raw, "s"), h.topic)
	}
	n.Start()
	h.complete()
}

// TestKillShared does things to one or both of two processes that share a group, raw on object storage, and the sinks.
func TestKillShared(t *testing.T) {
	h := begin(t, suite.Bucket(t, "raw"), suite.Bucket(t, "lake"), 2)
	for _, n := range h.nodes {
		n.Start()
	}
	h.moves(h.nodes[0])
	seen := map[string]string{}
	for round := range *rounds / 2 {
		victim := h.dice.IntN(2)
		n, other := h.nodes[victim], h.nodes[1-victim]
		what := h.act(n, other)
		t.Logf("round %d: %s", round, what)
		committed := suite.Committed(t, h.topic)
		harness.NotBeyondEnds(t, committed, suite.RawEnds(t, h.raw, h.topic))
		now := suite.Objects(t, h.raw)
		harness.Unchanged(t, seen, now, func(key string) bool { return strings.HasSuffix(key, ".avro") || strings.HasSuffix(key, "_genesis") })
		seen = now
		if !h.Failed() {
			h.moves(n)
		}
	}
	h.complete()
}

// act does one thing to n, or to both.
func (h *half) act(n, other *harness.Node) string {
	h.Helper()
	time.Sleep(h.within(1500 * time.Millisecond))
	switch h.dice.IntN(5) {
	case 0:
		n.Kill()
		other.Kill()
		harness.NotBeyondEnds(h, suite.Committed(h, h.topic), suite.RawEnds(h, h.raw, h.topic))
		other.Start()
		n.Start()
		return "both killed"
	case 1:
		d := 2500*time.Millisecond + h.within(2*time.Second)
		n.Pause()
		time.Sleep(d)
		n.Continue()
		return fmt.Sprintf("%s stopped for %v", n.ID, d)
	case 2:
		if code := n.Stop(); code != 0 {
			h.Errorf("node %s ends with code %d at SIGTERM", n.ID, code)
		}
		n.Start()
		return n.ID + " ended and started"
	}
	n.Kill()
	time.Sleep(h.within(1500 * time.Millisecond))
	n.Start()
	return n.ID + " killed and started"
}
