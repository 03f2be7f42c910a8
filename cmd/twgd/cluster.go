package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/stream-arrow/twgd/cluster"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/lease"
	"github.com/stream-arrow/twgd/recovery"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/tuning"
)

// part is what this process is in its cluster: the control house as the streams and the commands see it.
type part struct {
	node  *cluster.Node
	store store.Bucket // of backups; nil where there are none
}

// joining says how a process was started, where that is not in the file.
type joining struct {
	found bool // run --found
	join  bool // twgd join
}

// openPart takes this node's place in the cluster. It listens, and decides nothing yet. At size 0 there is no cluster: nil.
func openPart(n *node, how joining) (_ *part, err error) {
	if n.cfg.Cluster.Size == 0 {
		return nil, nil
	}
	p := &part{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	o := clusterOptions(n.cfg, n.log)
	o.Instance, o.Found, o.Joining, o.Registerer = n.random(), how.found, how.join, n.registry
	o.Stop = func(reason error) { n.log.Info("the node ends", "reason", reason); n.end() }
	if o.Backup, p.store, err = backupOptions(n.cfg, n.log); err != nil {
		return nil, err
	}
	p.node, err = cluster.New(o)
	return p, err
}

// run takes part until ctx ends. The function that it returns is called when the streams have drained: it waits until this node has handed
// over. end is called where the node cannot take part any more.
func (p *part) run(ctx context.Context, end func()) (wait func() error) {
	if p == nil {
		return func() error { return nil }
	}
	drained, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		err := p.node.Run(ctx, drained)
		end()
		ended <- err
	}()
	return func() error {
		close(drained)
		return errors.Join(<-ended, p.close())
	}
}

func (p *part) close() error {
	if p == nil || p.store == nil {
		return nil
	}
	return p.store.Close()
}

// clusterOptions are what the file says of the cluster. Commands for a stopped node begin with them too.
func clusterOptions(cfg *config.Config, log *slog.Logger) cluster.Options {
	c := &cfg.Cluster
	return cluster.Options{
		Cluster: c.Name, Node: cfg.Node.ID, Ordinal: ordinal(cfg), Mode: cfg.Node.Mode, Dir: cfg.Node.DataDir,
		Size: c.Size, VoterBudget: c.VoterBudget, Settle: time.Duration(c.Settle),
		Listen: string(c.Listen), Gossip: string(c.Gossip), Advertise: c.Advertise, Join: c.Join,
		FoundAfter: time.Duration(c.FoundAfter), Grace: time.Duration(cfg.Node.ShutdownGrace),
		Secret: string(c.Secret), PreviousSecret: string(c.PreviousSecret), Log: log,
	}
}

// ordinal is the node's number. A node that only recovers comes and goes with the work, and has one only where it is given.
func ordinal(cfg *config.Config) int {
	if cfg.Node.Mode == modeRecovery && cfg.Node.Ordinal == (config.Ordinal{}) {
		return -1
	}
	return cfg.Node.Ordinal.Of(cfg.Node.ID)
}

// backupOptions open the place of backups; nil where the file names none.
func backupOptions(cfg *config.Config, log *slog.Logger) (*cluster.BackupOptions, store.Bucket, error) {
	b := &cfg.Cluster.Backup
	if b.To == "" {
		return nil, nil, nil
	}
	spool, err := spoolDir(cfg)
	if err != nil {
		return nil, nil, err
	}
	place, bucket, err := openBackups(context.Background(), &cfg.Cluster, spool, log)
	if err != nil {
		return nil, nil, fmt.Errorf("opening cluster.backup.to: %w", err)
	}
	return &cluster.BackupOptions{Place: place, Every: time.Duration(b.Every), Restore: b.Restore == "auto"}, bucket, nil
}

// status is the cluster's part of /status: null at size 0.
func (p *part) status() (json.RawMessage, error) {
	if p == nil {
		return nil, nil
	}
	return json.Marshal(p.node.Status())
}

// duties are shared with the other nodes: windows and offices are leases.
func (p *part) duties() duties {
	leases := p.node.Leases()
	return duties{claims: leasedWindows{leases}, elections: offices{leases}, shared: true}
}

// recoveryShare is the part of its time that recovery works, as `twgd tune recovery.share` sets it for all nodes.
func (p *part) recoveryShare() float64 {
	if p == nil {
		return 1
	}
	share, err := strconv.ParseFloat(p.node.Settings()[tuning.Share], 64)
	if err != nil {
		return 1
	}
	return share
}

// windowLease is how long a window stays with an agent that has gone silent. A window is renewed while it is worked on.
const windowLease = 30 * time.Second

type leasedWindows struct{ leases *lease.Client }

// Claim implements recovery.Claims.
func (l leasedWindows) Claim(ctx context.Context, name string) (recovery.Claim, bool, error) {
	held, ok, err := l.leases.Try(ctx, "window/"+name, windowLease)
	if err != nil || !ok {
		return nil, false, err
	}
	return leasedWindow{held}, true, nil
}

type leasedWindow struct{ *lease.Held }

func (w leasedWindow) Done(ctx context.Context) error {
	err := w.Held.Done(ctx)
	if errors.Is(err, lease.ErrStale) {
		return fmt.Errorf("%w: %w", recovery.ErrStale, err)
	}
	return err
}

// Release gives the window back. Where that fails its lease runs out.
func (w leasedWindow) Release(ctx context.Context) { _ = w.Held.Release(ctx) }

// officeLease is how long an office stays with a node that has gone silent.
const officeLease = 10 * time.Second

type offices struct{ leases *lease.Client }

// Elected implements recovery.Elections.
func (o offices) Elected(ctx context.Context, name string, role func(context.Context)) {
	_ = o.leases.Elect("office/"+name, officeLease).Run(ctx, func(ctx context.Context, _ uint64) { role(ctx) })
}
