package harness

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/servers"
)

// Alone makes a node a cluster of one: it has replicated tables and opens no port for them.
func (n *Node) Alone() *Node {
	n.Cluster, n.Ordinal = map[string]any{"name": "alone", "size": 1}, 0
	return n
}

// Gather makes nodes one cluster of as many seats as they are. None of them runs yet.
func Gather(t testing.TB, nodes []*Node) {
	t.Helper()
	ports, release, err := servers.Ports(2 * len(nodes))
	Must(t, err)
	t.Cleanup(release)
	var join []string
	for i := range nodes {
		join = append(join, fmt.Sprintf("127.0.0.1:%d", ports[2*i]))
	}
	for i, n := range nodes {
		n.Ordinal = i
		n.Cluster = map[string]any{"name": "group", "size": len(nodes), "secret": "9b1f6e07c2d84a35b0e7f1a6c4d29358", "found_after": "2s",
			"listen": join[i], "gossip": fmt.Sprintf("127.0.0.1:%d", ports[2*i+1]), "advertise": "127.0.0.1", "join": join}
	}
}

// ClusterStatus is what a node says of its cluster.
type ClusterStatus struct {
	State   string
	Leader  string
	Members []struct {
		ID    string
		Roles []string
	}
	Entries *int64 `json:"dedup_entries"`
}

// Voters are the names of those who have a seat.
func (c ClusterStatus) Voters() (out []string) {
	for _, m := range c.Members {
		if slices.Contains(m.Roles, "voter") {
			out = append(out, m.ID)
		}
	}
	return out
}

// ClusterStatus is the object "cluster" of /status.
func (n *Node) ClusterStatus() (c ClusterStatus, seen string, err error) {
	_, body, err := n.Get("/status")
	if err != nil {
		return c, err.Error(), err
	}
	var status struct{ Cluster ClusterStatus }
	err = json.Unmarshal(body, &status)
	return status.Cluster, string(body), err
}

// Led waits until the node knows a leader, and returns its name.
func (n *Node) Led(bound time.Duration) (leader string) {
	n.t.Helper()
	Await(n.t, fmt.Sprintf("node %s to know a leader", n.ID), bound, func() (string, bool) {
		c, seen, err := n.ClusterStatus()
		leader = c.Leader
		return seen, err == nil && leader != ""
	})
	return leader
}

// Full waits until the node says that so many seats are taken and somebody leads, and returns the name of who does.
func (n *Node) Full(bound time.Duration, seats int) (leader string) {
	n.t.Helper()
	Await(n.t, fmt.Sprintf("%d seats to be taken, as node %s sees it", seats, n.ID), bound, func() (string, bool) {
		c, seen, err := n.ClusterStatus()
		leader = c.Leader
		return seen, err == nil && len(c.Voters()) == seats && leader != ""
	})
	return leader
}
