package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/cluster/quorum"
	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/roster"
)

// replica is Raft running in this node, with the tables behind it, and the one goroutine that attends to it: it notices who leads, and
// while this node does it holds the office.
type replica struct {
	n      *Node
	q      *quorum.Quorum
	f      *fsm.FSM
	office atomic.Pointer[office] // nil: does not lead
	end    context.CancelFunc
	ended  chan struct{}
	opened time.Time
	sent   atomic.Int64 // when sums were last sent, since the node's start

	// what follows is attend's own

	leader string    // the leader that was last told of
	at     [2]uint64 // latest configuration and last term, as last told of
}

// reopenAfter is how soon Raft is opened again after its disk failed.
const reopenAfter = 5 * time.Second

// openReplica starts Raft if it does not run.
func (n *Node) openReplica() error {
	if r := n.current(); r != nil {
		failed := r.q.State().Failed
		if failed == nil || time.Since(r.opened) < reopenAfter {
			return nil
		}
		n.log.Error("raft stopped and is opened again", "error", failed)
		if err := n.closeReplica(); err != nil {
			return err
		}
	}
	if time.Now().Before(n.openAt) {
		return nil
	}
	f := fsm.New()
	o := quorum.Options{Dir: n.raftDir(), FSM: f, Log: n.log}
	if n.port != nil {
		o.Stream = n.port.Stream()
	} else {
		_, o.Transport = raft.NewInmemTransport(raft.ServerAddress(n.id()))
	}
	q, err := quorum.Open(o)
	if n.full(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster: starting raft: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	r := &replica{n: n, q: q, f: f, end: end, ended: make(chan struct{}), opened: time.Now()}
	n.mu.Lock()
	n.mu.replica = r
	n.mu.Unlock()
	if st := q.State(); len(st.Servers) == 1 && st.Role == quorum.Voter {
		if err := q.Stand(); err != nil { // an election comes anyhow, only later
			n.log.Debug("standing at once", "error", err)
		}
	}
	go r.attend(ctx)
	n.pokeCheckIn()
	return nil
}

// full reports whether Raft could not be opened because the disk is full. The node lives on without it, and tries again.
func (n *Node) full(err error) bool {
	full := errors.Is(err, quorum.ErrDiskFull)
	n.mu.Lock()
	n.mu.diskFull = full
	n.mu.Unlock()
	if !full {
		n.alarms.clear("disk")
		return false
	}
	n.openAt = time.Now().Add(reopenAfter)
	n.alarms.raise("disk", "disk_full: "+n.raftDir()+" has no room for the log; Raft starts when there is some")
	return true
}

// closeReplica stops Raft if it runs, the office first.
func (n *Node) closeReplica() error {
	n.mu.Lock()
	r := n.mu.replica
	n.mu.Unlock()
	if r == nil {
		return nil
	}
	f := r.facts()
	if f.Founding != ([16]byte{}) {
		n.book.know(n.id(), f)
	}
	r.end()
	<-r.ended
	n.mu.Lock()
	n.mu.replica = nil
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	err := r.q.Close(ctx)
	n.moved.tell()
	if err != nil {
		return fmt.Errorf("cluster: stopping raft: %w", err)
	}
	return nil
}

// attend watches Raft until the replica is closed.
func (r *replica) attend(ctx context.Context) {
	defer close(r.ended)
	for ctx.Err() == nil {
		st := r.q.State()
		r.notice(st)
		if st.Leader && st.Ready {
			newOffice(r, st.Term).run(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-r.q.Changed():
		}
	}
}

// notice tells the node what has changed about the leader.
func (r *replica) notice(st quorum.State) {
	if f := r.facts(); f.Founding != ([16]byte{}) {
		r.n.book.know(r.n.id(), f)
	}
	if at := [2]uint64{st.ConfigIndex, st.LastTerm}; at != r.at {
		r.at = at
		r.n.pokeCheckIn() // the leader waits until the seats hold its last change
	}
	if st.LeaderID == r.leader {
		return
	}
	r.leader = st.LeaderID
	if st.LeaderID != "" {
		r.n.log.Info("the leader is "+roster.NameOf(st.LeaderID), "leader", st.LeaderID, "term", st.Term)
	} else {
		r.n.log.Info("no leader is known", "term", st.Term)
	}
	r.n.moved.tell()
	r.n.pokeCheckIn()
	r.n.poke()
	if r.n.gossip != nil {
		r.n.gossip.Update()
	}
}

func (r *replica) facts() (facts roster.Facts) {
	r.f.Read(func(t *fsm.Tables, _ time.Duration, _ uint64) { facts = t.Roster.Facts() })
	return facts
}

func (r *replica) rows() (rows roster.Rows) {
	r.f.Read(func(t *fsm.Tables, _ time.Duration, _ uint64) { rows = t.Roster.Rows() })
	return rows
}

func (r *replica) settings() (all map[string]string) {
	r.f.Read(func(t *fsm.Tables, _ time.Duration, _ uint64) { all = t.Tuning.All() })
	return all
}

// hello adds what Raft knows.
func (r *replica) hello(h *hello) {
	st := r.q.State()
	h.LastIndex, h.LastTerm = st.LastIndex, st.LastTerm
	for _, s := range st.Servers {
		if s.Voter {
			h.Seats = append(h.Seats, s.ID)
		}
	}
	h.Leading = r.office.Load() != nil
	if st.LeaderID == "" {
		return
	}
	h.Leader.ID = st.LeaderID
	if st.LeaderID == st.ID {
		h.Leader.Address = r.n.address()
	} else if a, err := r.n.book.find(st.LeaderID); err == nil {
		h.Leader.Address = a
	}
}

// propose brings a command into the log, if this node leads.
func (r *replica) propose(ctx context.Context, route byte, cmd []byte) ([]byte, error) {
	if err := r.inOffice(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	reply, err := r.q.Propose(ctx, route, cmd)
	if err == nil {
		r.n.metrics.commit.Observe(time.Since(start).Seconds())
	}
	return reply, err
}

// inOffice waits until the office is open, where this node leads: one that was just elected opens it within a few commits. Sent away, who
// asks would try again after pauses that grow, and find it open later than it was.
func (r *replica) inOffice(ctx context.Context) error {
	for !r.isOpen() {
		moved := r.n.moved.next()
		st := r.q.State()
		if r.isOpen() {
			break
		}
		if !st.Leader {
			return quorum.ErrNotLeader{Leader: st.LeaderID}
		}
		select {
		case <-moved:
		case <-r.ended:
			return quorum.ErrNotLeader{}
		case <-ctx.Done():
			return fmt.Errorf("waiting for the office: %w", errors.Join(quorum.ErrNotLeader{}, ctx.Err()))
		}
	}
	return nil
}

func (r *replica) isOpen() bool {
	o := r.office.Load()
	return o != nil && o.open.Load()
}

func isNotLeader(err error) (leader string, ok bool) {
	var e quorum.ErrNotLeader
	if errors.As(err, &e) {
		return e.Leader, true
	}
	return "", false
}
