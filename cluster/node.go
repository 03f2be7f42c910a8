package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stream-arrow/twgd/cluster/gossip"
	"github.com/stream-arrow/twgd/cluster/quorum"
	"github.com/stream-arrow/twgd/cluster/wire"
	"github.com/stream-arrow/twgd/lease"
	"github.com/stream-arrow/twgd/roster"
)

// ErrUnsafe marks what is refused because it would be unsafe. The text names what insists.
var ErrUnsafe = errors.New("refused")

// Node is one node of a cluster. All methods are safe for concurrent use; Run is called once.
//
// Four loops share it. The *steersman* (steer.go) decides what this node does next, and alone opens and closes Raft. The *asker*
// (ask.go) hears who else is there. The *messenger* (checkin.go) checks in with the leader. The *replica* (replica.go), where Raft runs, attends to
// it, and holds the *office* (office.go) while this node leads. They tell each other by pokes; what they know stands under mu.
type Node struct {
	o       Options
	log     *slog.Logger
	port    *wire.Port     // nil: a cluster of one that nobody can join
	gossip  *gossip.Gossip // nil: none is listened to
	book    *book
	asker   *asker
	shelf   *shelf // nil: no backups
	alarms  *alarms
	leases  *lease.Client
	metrics *metrics
	nonce   uint64 // names this process
	started time.Time

	end context.CancelCauseFunc // ends Run at once

	forceAt time.Time // when a forced candidacy may be tried again; the steersman's own, like what follows
	openAt  time.Time // when Raft may be opened again, after its disk was full

	steerAt chan struct{} // pokes
	checkAt chan struct{}
	asking  atomic.Uint32 // turns through known addresses while no leader is known
	moved   broadcast     // who leads, or where, has changed

	mu struct {
		sync.Mutex
		id       string // name~birth of the disk
		hasState bool   // the disk holds a log or a snapshot
		replica  *replica
		diskFull bool // Raft could not be opened for want of room
		parked   bool // a leader has no role for this node: Raft stays closed

		answer            *answer // newest of a leader
		answered          time.Time
		firstWords        bool      // a leader has answered since the process started
		stateAtStart      bool      // the disk held state when the process started
		renewed, rejoined bool      // what was on the disk was removed; a leader has a role for the new disk
		dropped           [16]byte  // a founding that this node gave up
		newer             *answer   // of the leader of a newer incarnation of this founding
		leaderSeen        time.Time // when a leader was last known
		hint              leaderAt  // where a leader was last said to be

		move      roster.Move
		departure departure
		subs      []func(voter bool, budget float64)
		told      told
	}
}

// told is what subscribers know.
type told struct {
	voter  bool
	budget float64
}

// New makes a node and listens. It decides nothing yet; a disk without state gets its birth.
func New(o Options) (*Node, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("cluster: data directory: %w", err)
	}
	n := &Node{o: o, log: o.Log, started: time.Now(), nonce: rand.Uint64() | 1,
		steerAt: make(chan struct{}, 1), checkAt: make(chan struct{}, 1)}
	n.alarms = newAlarms(n.log)
	n.book = openBook(filepath.Join(o.Dir, "cluster.json"), n.log)
	n.asker = newAsker(n, o.Join)
	n.metrics = newMetrics(n)
	n.mu.leaderSeen = n.started
	if o.Backup != nil {
		n.shelf = newShelf(n)
	}
	if err := n.openDisk(); err != nil {
		return nil, err
	}
	if n.mu.hasState && o.Backup != nil && o.Backup.Restore {
		n.log.Info("nothing is restored over the state on this disk", "node", n.mu.id)
	}
	if err := n.listen(); err != nil {
		return nil, err
	}
	n.leases = lease.New(lease.Options{Proposer: leaseRoad{n}, Asker: leaseRoad{n}, Holder: o.holder(), Log: n.log})
	n.metrics.register(o.Registerer)
	return n, nil
}

func (n *Node) raftDir() string { return filepath.Join(n.o.Dir, "raft") }

// openDisk looks what the disk holds, and gives it a birth where it holds nothing.
func (n *Node) openDisk() error {
	d, err := quorum.Inspect(n.raftDir())
	if err != nil {
		return fmt.Errorf("cluster: looking at %s: %w", n.raftDir(), err)
	}
	if d.ID != "" && d.Name != n.o.Node {
		return fmt.Errorf("cluster: %s belongs to node %q and this one is called %q: give it its name back, or move the directory away", n.raftDir(), d.Name, n.o.Node)
	}
	if d.Broken != "" {
		n.log.Warn("the raft directory is not whole and counts as an empty disk: it is put aside, and this node joins as new", "directory", n.raftDir(), "reason", d.Broken)
	}
	id := d.ID
	if id == "" {
		if id, err = quorum.Create(n.raftDir(), n.o.Node); err != nil {
			return fmt.Errorf("cluster: making %s: %w", n.raftDir(), err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.id, n.mu.hasState, n.mu.stateAtStart = id, d.HasState, d.HasState
	return nil
}

// listen opens the port and gossip, unless nobody can ever come.
func (n *Node) listen() (err error) {
	if n.o.lonely() {
		return nil
	}
	keys := []wire.Keys{wire.Derive(n.o.Cluster, n.o.Secret)}
	gossipKeys := [][]byte{keys[0].Gossip()}
	if n.o.PreviousSecret != "" {
		keys = append(keys, wire.Derive(n.o.Cluster, n.o.PreviousSecret))
		gossipKeys = append(gossipKeys, keys[1].Gossip())
	}
	n.port, err = wire.Open(wire.Options{Network: n.o.Network, Listen: n.o.Listen, Cluster: n.o.Cluster, Node: n.o.Node, Keys: keys,
		ServerID: n.id, Founding: n.founding, Addresses: n.book.find, Log: n.log})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if _, err := n.o.advertised(n.port.Addr()); err != nil {
		return errors.Join(err, n.port.Close())
	}
	n.handle()
	if n.o.Gossip == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(n.address())
	if err != nil {
		return errors.Join(fmt.Errorf("cluster: advertise: %w", err), n.port.Close())
	}
	n.gossip, err = gossip.New(gossip.Options{Name: n.o.holder(), Bind: n.o.Gossip, Advertise: host, Keys: gossipKeys, Meta: n.meta,
		Seeds: n.gossipSeeds, Transport: n.o.GossipTransport, Lookup: n.o.Lookup, Log: n.log})
	if err != nil {
		return errors.Join(fmt.Errorf("cluster: gossip: %w", err), n.port.Close())
	}
	return nil
}

// handle names what this node answers on its port.
func (n *Node) handle() {
	n.port.HandleOpen(methodHello, answering(n.handleHello))
	n.port.Handle(methodCheckIn, answering(n.handleCheckIn))
	n.port.Handle(methodPropose, n.handlePropose)
	n.port.Handle(methodQuery, n.handleQuery)
	n.port.Handle(methodKey, n.handleKey)
	n.port.Handle(methodLeave, answering(n.handleLeave))
	n.port.Handle(methodTune, answering(n.handleTune))
	n.port.Handle(methodMembers, answering(n.handleMembers))
	n.port.Handle(methodBackup, answering(n.handleBackup))
}

// Run is the node's life. When ctx ends the node announces that it goes, and serves on until the leader grants it (or the grace period is
// nearly over); leases can be asked for over the network until drained is closed or the grace period is over. Run returns when all it
// started has ended.
func (n *Node) Run(ctx context.Context, drained <-chan struct{}) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	n.mu.Lock()
	n.end = end
	n.mu.Unlock()
	var services sync.WaitGroup
	services.Go(func() {
		select {
		case <-ctx.Done():
			n.announce(roster.Terminating)
		case <-life.Done():
		}
	})
	n.serve(life, end, &services)
	err := n.steer(life)
	if err == nil {
		n.awaitDrained(life, ctx, drained)
	}
	if cause := context.Cause(life); err == nil && cause != nil {
		err = cause
	}
	end(nil)
	services.Wait()
	n.book.save()
	return err
}

// serve starts what runs beside the steersman. What fails ends the node.
func (n *Node) serve(life context.Context, end context.CancelCauseFunc, services *sync.WaitGroup) {
	start := func(what string, run func(context.Context) error) {
		services.Go(func() {
			if err := run(life); err != nil && life.Err() == nil {
				end(fmt.Errorf("cluster: %s: %w", what, err))
			}
		})
	}
	start("leases", n.leases.Run)
	start("check-in", n.carryMessages)
	if n.shelf != nil {
		start("backup store", n.shelf.run)
	}
	if n.port == nil {
		return
	}
	start("port", n.port.Run)
	start("peers", n.asker.run)
	if n.gossip == nil {
		return
	}
	start("gossip", n.gossip.Run)
	start("gossip's news", n.listenToGossip)
}

// awaitDrained waits until what asks for leases has ended, or the grace period has.
func (n *Node) awaitDrained(life, ctx context.Context, drained <-chan struct{}) {
	if drained == nil {
		return
	}
	n.mu.Lock()
	d := n.mu.departure
	n.mu.Unlock()
	rest := n.o.Grace
	if !d.since.IsZero() {
		rest = n.o.Grace - time.Since(d.since)
	}
	t := time.NewTimer(max(rest, 0))
	defer t.Stop()
	if d.intent == roster.Leaving && ctx.Err() == nil {
		// It left for good and asked the process to end: that comes with ctx.
		select {
		case <-ctx.Done():
		case <-life.Done():
			return
		}
		t.Reset(n.o.Grace)
	}
	select {
	case <-drained:
	case <-t.C:
		n.log.Warn("the work was not drained within the grace period", "grace", n.o.Grace)
	case <-life.Done():
	}
}

// Leases asks for leases and elections, whichever node leads.
func (n *Node) Leases() *lease.Client { return n.leases }

func (n *Node) id() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.id
}

// address is where others reach this node's port; empty where it has none.
func (n *Node) address() string {
	if n.port == nil {
		return ""
	}
	a, err := n.o.advertised(n.port.Addr())
	if err != nil { // checked in listen
		return n.port.Addr()
	}
	return a
}

// founding is the founding that this node belongs to.
func (n *Node) founding() ([16]byte, bool) {
	f := n.facts().Founding
	return f, f != [16]byte{}
}

// facts are those of the replica's table, or, before it shows them, those last known.
func (n *Node) facts() roster.Facts {
	n.mu.Lock()
	r, id := n.mu.replica, n.mu.id
	n.mu.Unlock()
	if r != nil {
		if f := r.facts(); f.Founding != ([16]byte{}) {
			return f
		}
	}
	return n.book.known(id)
}

// current returns the open replica; nil where Raft does not run.
func (n *Node) current() *replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.replica
}

// poke wakes the steersman.
func (n *Node) poke() { poke(n.steerAt) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait returns after d, or when the context ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// broadcast wakes all who wait for a change. The zero value is ready.
type broadcast struct {
	mu sync.Mutex
	c  chan struct{}
}

func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
