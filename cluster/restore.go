package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/cluster/quorum"
	"github.com/stream-arrow/twgd/roster"
)

// Restored says what a restore by hand has prepared. The node takes it up at its next start.
type Restored struct {
	ServerID    string `json:"server_id"`
	Incarnation uint64 `json:"incarnation"` // 0: one more than the log says, raised when the node leads
	From        string `json:"from"`        // disk, or the backup that is the newest now
	Next        string `json:"next"`        // what to do now
}

// askedFor is how long the restore of a stopped node listens for peers before it calls them silent.
const askedFor = 5 * time.Second

// RestoreFromDisk makes the log on a stopped node's disk the truth of its cluster: of its configuration this server alone remains, and
// when it is started it raises the incarnation and the fencing epoch. It is refused (ErrUnsafe) while a leader answers, while a seat is silent that is not
// in lost, while one in lost is alive, and unless no survivor's log reaches further. What only lost seats held is lost, and
// what this log holds uncommitted becomes true.
func RestoreFromDisk(ctx context.Context, o Options, lost []string) (Restored, error) {
	disk, err := quorum.Inspect(filepath.Join(o.Dir, "raft"))
	if err != nil {
		return Restored{}, fmt.Errorf("looking at the raft directory: %w", err)
	}
	if !disk.HasState {
		return Restored{}, fmt.Errorf("%w: there is no log on this disk to restore from; run this on a node that has one, or restore a backup without --from-disk", ErrUnsafe)
	}
	n, peers, err := survey(ctx, o)
	if err != nil {
		return Restored{}, err
	}
	if err := n.mayRewrite(disk, peers, lost); err != nil {
		return Restored{}, err
	}
	b := begin{Version: 1}
	if o.Backup != nil {
		if b.Incarnation, err = n.claimNext(ctx); err != nil {
			return Restored{}, err
		}
	}
	if err := writeJSON(n.markPath(), b); err != nil {
		return Restored{}, fmt.Errorf("writing how to begin: %w", err)
	}
	if err := quorum.Rewrite(n.raftDir(), n.log); err != nil {
		return Restored{}, fmt.Errorf("rewriting the configuration: %w", err)
	}
	return Restored{disk.ID, b.Incarnation, "disk", "start this node; wipe or start the others: they join"}, nil
}

// Restore prepares a stopped node without state to begin the next incarnation from the store, though seats that the store's note names
// are silent: the operator says that their disks are lost. The node loads the newest backup that verifies when it is started.
func Restore(ctx context.Context, o Options, lost []string) (Restored, error) {
	if o.Backup == nil {
		return Restored{}, fmt.Errorf("%w: cluster.backup.to names no store to restore from; --from-disk restores from this node's log", ErrUnsafe)
	}
	disk, err := quorum.Inspect(filepath.Join(o.Dir, "raft"))
	if err != nil {
		return Restored{}, fmt.Errorf("looking at the raft directory: %w", err)
	}
	if disk.HasState {
		return Restored{}, fmt.Errorf("%w: this disk has a log, and nothing is restored over it; --from-disk makes it the truth, twgd leave --drop gives it up", ErrUnsafe)
	}
	n, peers, err := survey(ctx, o)
	if err != nil {
		return Restored{}, err
	}
	if err := n.mayRestore(ctx, peers, lost); err != nil {
		return Restored{}, err
	}
	r := Restored{ServerID: n.id(), Next: "start this node"}
	if r.From, err = newestName(ctx, o.Backup.Place); err != nil {
		return Restored{}, err
	}
	r.Incarnation, err = n.claimNext(ctx)
	return r, err
}

// newestName names what will be restored. A backup that is there and cannot be read now is no reason to begin with empty tables: nothing is claimed.
func newestName(ctx context.Context, p *backup.Place) (string, error) {
	info, r, err := p.Newest(ctx, verifySnapshot)
	switch {
	case errors.Is(err, backup.ErrNone):
		return "nothing (no backup verifies: the tables begin empty)", nil
	case errors.Is(err, backup.ErrIdentity):
		return "", fmt.Errorf("%w: the newest backup cannot be read: %w; set cluster.backup.identity_file", ErrUnsafe, err)
	case err != nil:
		return "", fmt.Errorf("reading the newest backup: %w", err)
	}
	return info.Name, r.Close()
}

// claimNext claims the incarnation after the newest that the store or this disk knows.
func (n *Node) claimNext(ctx context.Context) (uint64, error) {
	n.shelf.look(ctx)
	v := n.shelf.view()
	if !v.Reached {
		return 0, fmt.Errorf("the backup store cannot be read: %s", v.Error)
	}
	next := max(v.Latest, n.facts().Incarnation) + 1
	stored, won, err := n.shelf.claimIncarnation(ctx, next)
	if err != nil {
		return 0, err
	}
	if !won {
		return 0, fmt.Errorf("%w: %s has claimed incarnation %d meanwhile", ErrUnsafe, stored.ServerID, next)
	}
	return next, nil
}

// survey listens as the node would and asks all peers for a while.
func survey(ctx context.Context, o Options) (*Node, []heard, error) {
	o.Registerer = nil
	n, err := New(o)
	if err != nil {
		return nil, nil, err
	}
	if n.port == nil {
		return n, nil, nil
	}
	ctx, end := context.WithCancel(ctx)
	var services sync.WaitGroup
	services.Go(func() { _ = n.port.Run(ctx) })
	if n.gossip != nil {
		services.Go(func() { _ = n.gossip.Run(ctx) })
	}
	for start := time.Now(); time.Since(start) < askedFor && ctx.Err() == nil; wait(ctx, askEvery) {
		n.asker.ask(ctx)
	}
	err = ctx.Err()
	end()
	services.Wait()
	return n, n.asker.all(), err
}

// mayRewrite says why the log of this disk must not become the truth.
func (n *Node) mayRewrite(disk quorum.Disk, peers []heard, lost []string) error {
	if err := noLeader(peers); err != nil {
		return err
	}
	for _, s := range disk.Servers {
		if !s.Voter || s.ID == disk.ID {
			continue
		}
		if err := lostOrBehind(s.ID, disk, peers, lost); err != nil {
			return err
		}
	}
	if names := quorumWith(disk, peers); names != nil {
		return fmt.Errorf("%w: with %s this node is a majority of the seats, and nothing is lost: start it", ErrUnsafe, strings.Join(names, " and "))
	}
	for _, h := range peers {
		if h.answered() && foundingOf(h.hello.Founding) == n.facts().Founding && further(h.hello, disk) {
			return fmt.Errorf("%w: the log of %s reaches further than this one: run the command there", ErrUnsafe, h.hello.Name)
		}
	}
	return nil
}

// quorumWith names the other seats that are there with their disks, where they and this one are a majority; else nil.
func quorumWith(disk quorum.Disk, peers []heard) (names []string) {
	seats, there := 0, 0
	for _, s := range disk.Servers {
		if !s.Voter {
			continue
		}
		seats++
		alive := slices.ContainsFunc(peers, func(h heard) bool { return h.answered() && h.hello.ID == s.ID })
		if s.ID == disk.ID || alive {
			there++
		}
		if s.ID != disk.ID && alive {
			names = append(names, roster.NameOf(s.ID))
		}
	}
	if there <= seats/2 || len(names) == 0 {
		return nil
	}
	return names
}

// lostOrBehind says why a seat forbids the rewriting. Its name on another disk proves the old one lost.
func lostOrBehind(id string, disk quorum.Disk, peers []heard, lost []string) error {
	name := roster.NameOf(id)
	named := slices.Contains(lost, name)
	for _, h := range peers {
		switch {
		case !h.answered() || h.hello.Name != name:
		case h.hello.ID == id && named:
			return fmt.Errorf("%w: %s is named as lost and is alive at %s", ErrUnsafe, name, h.address)
		default:
			return nil
		}
	}
	if named {
		return nil
	}
	return fmt.Errorf("%w: the seat of %s is silent; start it, or say that its disk is lost: --lost %s", ErrUnsafe, name, strings.Join(append(slices.Clone(lost), name), ","))
}

func further(h hello, disk quorum.Disk) bool {
	return h.ID != disk.ID && (h.LastTerm > disk.LastTerm || h.LastTerm == disk.LastTerm && h.LastIndex > disk.LastIndex)
}

// noLeader: who answers and cannot be understood is not silent, and may well be led.
func noLeader(peers []heard) error {
	for _, h := range peers {
		if isForeign(h.err) {
			return fmt.Errorf("%w: %w: until that is mended nobody knows whether the cluster is alive", ErrUnsafe, h.err)
		}
		if h.answered() && h.hello.Leader.ID != "" {
			return fmt.Errorf("%w: %s leads, as %s says: the cluster is alive", ErrUnsafe, roster.NameOf(h.hello.Leader.ID), h.hello.Name)
		}
	}
	return nil
}

// mayRestore says why the store's newest backup must not become the truth.
func (n *Node) mayRestore(ctx context.Context, peers []heard, lost []string) error {
	if err := noLeader(peers); err != nil {
		return err
	}
	note, err := n.o.Backup.Place.Note(ctx)
	if err != nil {
		return err
	}
	for _, name := range note {
		if name == n.o.Node {
			continue
		}
		if err := emptyOrLost(name, peers, lost); err != nil {
			return err
		}
	}
	return nil
}

func emptyOrLost(name string, peers []heard, lost []string) error {
	for _, h := range peers {
		switch {
		case !h.answered() || h.hello.Name != name:
		case h.hello.Disk == diskEmpty:
			return nil
		default:
			return fmt.Errorf("%w: %s at %s has a log: start it, or restore there with --from-disk", ErrUnsafe, name, h.address)
		}
	}
	if slices.Contains(lost, name) {
		return nil
	}
	return fmt.Errorf("%w: %s may still have its disk, and is silent; start it, or say that its disk is lost: --lost %s", ErrUnsafe, name, strings.Join(append(slices.Clone(lost), name), ","))
}
