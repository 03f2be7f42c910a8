//go:build linux

package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stream-arrow/twgd/test/harness"
)

// secret is what the nodes and the tenants of every test have in common.
const secret = "5d2c1a7e90b84f63a1c8d7e6f5041b92"

// config writes the node's configuration file and returns its path.
func (n *Node) config() string {
	n.fleet.Helper()
	file := map[string]any{
		"node": map[string]any{"id": n.Name, "data_dir": n.Data, "http": "127.0.0.1:7480", "ordinal": n.Number - 1,
			"log": map[string]any{"format": "json"}},
		"cluster": n.cluster(),
		"streams": []any{},
	}
	set(file["node"].(map[string]any), "shutdown_grace", n.fleet.Grace)
	b, err := yaml.Marshal(file)
	harness.Must(n.fleet, err)
	path := filepath.Join(n.dir, "twgd.yaml")
	harness.Must(n.fleet, os.WriteFile(path, b, 0o600))
	return path
}

func (n *Node) cluster() map[string]any {
	f := n.fleet
	out := map[string]any{"name": f.Cluster, "size": f.Size}
	set(out, "settle", f.Settle)
	if f.Backup != nil {
		out["backup"] = f.Backup
	}
	if f.Alone {
		return out
	}
	out["secret"] = secret
	out["listen"], out["gossip"] = fmt.Sprintf("0.0.0.0:%d", n.port), fmt.Sprintf("0.0.0.0:%d", n.port+1)
	out["advertise"] = n.host.Address
	out["join"] = f.Addresses()
	set(out, "found_after", f.FoundAfter)
	return out
}

// Addresses are all nodes', in order.
func (f *Fleet) Addresses() (out []string) {
	for _, n := range f.Nodes {
		out = append(out, n.Address())
	}
	return out
}

func set(in map[string]any, key string, d time.Duration) {
	if d > 0 {
		in[key] = d.String()
	}
}
