package quorum

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// transport stands between raft and the network, in both directions, and keeps raft from what it must not do:
//
//   - Heartbeats are answered in raft's main loop like all else: SetHeartbeatHandler does nothing. Raft's own short cut changes term and
//     state beside the main loop.
//   - What arrives is looked at first, see admit.
//   - A request holds at most requestMost bytes of entries, see shorten.
//   - A server whose disk does not take entries asks for no votes.
//   - While it forces an election it asks without its id, see Quorum.Force.
//   - After Close nothing leaves and nothing arrives.
//
// It also listens: from answers it knows when a server was last heard, and how far its log went.
type transport struct {
	inner   wire
	id      raft.ServerID
	health  *health
	journal *journal
	leader  func() raft.ServerID // as raft knows it

	rpcs    chan raft.RPC
	done    chan struct{}
	closing sync.Once
	running sync.WaitGroup
	forcing atomic.Bool

	mu struct {
		sync.Mutex
		peers map[raft.ServerID]*peer
	}
}

// wire is what a transport must be able to do.
type wire interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// peer is another server, as its answers show it.
type peer struct {
	contact    time.Time
	last       uint64
	installing int  // snapshots on their way
	catching   bool // was sent a snapshot and has not caught up since
}

var _ wire = (*transport)(nil)

func newTransport(inner wire, id string, h *health, j *journal, leader func() raft.ServerID) *transport {
	t := &transport{inner: inner, id: raft.ServerID(id), health: h, journal: j, leader: leader,
		rpcs: make(chan raft.RPC), done: make(chan struct{})}
	t.mu.peers = map[raft.ServerID]*peer{}
	return t
}

// start lets in what arrives, once raft runs.
func (t *transport) start() { t.running.Go(t.run) }

// run hands on what arrives.
func (t *transport) run() {
	for {
		select {
		case rpc := <-t.inner.Consumer():
			if err := t.admit(&rpc); err != nil {
				rpc.Respond(nil, err)
			} else {
				t.deliver(rpc)
			}
		case <-t.done:
			return
		}
	}
}

func (t *transport) deliver(rpc raft.RPC) bool {
	select {
	case t.rpcs <- rpc:
		return true
	case <-t.done:
		return false
	}
}

// Close returns when nothing comes in any more. Raft's main loop may hang in a snapshot that has stopped arriving: its connection
// is closed too, and it goes on.
func (t *transport) Close() error {
	var err error
	t.closing.Do(func() {
		close(t.done)
		err = t.inner.Close()
	})
	t.running.Wait()
	return err
}

func (t *transport) closed() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *transport) Consumer() <-chan raft.RPC              { return t.rpcs }
func (t *transport) LocalAddr() raft.ServerAddress          { return raft.ServerAddress(t.id) }
func (t *transport) SetHeartbeatHandler(func(rpc raft.RPC)) {}

func (t *transport) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }
func (t *transport) DecodePeer(b []byte) raft.ServerAddress                  { return raft.ServerAddress(b) }

// inject hands raft a request of this server to itself, and returns when raft has taken it in.
func (t *transport) inject(command any) error {
	answer := make(chan raft.RPCResponse, 1)
	if !t.deliver(raft.RPC{Command: command, RespChan: answer}) {
		return ErrClosed
	}
	select {
	case a := <-answer:
		return a.Error
	case <-t.done:
		return ErrClosed
	}
}

func (t *transport) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.id), Addr: []byte(t.id)}
}

var (
	errNotFromLeader = errors.New("told to stand by a server that does not lead")
	errNoElection    = errors.New("this server's disk does not take entries, it does not stand for election")
)

// admit looks at what another server sent. A request is changed in a copy: in memory it is the sender's own.
func (t *transport) admit(rpc *raft.RPC) error {
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		rpc.Command = fit(*req, t.journal.boundary())
	case *raft.TimeoutNowRequest:
		if t.health.refuses() != nil {
			return errNoElection
		}
		if raft.ServerID(req.ID) != t.leader() {
			return errNotFromLeader
		}
	}
	return nil
}

// fit mends two things in what a leader appends, boundary being the last entry of our newest snapshot.
//
//   - Entries behind our snapshot follow on it, whatever our log says. Raft compares with the log, which after a snapshot was installed
//     over a longer log of an earlier term still holds that: it would refuse, be sent the same snapshot again, and so for ever.
//   - Nothing is committed beyond what the request shows to be equal. Raft takes the leader's commit index up to the end of our log, which
//     may be of an earlier term and wrong.
func fit(req raft.AppendEntriesRequest, boundary mark) *raft.AppendEntriesRequest {
	if known := req.PrevLogEntry + uint64(len(req.Entries)); req.LeaderCommitIndex > known {
		req.LeaderCommitIndex = known
	}
	if boundary.index > 0 && req.PrevLogEntry == boundary.index && req.PrevLogTerm == boundary.term {
		req.PrevLogEntry, req.PrevLogTerm = 0, 0
	}
	return &req
}

func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.closed() {
		return ErrClosed
	}
	shorten(req)
	if err := t.inner.AppendEntries(id, to, req, resp); err != nil {
		return err
	}
	t.heard(id, resp.LastLog)
	return nil
}

func (t *transport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if t.closed() {
		return nil, ErrClosed
	}
	p, err := t.inner.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return pipeline{p}, nil
}

// requestMost bounds the entries of one request. Raft bounds their number alone, and 256 of them may have 64 MiB: a slow disk stores that in more
// than a heartbeat, during which the follower answers nobody, and leader and follower would both hold it in memory several times.
const requestMost = 8 << 20

// shorten leaves away what is too much. Raft looks at the request once more after it was sent, and takes for sent what is in it then; the rest it
// sends next.
func shorten(req *raft.AppendEntriesRequest) {
	req.Entries = req.Entries[:fitting(req.Entries, requestMost)]
}

// pipeline shortens requests too.
type pipeline struct{ raft.AppendPipeline }

func (p pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	shorten(req)
	return p.AppendPipeline.AppendEntries(req, resp)
}

func (t *transport) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if t.closed() {
		return ErrClosed
	}
	if t.forcing.Load() {
		blank := *req
		blank.RPCHeader.ID, blank.LeadershipTransfer = nil, false
		req = &blank
	}
	return t.inner.RequestVote(id, to, req, resp)
}

func (t *transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.closed() {
		return ErrClosed
	}
	if t.health.refuses() != nil {
		return errNoElection
	}
	err := t.inner.RequestPreVote(id, to, req, resp)
	if err == nil && t.forcing.Load() {
		resp.Term, resp.Granted = req.Term, true // it is there, whatever it thinks of us
	}
	return err
}

func (t *transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if t.closed() {
		return ErrClosed
	}
	return t.inner.TimeoutNow(id, to, req, resp)
}

func (t *transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if t.closed() {
		return ErrClosed
	}
	t.note(id, func(p *peer) { p.installing++; p.catching = true })
	defer t.note(id, func(p *peer) { p.installing-- })
	err := t.inner.InstallSnapshot(id, to, req, resp, data)
	if err == nil {
		t.note(id, func(p *peer) { p.contact, p.last = time.Now(), max(p.last, req.LastLogIndex) })
	}
	return err
}

func (t *transport) note(id raft.ServerID, f func(*peer)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.mu.peers[id]
	if p == nil {
		p = &peer{}
		t.mu.peers[id] = p
	}
	f(p)
}

// caughtUp is how many entries behind still counts as being there.
const caughtUp = 256

func (t *transport) heard(id raft.ServerID, last uint64) {
	ours := t.journal.lastEntry().index
	t.note(id, func(p *peer) {
		p.contact, p.last = time.Now(), last
		if last+caughtUp >= ours {
			p.catching = false
		}
	})
}

func (t *transport) follower(id string) Follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.mu.peers[raft.ServerID(id)]; p != nil {
		return Follower{Contact: p.contact, LastIndex: p.last}
	}
	return Follower{}
}

// outOfContact is when a server counts as away.
const outOfContact = 3 * time.Second

// catching says whether some server that is in contact is being sent a snapshot, or the log behind one.
func (t *transport) catching() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.mu.peers {
		if p.installing > 0 || p.catching && time.Since(p.contact) < outOfContact {
			return true
		}
	}
	return false
}
