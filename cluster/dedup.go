package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stream-arrow/twgd/cluster/wire"
	"github.com/stream-arrow/twgd/dedupset"
	"github.com/stream-arrow/twgd/fsm"
)

// Dedup brings claims of content to the leader, whichever node that is. It tries until the caller's context ends, and never longer; where
// nobody led until then its error is dedupset.ErrNoLeader, wrapped.
func (n *Node) Dedup() dedupset.Proposer { return dedupRoad{n} }

type dedupRoad struct{ n *Node }

// Propose implements dedupset.Proposer.
func (d dedupRoad) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	reply, err := d.n.reach(ctx, methodPropose, fsm.RouteDedup, cmd)
	return reply, leaderless(err)
}

// leaderless marks an error that says that nobody leads.
func leaderless(err error) error {
	var r *wire.RemoteError
	_, not := isNotLeader(err)
	if not || errors.As(err, &r) && r.Code == codeNotLeader {
		return fmt.Errorf("%w: %w", dedupset.ErrNoLeader, err)
	}
	return err
}

// DedupKey returns the key that contents are hashed with: of this replica's tables, or, where it has none, of the leader's. It tries until
// ctx ends. The key crosses the port, which nobody reads without the secret; nothing here writes it to a disk, where it lies only as part of
// the log and its snapshots.
func (n *Node) DedupKey(ctx context.Context) (key [32]byte, err error) {
	if r := n.current(); r != nil {
		if key, known := r.key(); known {
			return key, nil
		}
	}
	reply, err := n.reach(ctx, methodKey, fsm.RouteRoster, nil)
	if err != nil {
		return key, fmt.Errorf("asking the leader for the key of content hashes: %w", leaderless(err))
	}
	if copy(key[:], reply) != len(key) || len(reply) != len(key) {
		return key, fmt.Errorf("the leader's key of content hashes has %d bytes instead of %d", len(reply), len(key))
	}
	return key, nil
}

// key is the founding's, once the tables show it.
func (r *replica) key() (key [32]byte, known bool) {
	f := r.facts()
	return f.DedupKey, f.Founding != [16]byte{}
}

// sayKey is the key as a leader says it to others.
func (r *replica) sayKey(ctx context.Context) ([]byte, error) {
	if err := r.inOffice(ctx); err != nil {
		return nil, err
	}
	if err := r.q.Verify(ctx); err != nil {
		return nil, err
	}
	key, _ := r.key() // the office is open: there is one
	return key[:], nil
}

// handleKey tells a node of our founding the key, if this node leads. It is not part of the answer to a check-in, which nodes keep.
func (n *Node) handleKey(ctx context.Context, _ wire.Peer, _ []byte) ([]byte, error) {
	r := n.current()
	if r == nil {
		return nil, n.notLeader()
	}
	key, err := r.sayKey(ctx)
	return key, n.coded(err)
}

// DedupStats are the sets of claims as this replica has them, or, where it has none, as the leader last said. Nil where nothing is known.
func (n *Node) DedupStats() []dedupset.Stats {
	if r := n.current(); r != nil {
		if _, known := r.key(); known {
			return r.dedup()
		}
	}
	n.mu.Lock()
	a, fresh := n.mu.answer, n.mu.answer != nil && time.Since(n.mu.answered) <= answerFor
	n.mu.Unlock()
	if !fresh {
		return nil
	}
	stats, err := dedupset.ParseStats(a.Dedup)
	if err != nil {
		return nil // of another version of the program
	}
	return stats
}

func (r *replica) dedup() []dedupset.Stats {
	stats := []dedupset.Stats{}
	r.f.Read(func(t *fsm.Tables, now time.Duration, _ uint64) { stats = append(stats, t.Dedup.Stats(now)...) })
	return stats
}

// claimsHeld is how many claims all sets hold; nil where nobody knows.
func (n *Node) claimsHeld() *int {
	all := n.DedupStats()
	if all == nil {
		return nil
	}
	sum := 0
	for _, s := range all {
		sum += int(s.Entries)
	}
	return &sum
}
