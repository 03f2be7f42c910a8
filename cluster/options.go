package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/cluster/wire"
)

// Options are what a node is told at its start. Everything that the whole cluster shares is only the founder's proposal: afterwards the
// replicated settings hold (size, settle, voter budget).
type Options struct {
	Cluster  string // the cluster's name
	Node     string // the node's name, unique in the cluster
	Instance string // tells two processes of one name apart (holder of leases: node~instance)
	Ordinal  int    // the lowest is preferred for a seat; -1: none, the order of joining counts
	Mode     string // ingest, both or recovery: shown as roles, decides nothing here
	Dir      string // the node's data directory: Raft lies in Dir/raft

	Size        int           // seats: 1, 3, 5, 7
	VoterBudget float64       // the share of its byte budget that a voter keeps
	Settle      time.Duration // how long a seat is kept for a node that is gone

	Listen    string // host:port of Raft and RPC
	Gossip    string // host:port of gossip; empty: none, nodes hear of each other by asking
	Advertise string // host, or host:port, under which others reach Listen. Empty: the first private address

	Join       []string      // host:port, or DNS names that list peers
	Found      bool          // found, though a peer is silent (run --found)
	Joining    bool          // never found (twgd join)
	FoundAfter time.Duration // how long nobody with state may answer before ordinal 0 founds
	Grace      time.Duration // from the end of Run's context to its return, at most

	Secret         string // opens the port to those who know it; empty only for a cluster of one
	PreviousSecret string // is trusted too, while secrets are changed

	Backup *BackupOptions // nil: no backups

	Network         wire.Network                                             // nil: TCP
	Lookup          func(ctx context.Context, host string) ([]string, error) // nil: the system's resolver
	GossipTransport memberlist.NodeAwareTransport                            // nil: UDP and TCP
	Registerer      prometheus.Registerer                                    // nil: no metrics
	Log             *slog.Logger                                             // nil: slog.Default
	Stop            func(reason error)                                       // asks the process to end: this node has left for good. nil: nobody is asked
}

// BackupOptions say where the replicated state is kept besides the nodes' disks.
type BackupOptions struct {
	Place   *backup.Place
	Every   time.Duration // 0: on demand and at shutdown only
	Restore bool          // restore by itself, where it is sure that no quorum of disks is left
}

var errNoName = errors.New("cluster: the node and the cluster need a name")

// lonely says that nobody can ever come: then no port is opened.
func (o *Options) lonely() bool { return o.Size <= 1 && len(o.Join) == 0 && o.Secret == "" }

func (o *Options) fill() error {
	if o.Node == "" || o.Cluster == "" {
		return errNoName
	}
	if strings.ContainsAny(o.Node, "~/") {
		return fmt.Errorf("cluster: the node's name %q must hold neither ~ nor /", o.Node)
	}
	if o.Secret == "" && !o.lonely() {
		return errors.New("cluster: a node that has peers needs a secret")
	}
	if o.Network == nil {
		o.Network = wire.TCP()
	}
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupHost
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Stop == nil {
		o.Stop = func(error) {}
	}
	o.fillNumbers()
	return nil
}

func (o *Options) fillNumbers() {
	if o.Size == 0 {
		o.Size = 1
	}
	if o.Settle == 0 {
		o.Settle = 15 * time.Minute
	}
	if o.FoundAfter == 0 {
		o.FoundAfter = 15 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = 25 * time.Second
	}
	if o.VoterBudget == 0 {
		o.VoterBudget = 0.5
	}
}

// holder names this process as a holder of leases.
func (o *Options) holder() string { return o.Node + "~" + o.Instance }

// advertised returns the address under which others reach what listens on bound.
func (o *Options) advertised(bound string) (string, error) {
	_, port, err := net.SplitHostPort(bound)
	if err != nil {
		return "", fmt.Errorf("cluster: address of the port: %w", err)
	}
	if o.Advertise != "" {
		if _, _, err := net.SplitHostPort(o.Advertise); err == nil {
			return o.Advertise, nil
		}
		return net.JoinHostPort(o.Advertise, port), nil
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return "", fmt.Errorf("cluster: listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return net.JoinHostPort(host, port), nil
	}
	return net.JoinHostPort(privateAddress(), port), nil
}

// privateAddress finds the first private address of this host, or the loopback where it has none.
func privateAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsPrivate() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}
