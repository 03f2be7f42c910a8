package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	heartbeat = time.Second // without a word of the leader for one to two of these, a server stands for election
	maxBatch  = 256         // entries in one request, one commit to disk, one call of the tables
	never     = 10 * 365 * 24 * time.Hour
)

// config is raft's configuration. docs/adr/0014-raft-as-we-use-it.md gives the reasons.
func config(id string, log hclog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	c.Logger = log
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = heartbeat, heartbeat, heartbeat
	c.MaxAppendEntries = maxBatch
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false
	c.SnapshotInterval, c.SnapshotThreshold = never, math.MaxUint64
	c.TrailingLogs = 0
	c.NoLegacyTelemetry = true
	return c
}

// Quorum is one running server. Its methods may be called from anywhere at any time.
//
// Raft's futures know no context and answer only while its main loop runs. So each is waited for by a goroutine that Close waits for
// in turn: first nothing new is let in, then nothing is stored any more and the leader thereby steps down, which answers all that is
// open, and only then raft is shut down.
type Quorum struct {
	id        string
	began     time.Time // of uptime
	limits    Limits
	log       *logger
	disk      *disk
	health    *health
	journal   *journal
	transport *transport
	machine   *machine
	raft      *raft.Raft
	bell      *bell
	gate      *gate
	office    atomic.Pointer[office] // while this server leads and has applied all that it held when it began to
	changes   chan struct{}          // holds a token while a change of the configuration, a handover or a restore is open

	open    sync.WaitGroup // futures that are waited for
	running sync.WaitGroup // goroutines of our own
	stop    context.CancelFunc
	ctx     context.Context
	closing sync.Once
	closed  chan struct{}
	err     error // of Close; read once closed is
}

// Open starts the server that Create has made in the directory. It founds nothing: without state it waits for a leader, or for Bootstrap.
func Open(o Options) (*Quorum, error) {
	log := newLogger(o.Log)
	d, err := openDisk(o.Dir, log)
	if err != nil {
		return nil, err
	}
	return start(o, d, log)
}

func (o Options) wire(log *logger) (wire, error) {
	if o.Transport == nil {
		return overStream(o.Stream, log), nil
	}
	if w, ok := o.Transport.(wire); ok {
		return w, nil
	}
	return nil, errors.New("the transport knows no pre-vote, or cannot be closed")
}

func (l Limits) filled() Limits {
	set := func(n *int64) {
		if *n == 0 {
			*n = 8 << 20
		}
	}
	set(&l.Snapshot)
	set(&l.Trailing)
	set(&l.Cache)
	return l
}

// start takes over the disk: also where it fails it is closed.
func start(o Options, d *disk, log *logger) (*Quorum, error) {
	q := &Quorum{began: time.Now(), limits: o.Limits.filled(), log: log, disk: d, bell: newBell(), gate: newGate(),
		changes: make(chan struct{}, 1), closed: make(chan struct{})}
	q.ctx, q.stop = context.WithCancel(context.Background())
	q.health = newHealth(q.bell.ring)
	if err := q.assemble(o); err != nil {
		q.stop()
		return nil, errors.Join(fmt.Errorf("starting raft: %w", naming(err)), d.close())
	}
	q.running.Go(q.watch)
	q.running.Go(q.takeSnapshots)
	q.running.Go(q.watchRoom)
	return q, nil
}

func (q *Quorum) assemble(o Options) error {
	found, l, err := q.disk.inspect()
	if err != nil {
		return err
	}
	if q.id = found.ID; q.id == "" {
		return fmt.Errorf("%s holds no server id %s", q.disk.dir, l.broken)
	}
	if q.journal, err = newJournal(q.disk.logs, q.health, q.limits, l, q.bell.ring); err != nil {
		return err
	}
	inner, err := o.wire(q.log)
	if err != nil {
		return err
	}
	q.machine = &machine{FSM: o.FSM, ring: q.bell.ring, moved: make(chan struct{}, 1)}
	q.transport = newTransport(inner, q.id, q.health, q.journal, q.leader)
	return q.ignite()
}

// ignite starts raft on what was assembled.
func (q *Quorum) ignite() (err error) {
	started := make(chan struct{})
	ballot := newBallot(q.disk.kv, q.health)
	ballot.sole = func() bool { <-started; return q.sole() } // not called before: NewRaft does not change the term
	shelf := &shelf{SnapshotStore: q.disk.snaps, dir: q.disk.dir, journal: q.journal, health: q.health}
	q.raft, err = raft.NewRaft(config(q.id, q.log), q.machine, q.journal, ballot, shelf, q.transport)
	if err != nil {
		return errors.Join(err, q.transport.Close())
	}
	close(started)
	q.journal.loaded()
	q.raft.RegisterObserver(raft.NewObserver(nil, false, q.observe))
	q.transport.start()
	return nil
}

// observe is called by raft where something happens, and must not block.
func (q *Quorum) observe(o *raft.Observation) bool {
	switch o.Data.(type) {
	case raft.RaftState, raft.LeaderObservation, raft.PeerObservation:
		q.bell.ring()
	}
	return false
}

func (q *Quorum) leader() raft.ServerID {
	_, id := q.raft.LeaderWithID()
	return id
}

// sole says whether this server has the only seat.
func (q *Quorum) sole() bool {
	voters := 0
	for _, s := range q.servers() {
		if s.Voter {
			voters++
		}
	}
	return voters == 1 && q.role() == Voter
}

// Close puts the server down. What is open is answered first. It returns when all has ended, or, with the rest going on, when ctx ends.
func (q *Quorum) Close(ctx context.Context) error {
	q.closing.Do(func() { go q.shut() })
	select {
	case <-q.closed:
		return q.err
	case <-ctx.Done():
		return fmt.Errorf("closing the raft server: %w", ctx.Err())
	}
}

func (q *Quorum) shut() {
	q.gate.shut()
	q.health.halt()
	err := q.transport.Close()
	q.stop()
	// A leader steps down where it cannot store an entry.
	q.open.Go(func() { q.raft.Apply(nil, 0).Error() })
	q.running.Wait()
	q.gate.drain()
	q.open.Wait()
	err = errors.Join(err, q.raft.Shutdown().Error(), q.disk.close())
	q.err = err
	close(q.closed)
}

// bell tells that something changed: to whoever waits inside, and to the one who listens outside.
type bell struct {
	out chan struct{}
	mu  struct {
		sync.Mutex
		next chan struct{} // closed at the next ring
	}
}

func newBell() *bell {
	b := &bell{out: make(chan struct{}, 1)}
	b.mu.next = make(chan struct{})
	return b
}

func (b *bell) ring() {
	b.mu.Lock()
	close(b.mu.next)
	b.mu.next = make(chan struct{})
	b.mu.Unlock()
	select {
	case b.out <- struct{}{}:
	default:
	}
}

// wait returns what the next ring closes.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.next
}
