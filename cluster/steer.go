package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/stream-arrow/twgd/cluster/quorum"
	"github.com/stream-arrow/twgd/roster"
)

const (
	steerEvery = 250 * time.Millisecond
	// forcePause is how long this server lets others try between two of its own forced candidacies: once to twice this.
	forcePause = 2 * time.Second
	// closeWithin bounds how long Raft may take to stop. What is not stopped then is left to the end of the process.
	closeWithin = 5 * time.Second
)

// errDone ends the steersman: this node has put Raft down for good.
var errDone = errors.New("done")

// steer asks roster.Begin what this node is to do and does it, one move after the other, until the node has stopped. It alone opens and
// closes Raft. It returns nil when the node has gone as it should.
func (n *Node) steer(life context.Context) (err error) {
	defer func() { err = errors.Join(err, n.closeReplica()) }()
	say := repeater{log: n.log}
	tick := time.NewTicker(steerEvery)
	defer tick.Stop()
	for life.Err() == nil {
		if err := n.giveUp(); err != nil {
			return err
		}
		v := n.view()
		m := roster.Begin(v)
		n.note(m, &say)
		n.book.save()
		switch err := n.do(life, v, m); {
		case errors.Is(err, errDone):
			return nil
		case err != nil:
			return err
		}
		n.tell()
		select {
		case <-life.Done():
		case <-n.steerAt:
		case <-tick.C:
		}
	}
	return nil
}

// note keeps the move for the status, and says what is waited for.
func (n *Node) note(m roster.Move, say *repeater) {
	n.mu.Lock()
	n.mu.move = m
	n.mu.Unlock()
	if m.Kind == roster.Conflict {
		n.alarms.raise("conflict", m.Text)
	} else {
		n.alarms.clear("conflict")
	}
	switch m.Kind {
	case roster.Hold, roster.Join, roster.Park, roster.StayOut, roster.Force:
		say.say(m.Text)
	default:
		say.say("")
	}
}

// do carries out one move.
func (n *Node) do(life context.Context, v roster.StartView, m roster.Move) error {
	switch m.Kind {
	case roster.Hold, roster.Conflict:
		return n.hold(v)
	case roster.Serve:
		n.unpark()
		return n.openReplica()
	case roster.Park:
		return n.park()
	case roster.Join:
		n.hintAt(m.Addr)
		if v.Leader != nil && v.Leader.Role != roster.None {
			n.unpark()
			return n.openReplica()
		}
	case roster.Claim:
		n.claim(life, m)
	case roster.Bootstrap:
		return n.found(life, m)
	case roster.Restore:
		return n.restore(life, m)
	case roster.Confirm:
		n.confirm()
	case roster.Yield, roster.Renew:
		return n.beginAnew(m)
	case roster.StayOut:
		return n.closeReplica()
	case roster.Force:
		return n.force(life)
	case roster.Resume:
		n.resume(m)
	case roster.StopNow:
		n.stop(life, m)
		return errDone
	case roster.StopDrop:
		return n.leaveForGood()
	}
	return nil
}

// stop is the end of this node's part: nothing is said to the leader any more.
func (n *Node) stop(life context.Context, m roster.Move) {
	n.mu.Lock()
	v := n.mu.departure.view(n.o.Grace, n.nonce)
	n.mu.Unlock()
	n.lastBackup(life, v.Left-roster.LastGrace)
	n.mu.Lock()
	n.mu.departure.stopped = true
	n.mu.Unlock()
	n.log.Info(m.Text)
}

// giveUp drops the founding that an operator gave up, if one did.
func (n *Node) giveUp() error {
	f := n.facts()
	n.mu.Lock()
	drop := n.mu.departure.drop
	if drop != nil {
		n.mu.departure.drop, n.mu.dropped = nil, f.Founding
	}
	n.mu.Unlock()
	if drop == nil {
		return nil
	}
	err := n.beginAnew(roster.Move{Text: "an operator gave up the founding of this node: " + hexOf(f.Founding)})
	drop <- err
	return err
}

// hold keeps Raft open where there is state, unless a leader has said that there is no role for it.
func (n *Node) hold(v roster.StartView) error {
	n.mu.Lock()
	parked := n.mu.parked
	n.mu.Unlock()
	if v.State && !parked {
		return n.openReplica()
	}
	return nil
}

func (n *Node) unpark() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.parked = false
}

func (n *Node) park() error {
	n.mu.Lock()
	n.mu.parked = true
	n.mu.Unlock()
	return n.closeReplica()
}

// force stands once, though peers hold configurations in which this server has no seat. It takes as long as an election.
func (n *Node) force(life context.Context) error {
	r := n.current()
	if r == nil {
		return n.openReplica()
	}
	if time.Now().Before(n.forceAt) {
		return nil
	}
	defer func() { n.forceAt = time.Now().Add(forcePause + rand.N(forcePause)) }()
	ctx, cancel := context.WithTimeout(life, 5*time.Second)
	defer cancel()
	if err := r.q.Force(ctx); err != nil && life.Err() == nil {
		n.log.Debug("forced candidacy", "error", err)
	}
	return nil
}

// resume takes an intent back: the leader refused it.
func (n *Node) resume(m roster.Move) {
	n.mu.Lock()
	d := n.mu.departure
	n.mu.departure = departure{}
	n.mu.Unlock()
	n.log.Warn(m.Text)
	if d.outcome != nil {
		d.outcome <- fmt.Errorf("%w: %s", ErrUnsafe, m.Text)
	}
	n.pokeCheckIn()
}

// beginAnew puts the Raft directory aside and gives this node a new birth: what was on the disk belongs to a founding or an incarnation
// that is over, or was removed.
func (n *Node) beginAnew(m roster.Move) error {
	n.log.Warn(m.Text, "aside", n.raftDir()+asideSuffix)
	if err := n.closeReplica(); err != nil {
		return err
	}
	if err := moveAside(n.raftDir()); err != nil {
		return err
	}
	n.mu.Lock()
	n.mu.renewed, n.mu.rejoined, n.mu.newer = true, false, nil
	n.mu.Unlock()
	return n.reborn()
}

// reborn makes an empty disk of this node's name.
func (n *Node) reborn() error {
	id, err := quorum.Create(n.raftDir(), n.o.Node)
	if err != nil {
		return fmt.Errorf("cluster: making %s: %w", n.raftDir(), err)
	}
	n.mu.Lock()
	n.mu.id, n.mu.hasState, n.mu.parked = id, false, false
	n.mu.answer, n.mu.answered = nil, time.Time{}
	n.mu.Unlock()
	n.asker.anew()
	if n.gossip != nil {
		n.gossip.Update()
	}
	n.pokeCheckIn()
	n.poke()
	return nil
}

const asideSuffix = ".aside"

// moveAside keeps one directory of before; an older one goes.
func moveAside(dir string) error {
	if err := os.RemoveAll(dir + asideSuffix); err != nil {
		return fmt.Errorf("cluster: clearing %s: %w", dir+asideSuffix, err)
	}
	if err := os.Rename(dir, dir+asideSuffix); err != nil {
		return fmt.Errorf("cluster: putting %s aside: %w", dir, err)
	}
	return nil
}

// Drop removes what a stopped node's data directory holds of its cluster: the node gives up its founding, and joins as new at its next
// start. Nothing of the data half is touched.
func Drop(dir string) error { return drop(dir) }

func drop(dir string) error {
	for _, name := range []string{"raft", markName, "cluster.json"} {
		if err := os.RemoveAll(dir + string(os.PathSeparator) + name); err != nil {
			return fmt.Errorf("cluster: dropping the state: %w", err)
		}
	}
	return syncDir(dir)
}
