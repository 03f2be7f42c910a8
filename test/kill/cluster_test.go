//go:build e2e

package kill

import (
	"fmt"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

// gather makes the nodes of a half a cluster of as many seats, with raw and sinks that all of them may fill, and starts them.
func (h *half) gather() {
	h.Helper()
	harness.Gather(h, h.nodes)
	for _, n := range h.nodes {
		n.Start()
	}
	h.full(h.nodes[0])
}

// full waits until a node says that all seats are taken and somebody leads, and returns who.
func (h *half) full(n *harness.Node) (leader *harness.Node) {
	h.Helper()
	name := n.Full(60*time.Second, len(h.nodes))
	for _, n := range h.nodes {
		if n.ID == name {
			return n
		}
	}
	h.Fatalf("%q leads, which is none of ours", name)
	return nil
}

// TestKillCluster does things to three processes that share a group, raw on object storage, the sinks, and the work of recovery, which they
// lease from the quorum that they form: they die, go, and leave for good to come back as new.
func TestKillCluster(t *testing.T) {
	h := begin(t, suite.Bucket(t, "raw"), suite.Bucket(t, "lake"), 3)
	h.gather()
	h.churn(max(3, *rounds/4))
	h.complete()
}

// churn does one thing to one node a round.
func (h *half) churn(rounds int) {
	h.Helper()
	for round := range rounds {
		victim := h.dice.IntN(len(h.nodes))
		n, other := h.nodes[victim], h.nodes[(victim+1)%len(h.nodes)]
		h.Logf("round %d: %s", round, h.disturb(n))
		harness.NotBeyondEnds(h, suite.Committed(h, h.topic), suite.RawEnds(h, h.raw, h.topic))
		h.moves(n)
		h.full(other)
	}
}

// disturb does one thing to a node.
func (h *half) disturb(n *harness.Node) string {
	h.Helper()
	time.Sleep(h.within(1500 * time.Millisecond))
	switch h.dice.IntN(4) {
	case 0:
		if code := n.Stop(); code != 0 {
			h.Errorf("node %s ends with code %d at SIGTERM", n.ID, code)
		}
		n.Start()
		return n.ID + " ended and started"
	case 1:
		if code, out := n.Ask("leave", "--wait"); code != 0 {
			h.Errorf("leave at node %s ends with code %d:\n%s", n.ID, code, out)
		}
		if code := n.Exit(40 * time.Second); code != 0 {
			h.Errorf("after it left, node %s ends with code %d", n.ID, code)
		}
		n.Start()
		return n.ID + " left and came back as new"
	case 2:
		d := 4*time.Second + h.within(4*time.Second)
		n.Pause()
		time.Sleep(d)
		n.Continue()
		return fmt.Sprintf("%s stopped for %v", n.ID, d)
	}
	n.Kill()
	time.Sleep(h.within(1500 * time.Millisecond))
	n.Start()
	return n.ID + " killed and started"
}
