package config

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/stream-arrow/twgd/unit"
)

// Joining is what a node that joins a cluster is told besides its file.
type Joining struct {
	Address string // of a node, host:port; it goes behind those of the file
	Secret  string // instead of the file's, where not empty
}

// LoadJoining is Load for a node that joins: what it is told counts as if it stood in the file.
func LoadJoining(data []byte, file string, env func(string) (string, bool), parts Parts, j Joining) (*Config, error) {
	return loadWith(data, file, expander{env, readFile}, parts, &j)
}

// apply puts into the configuration what did not stand in the file.
func (j *Joining) apply(d *decoder, c *Cluster) {
	if j == nil {
		return
	}
	c.Join = append(c.Join, j.Address)
	if j.Secret != "" {
		c.Secret = Secret(j.Secret)
		d.secrets = append(d.secrets, j.Secret)
	}
}

func (d *decoder) completeCluster(c *Cluster) {
	if b := &c.Backup; !d.given("cluster.backup.restore") {
		b.Restore = "auto"
		if b.unreadable() {
			b.Restore = "never"
		}
	}
	_, port, err := net.SplitHostPort(c.Listen.String())
	for i, a := range c.Join {
		if err == nil && a != "" && !strings.Contains(a[strings.LastIndexByte(a, ']')+1:], ":") {
			c.Join[i] = a + ":" + port
		}
	}
}

// unreadable: who holds the backups' keys is not this node.
func (b Backup) unreadable() bool { return len(b.EncryptTo) > 0 && b.IdentityFile == "" }

// checkCluster finds what the cluster's keys say together. Where the size is 0 the others say nothing.
func (d *decoder) checkCluster(cfg *Config) {
	c := cfg.Cluster
	d.checkSize(c.Size)
	d.checkMode(cfg)
	d.checkStreams(cfg)
	if c.Size == 0 {
		if len(c.Join) > 0 {
			d.problem("cluster.join", Problem{Text: "a node of size 0 is for itself and joins nobody: cluster.size says how large the cluster is to be", Found: "size 0"})
		}
		return
	}
	if c.Name == "" {
		d.problem("cluster.name", Problem{Text: "this key is missing: nodes know by it that they belong together, and backups lie under it"})
	}
	d.checkSecrets(c)
	d.checkJoin(c)
	d.checkListeners(cfg)
	d.checkBackup(c.Backup)
}

func (d *decoder) checkSize(size int) {
	if slices.Contains(sizes, size) {
		return
	}
	p := Problem{Text: "no cluster has this size", Found: fmt.Sprint(size), Allowed: "0 (a node for itself), 1, 3, 5, 7"}
	if size > 0 && size < 8 {
		p.Text = "an even size is refused: it tolerates no more failures than the odd size below it, and can be split into halves of which neither has a majority"
	}
	d.problem("cluster.size", p)
}

// checkMode refuses recovery by itself where nobody could share the work, or see raw.
func (d *decoder) checkMode(cfg *Config) {
	if cfg.Node.Mode != "recovery" {
		return
	}
	if cfg.Cluster.Size == 0 {
		d.problem("node.mode", Problem{Text: "a node that only recovers shares the work by the leases of a cluster, and cluster.size is 0", Found: show("recovery"), Allowed: `with size 0: ingest, both`})
	}
	d.checkShared(cfg, "a node that only recovers reads what other nodes store")
}

// checkStreams refuses a node that has nothing to do.
func (d *decoder) checkStreams(cfg *Config) {
	if len(cfg.Streams) > 0 || cfg.Cluster.Size != 0 || d.bad[""] {
		return
	}
	what := "this key is missing"
	if d.given("streams") {
		what = "this list is empty"
	}
	d.problem("streams", Problem{Text: what + ": without a stream there is nothing to do, unless cluster.size is above 0"})
}

// shortestSecret is in bytes. Keys are derived from the secret without slowing a guess down.
const shortestSecret = 16

func (d *decoder) checkSecrets(c Cluster) {
	switch {
	case c.Secret == "" && c.Size > 1:
		d.problem("cluster.secret", Problem{Text: "this key is missing: with a size above 1, nodes know each other by the secret that they share"})
	case c.Secret == "" && len(c.Join) > 0:
		d.problem("cluster.secret", Problem{Text: "this key is missing: a node joins with the secret that all nodes share"})
	case c.Secret != "" && len(c.Secret) < shortestSecret && (c.Size > 1 || len(c.Join) > 0):
		d.problem("cluster.secret", Problem{Text: "this secret is so short that whoever reaches the port could guess it", Allowed: "at least 16 bytes, better 32 random ones: head -c 32 /dev/urandom | base64"})
	case c.Secret == "" && c.PreviousSecret != "":
		d.problem("cluster.secret", Problem{Text: "this key is missing: there is a secret before it, but none now"})
	}
}

// checkJoin looks at ports; what the pattern lets through is a host, with or without one.
func (d *decoder) checkJoin(c Cluster) {
	for i, a := range c.Join {
		if a != "" && !reachable(a) {
			path := fmt.Sprintf("cluster.join[%d]", i)
			d.problem(path, Problem{Text: "this is no address of a node", Found: d.foundAt(path, a), Allowed: "host:port"})
		}
	}
	if _, _, err := net.SplitHostPort(c.Advertise); err == nil && !reachable(c.Advertise) {
		d.problem("cluster.advertise", Problem{Text: "nobody is reached there", Found: d.foundAt("cluster.advertise", c.Advertise), Allowed: "a host, or host:port"})
	}
}

// reachable reports whether an address has a port that somebody can have.
func reachable(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if _, perr := unit.ParseAddress(address); err != nil || perr != nil {
		return false
	}
	return strings.Trim(port, "0") != ""
}

// checkListeners finds two that want one port of the machine.
func (d *decoder) checkListeners(cfg *Config) {
	all := []struct {
		path string
		at   unit.Address
	}{{"node.http", cfg.Node.HTTP}, {"cluster.listen", cfg.Cluster.Listen}, {"cluster.gossip", cfg.Cluster.Gossip}}
	for i, a := range all {
		for _, b := range all[:i] {
			if meet(a.at, b.at) {
				d.problem(a.path, Problem{Text: b.path + " listens there already", Found: d.foundAt(a.path, a.at.String())})
			}
		}
	}
}

// meet reports whether two addresses are one of the machine's. Port 0 is a free one.
func meet(a, b unit.Address) bool {
	ha, pa, _ := net.SplitHostPort(a.String())
	hb, pb, _ := net.SplitHostPort(b.String())
	every := func(host string) bool { return host == "" || net.ParseIP(host).IsUnspecified() }
	return pa == pb && strings.Trim(pa, "0") != "" && (ha == hb || every(ha) || every(hb))
}

func (d *decoder) checkBackup(b Backup) {
	for i, r := range b.EncryptTo {
		if d.parts.Recipient == nil {
			break
		}
		if err := d.parts.Recipient(r); err != nil {
			path := fmt.Sprintf("cluster.backup.encrypt_to[%d]", i)
			d.problem(path, Problem{Text: err.Error(), Found: d.foundAt(path, r)})
		}
	}
	if b.Restore == "auto" && b.unreadable() {
		d.problem("cluster.backup.restore", Problem{Text: "nobody can be restored without being asked from what is encrypted to others: identity_file is missing", Found: show("auto"), Allowed: "never, or auto with an identity_file"})
	}
}

// checkRaw refuses a cluster whose nodes would not see each other's raw.
func (d *decoder) checkRaw(cfg *Config) {
	if cfg.Cluster.Size != 0 && cfg.Cluster.Peers() {
		d.checkShared(cfg, "in a cluster of several nodes, each reads what the others store")
		d.checkApart(cfg)
	}
}

// checkApart refuses sinks whose files would be scattered over the machines: any node may fill in what another's sink missed.
func (d *decoder) checkApart(cfg *Config) {
	for i, s := range cfg.Streams {
		for j, k := range s.Sinks {
			if k.Options != nil && k.Options.Apart() {
				d.problem(fmt.Sprintf("streams[%d].sinks[%d].%s.shared", i, j, k.Kind), Problem{
					Text:  "in a cluster of several nodes, any of them may fill in what another missed, and this directory is not marked as one that all of them see",
					Found: "false", Allowed: "shared: true, where that is so; or a bucket"})
			}
		}
	}
}

func (d *decoder) checkShared(cfg *Config, why string) {
	for i, s := range cfg.Streams {
		if s.Raw.To.Scheme() == "file" && !s.Raw.Shared {
			d.problem(fmt.Sprintf("streams[%d].raw.shared", i), Problem{
				Text: why + ", and this directory is not marked as one that all of them see", Found: "false",
				Allowed: "shared: true, where that is so; or a bucket"})
		}
	}
}
