package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/roster"
)

// markName is the file that says how this disk's first leader is to begin. It outlives crashes between the steps of a founding or a
// restore; the office removes it when all of it stands in the log.
const markName = "begin.json"

// begin is that file: what a founding or a restore has decided and not yet written into the log. docs/formats/node-files.md draws it.
type begin struct {
	Version     int    `json:"version"`
	Founding    string `json:"founding"`    // hex; empty: keep the tables' own
	Incarnation uint64 `json:"incarnation"` // 0: one more than the tables say
	Presumptive bool   `json:"presumptive"` // the founding yields to any that is confirmed
	Load        bool   `json:"load"`        // the newest backup that verifies is to be loaded first
}

func (n *Node) markPath() string { return filepath.Join(n.o.Dir, markName) }

func readBegin(path string) (begin, bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return begin{}, false, nil
	}
	var b begin
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err == nil && b.Version != 1 {
		err = fmt.Errorf("version %d", b.Version)
	}
	if err != nil {
		return begin{}, false, fmt.Errorf("cluster: reading %s: %w", path, err)
	}
	return b, true, nil
}

// found founds a cluster of this node alone.
func (n *Node) found(ctx context.Context, m roster.Move) error {
	b := begin{Version: 1, Incarnation: max(m.Incarnation, 1), Presumptive: m.Presumptive}
	if n.shelf != nil {
		b.Founding = hexOf(n.shelf.founding())
	}
	if b.Founding == "" {
		b.Founding = hexOf(randomFounding())
	}
	n.log.Info(m.Text, "founding", b.Founding, "presumptive", m.Presumptive)
	return n.bootstrap(ctx, b)
}

// restore begins the next incarnation from the store.
func (n *Node) restore(ctx context.Context, m roster.Move) error {
	stored, won, err := n.shelf.claimIncarnation(ctx, m.Incarnation)
	if err != nil || !won {
		return nil // the shelf shows what it found; Begin looks again
	}
	n.log.Warn(m.Text, "incarnation", m.Incarnation)
	return n.bootstrap(ctx, begin{Version: 1, Founding: hexOf(stored.Founding), Incarnation: m.Incarnation, Load: true})
}

// bootstrap writes down how to begin and makes this server the only one of a new quorum. A crash in between leaves a disk without state,
// which begins again, or one whose first leader reads the file.
func (n *Node) bootstrap(ctx context.Context, b begin) error {
	if err := writeJSON(n.markPath(), b); err != nil {
		return fmt.Errorf("cluster: writing how to begin: %w", err)
	}
	if err := n.openReplica(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	if err := n.current().q.Bootstrap(ctx); err != nil {
		return fmt.Errorf("cluster: founding: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.hasState = true
	return nil
}

func randomFounding() (f [16]byte) {
	rand.Read(f[:]) // never fails
	return f
}

// lay writes the ground of a founding or a restore into the log, as far as it is not there yet. Only then is anything given out.
func (n *Node) lay(ctx context.Context, o *office) error {
	b, pending, err := readBegin(n.markPath())
	if err != nil {
		return err
	}
	facts := o.r.facts()
	if !pending && facts.Founding != ([16]byte{}) {
		return nil
	}
	if !pending { // crashed before the first command, and the file was lost or never was
		b = begin{Version: 1, Incarnation: 1, Presumptive: len(n.o.Join) > 0}
	}
	if b.Load {
		if err := n.load(ctx, o, &b); err != nil {
			return err
		}
	}
	if err := n.layFacts(ctx, o, &b); err != nil {
		return err
	}
	if pending {
		return errors.Join(os.Remove(n.markPath()), syncDir(n.o.Dir))
	}
	return nil
}

// layFacts proposes the founding, or raises the incarnation of one that was restored.
func (n *Node) layFacts(ctx context.Context, o *office, b *begin) error {
	facts := o.r.facts()
	if facts.Founding == ([16]byte{}) {
		return n.layFounding(ctx, o, b)
	}
	if b.Incarnation == 0 {
		b.Incarnation = facts.Incarnation + 1
		if err := writeJSON(n.markPath(), b); err != nil { // a repeated try must not raise it twice
			return fmt.Errorf("cluster: writing how to begin: %w", err)
		}
	}
	if facts.Incarnation >= b.Incarnation {
		return nil
	}
	return o.mustCommand(ctx, roster.Command{Op: roster.OpIncarnation, Facts: roster.Facts{Incarnation: b.Incarnation}})
}

func (n *Node) layFounding(ctx context.Context, o *office, b *begin) error {
	f := roster.Facts{Cluster: n.o.Cluster, Founding: foundingOf(b.Founding), Incarnation: max(b.Incarnation, 1), Confirmed: !b.Presumptive}
	if f.Founding == ([16]byte{}) {
		f.Founding = randomFounding()
	}
	if n.shelf != nil && b.Founding == "" {
		stored, won, err := n.shelf.claimIncarnation(ctx, f.Incarnation)
		if err != nil {
			return err
		}
		if !won {
			return fmt.Errorf("the store says that %s began incarnation %d, not this node", stored.ServerID, f.Incarnation)
		}
		f.Founding = stored.Founding
	}
	rand.Read(f.DedupKey[:])
	return o.mustCommand(ctx, roster.Command{Op: roster.OpFound, Facts: f})
}

// load restores the newest backup that verifies into the running quorum of this node alone. None: the tables stay empty.
func (n *Node) load(ctx context.Context, o *office, b *begin) error {
	info, r, err := n.o.Backup.Place.Newest(ctx, verifySnapshot)
	for _, s := range info.Skipped {
		n.log.Warn("a backup was passed over", "backup", s.Name, "error", s.Err)
	}
	switch {
	case errors.Is(err, backup.ErrNone):
		n.log.Warn("the store holds no backup that can be restored: the cluster begins with empty tables")
	case err != nil:
		return fmt.Errorf("reading the newest backup: %w", err)
	default:
		defer r.Close()
		if err := o.r.q.Restore(ctx, r, info.Plain); err != nil {
			return fmt.Errorf("restoring %s: %w", info.Name, err)
		}
		n.log.Warn("restored from a backup: what was committed after it is lost", "backup", info.Name, "index", info.Index)
	}
	b.Load = false
	return writeJSON(n.markPath(), b)
}

func verifySnapshot(r io.Reader) error {
	_, err := fsm.Verify(r)
	return err
}

// mustCommand proposes a command of the roster and says why it was not taken.
func (o *office) mustCommand(ctx context.Context, c roster.Command) error {
	reply, err := o.r.q.Propose(ctx, fsm.RouteRoster, c.Encode())
	if err != nil {
		return err
	}
	return roster.ParseReply(reply)
}

// confirm asks the office to make the founding one that yields to nobody.
func (n *Node) confirm() {
	if r := n.current(); r != nil {
		if o := r.office.Load(); o != nil {
			o.confirm.Store(true)
			poke(o.wake)
		}
	}
}
