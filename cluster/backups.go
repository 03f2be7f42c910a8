package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/cluster/wire"
)

const backupWithin = 10 * time.Minute

// backups makes the cluster's backups while this node leads: on schedule, on demand, and as the last one to stop. One runs at a time.
type backups struct {
	o        *office
	wake     chan struct{}
	one      sync.Mutex // held while a backup runs
	schedule *backup.Schedule
	mu       sync.Mutex // guards schedule
}

func newBackups(o *office) *backups { return &backups{o: o, wake: make(chan struct{}, 1)} }

// run makes the backups that are due until the office ends.
func (b *backups) run(ctx context.Context) {
	every := b.o.n.o.Backup.Every
	if every <= 0 {
		return
	}
	b.mu.Lock()
	b.schedule = backup.NewSchedule(every, b.o.now(), b.newest(ctx))
	b.mu.Unlock()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if b.due() && b.o.open.Load() {
			if _, err := b.make(ctx); err != nil && ctx.Err() == nil {
				b.o.n.log.Warn("the backup failed and is tried again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (b *backups) due() bool {
	index, _ := b.o.r.f.Sum()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.schedule.Due(b.o.now(), index)
}

// newest is the index of the newest backup of this incarnation; 0 where none is known.
func (b *backups) newest(ctx context.Context) uint64 {
	all, err := b.o.n.o.Backup.Place.List(ctx)
	if err != nil {
		return 0
	}
	var index uint64
	for _, info := range all {
		if info.Incarnation == b.o.r.facts().Incarnation && info.Index > index {
			index = info.Index
			b.o.n.shelf.done(info, nil)
		}
	}
	return index
}

// make makes one backup now.
func (b *backups) make(ctx context.Context) (backup.Info, error) {
	b.one.Lock()
	defer b.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, backupWithin)
	defer cancel()
	info, err := b.store(ctx)
	if ctx.Err() != nil && err != nil && errors.Is(err, context.Canceled) {
		return info, err // the office ends: the next leader makes it
	}
	b.o.n.shelf.done(info, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.schedule == nil:
	case err != nil:
		b.schedule.Failed(b.o.now(), rand.Float64())
	default:
		b.schedule.Done(b.o.now(), info.Index)
	}
	return info, err
}

func (b *backups) store(ctx context.Context) (backup.Info, error) {
	snapshot, m, err := b.o.r.q.Snapshot(ctx)
	if err != nil {
		return backup.Info{}, fmt.Errorf("taking a snapshot: %w", err)
	}
	defer snapshot.Close()
	// The wall clock is for people and for the name; nothing is decided by it.
	meta := backup.Meta{Incarnation: b.o.r.facts().Incarnation, Index: m.Index, Term: m.Term, Time: time.Now()}
	info, err := b.o.n.o.Backup.Place.Store(ctx, meta, snapshot, verifySnapshot)
	if err != nil {
		return info, err
	}
	b.o.n.log.Info("backup made", "backup", info.Name, "index", info.Index, "bytes", info.Size)
	return info, nil
}

// errNoBackups says that there is nowhere to make one.
var errNoBackups = errors.New("no backups are configured: cluster.backup.to says where they go")

// Backup makes a backup now, on the leader, and returns it when it has been read back and verified.
func (n *Node) Backup(ctx context.Context) (backup.Info, error) {
	for {
		if o := n.officeNow(); o != nil {
			return o.backup(ctx)
		}
		at := n.whomToAsk()
		if at.Address != "" && n.port != nil {
			info, err := call[backup.Info](ctx, n, at.Address, methodBackup, struct{}{})
			if err == nil || final(err) {
				return info, err
			}
			n.redirect(at, err)
		}
		if !pauseOrDone(ctx, longWait) {
			return backup.Info{}, fmt.Errorf("no leader to make the backup: %w", ctx.Err())
		}
	}
}

func (o *office) backup(ctx context.Context) (backup.Info, error) {
	if o.backups == nil {
		return backup.Info{}, errNoBackups
	}
	return o.backups.make(ctx)
}

func (n *Node) handleBackup(ctx context.Context, _ wire.Peer, _ struct{}) (backup.Info, error) {
	o := n.officeNow()
	if o == nil {
		return backup.Info{}, n.notLeader()
	}
	info, err := o.backup(ctx)
	return info, n.coded(err)
}

// lastBackup is made by the one that stops last: what it holds is nowhere else.
func (n *Node) lastBackup(ctx context.Context, within time.Duration) {
	o := n.officeNow()
	if o == nil || o.backups == nil || within <= 0 {
		return
	}
	index, _ := o.r.f.Sum()
	n.shelf.mu.Lock()
	done := n.shelf.mu.last != nil && n.shelf.mu.last.Index >= index && n.shelf.mu.last.Incarnation == o.r.facts().Incarnation
	n.shelf.mu.Unlock()
	if done {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err := o.backup(ctx); err != nil {
		n.log.Warn("no backup was made at the end", "error", err)
	}
}
