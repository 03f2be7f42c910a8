//go:build e2e

package kill

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/servers"
)

// gather makes the nodes of a half a cluster of as many seats, with raw and sinks that all of them may fill.
func (h *half) gather() {
	h.Helper()
	ports, release, err := servers.Ports(2 * len(h.nodes))
	harness.Must(h, err)
	h.Cleanup(release)
	var join []string
	for i := range h.nodes {
		join = append(join, fmt.Sprintf("127.0.0.1:%d", ports[2*i]))
	}
	for i, n := range h.nodes {
		n.Ordinal = i
		n.Cluster = map[string]any{"name": "kill", "size": len(h.nodes), "secret": "9b1f6e07c2d84a35b0e7f1a6c4d29358", "found_after": "2s",
			"listen": join[i], "gossip": fmt.Sprintf("127.0.0.1:%d", ports[2*i+1]), "advertise": "127.0.0.1", "join": join}
		n.Start()
	}
}

// full waits until a node says that all seats are taken and somebody leads.
func (h *half) full(n *harness.Node) {
	h.Helper()
	harness.Await(h, "all seats to be taken", 60*time.Second, func() (string, bool) {
		_, body, err := n.Get("/status")
		var status struct {
			Cluster struct {
				Leader  string
				Members []struct{ Roles []string }
			}
		}
		if err != nil || json.Unmarshal(body, &status) != nil {
			return fmt.Sprintf("%s %v", body, err), false
		}
		voters := 0
		for _, m := range status.Cluster.Members {
			if strings.Contains(strings.Join(m.Roles, " "), "voter") {
				voters++
			}
		}
		return string(body), voters == len(h.nodes) && status.Cluster.Leader != ""
	})
}

// TestKillCluster does things to three processes that share a group, raw on object storage, the sinks, and the work of recovery, which they
// lease from the quorum that they form: they die, go, and leave for good to come back as new.
func TestKillCluster(t *testing.T) {
	h := begin(t, suite.Bucket(t, "raw"), suite.Bucket(t, "lake"), 3)
	h.gather()
	h.full(h.nodes[0])
	for round := range max(3, *rounds/4) {
		victim := h.dice.IntN(len(h.nodes))
		n, other := h.nodes[victim], h.nodes[(victim+1)%len(h.nodes)]
		t.Logf("round %d: %s", round, h.churn(n))
		harness.NotBeyondEnds(t, suite.Committed(t, h.topic), suite.RawEnds(t, h.raw, h.topic))
		h.moves(n)
		h.full(other)
	}
	h.complete()
}

// churn does one thing to a node.
func (h *half) churn(n *harness.Node) string {
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
