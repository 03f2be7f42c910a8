package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/stream-arrow/twgd/cluster/quorum"
	"github.com/stream-arrow/twgd/cluster/wire"
	"github.com/stream-arrow/twgd/fsm"
)

const (
	// tryFor bounds one attempt: a leader that is paused or cut off must not keep us from the next one.
	tryFor    = 1500 * time.Millisecond
	firstWait = time.Millisecond
	longWait  = 100 * time.Millisecond
)

// leaseRoad is how the asking half of leases reaches the leader: in this process if it leads, else over the port. An outcome that is
// unknown is asked for again until the caller's context ends: every command is idempotent.
type leaseRoad struct{ n *Node }

// Propose implements lease.Proposer.
func (l leaseRoad) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	return l.n.reach(ctx, methodPropose, fsm.RouteLease, cmd)
}

// Query implements lease.Asker.
func (l leaseRoad) Query(ctx context.Context, q []byte) ([]byte, error) {
	return l.n.reach(ctx, methodQuery, fsm.RouteLease, q)
}

// reach tries the leader, whoever that is, until it answers, refuses for good, or ctx ends. What a leader left open (it stopped leading, or
// did not answer in time) is tried again.
func (n *Node) reach(ctx context.Context, method string, route byte, body []byte) ([]byte, error) {
	pause := firstWait
	for {
		moved := n.moved.next()
		reply, err := n.try(ctx, method, route, body)
		if err == nil || ctx.Err() != nil || final(err) {
			return reply, err
		}
		t := time.NewTimer(pause)
		select {
		case <-moved:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, errors.Join(err, ctx.Err())
		}
		t.Stop()
		pause = min(2*pause, longWait)
	}
}

// final says that asking again does not help.
func final(err error) bool {
	if errors.Is(err, quorum.ErrTooLarge) {
		return true
	}
	var r *wire.RemoteError
	if !errors.As(err, &r) {
		return false
	}
	return r.Code == codeRefused || r.Code == codeUnsafe || r.Code == wire.CodeTooLarge || r.Code == wire.CodeInvalid
}

// try asks once: here if this node leads, else where the leader is said to be.
func (n *Node) try(ctx context.Context, method string, route byte, body []byte) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	if r := n.current(); r != nil {
		reply, err := r.ask(within, method, route, body)
		if _, not := isNotLeader(err); !not {
			return reply, err
		}
	}
	at := n.whomToAsk()
	if at.Address == "" || n.port == nil {
		return nil, quorum.ErrNotLeader{}
	}
	reply, err := n.port.Call(within, at.Address, method, append([]byte{route}, body...))
	if ctx.Err() == nil { // else the leader had less time than it takes to be called away
		n.redirect(at, err)
	}
	return reply, err
}

// redirect takes in who the asked one says the leader is.
func (n *Node) redirect(asked leaderAt, err error) {
	var r *wire.RemoteError
	if errors.As(err, &r) && r.Code == codeNotLeader {
		var at leaderAt
		if json.Unmarshal([]byte(r.Text), &at) == nil && at.Address != "" && at.Address != asked.Address {
			n.hintTo(at)
			return
		}
	}
	if err != nil {
		n.hintGone(asked)
	}
}

// ask puts the question to this replica's own table.
func (r *replica) ask(ctx context.Context, method string, route byte, body []byte) ([]byte, error) {
	switch method {
	case methodPropose:
		return r.propose(ctx, route, body)
	case methodKey:
		return r.sayKey(ctx)
	}
	if err := r.inOffice(ctx); err != nil {
		return nil, err
	}
	return r.q.Query(ctx, route, body)
}

// whomToAsk is the leader, or, where none is known, one known address after the other: somebody knows.
func (n *Node) whomToAsk() leaderAt {
	if at := n.leaderNow(); at.Address != "" {
		return at
	}
	all := n.book.addresses()
	if len(all) == 0 {
		return leaderAt{}
	}
	next := all[int(n.asking.Add(1))%len(all)]
	if next == n.address() {
		return leaderAt{}
	}
	return leaderAt{Address: next}
}

// leaderNow is where the leader is: as Raft says where it runs here, else as was said last.
func (n *Node) leaderNow() leaderAt {
	if r := n.current(); r != nil {
		if st := r.q.State(); st.LeaderID != "" && st.LeaderID != st.ID {
			if a, err := n.book.find(st.LeaderID); err == nil {
				return leaderAt{st.LeaderID, a}
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.hint
}

func (n *Node) hintTo(at leaderAt) {
	n.mu.Lock()
	changed := n.mu.hint != at && at.Address != ""
	if changed {
		n.mu.hint = at
	}
	n.mu.Unlock()
	if changed {
		n.moved.tell()
		n.pokeCheckIn()
	}
}

// hintAt says that somebody at the address may know the leader.
func (n *Node) hintAt(address string) {
	n.mu.Lock()
	known := n.mu.hint.Address != ""
	n.mu.Unlock()
	if !known {
		n.hintTo(leaderAt{Address: address})
	}
}

// hintGone forgets where the leader was, if nothing newer is known: it did not answer, or does not lead.
func (n *Node) hintGone(at leaderAt) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.hint == at {
		n.mu.hint = leaderAt{}
	}
}

// handlePropose and handleQuery answer for the table of a route, if this node leads.
func (n *Node) handlePropose(ctx context.Context, _ wire.Peer, body []byte) ([]byte, error) {
	return n.answerRoute(ctx, methodPropose, body)
}

func (n *Node) handleQuery(ctx context.Context, _ wire.Peer, body []byte) ([]byte, error) {
	return n.answerRoute(ctx, methodQuery, body)
}

// answerRoute lets others reach leases and claims of content only: what changes the roster and the settings has methods of its own, which check it.
func (n *Node) answerRoute(ctx context.Context, method string, body []byte) ([]byte, error) {
	if len(body) == 0 || (body[0] != fsm.RouteLease && body[0] != fsm.RouteDedup) {
		return nil, &wire.RemoteError{Code: codeRefused, Text: "no table answers this route here"}
	}
	r := n.current()
	if r == nil {
		return nil, n.notLeader()
	}
	reply, err := r.ask(ctx, method, body[0], body[1:])
	return reply, n.coded(err)
}

// coded gives an error the code that tells a caller whether to go elsewhere, to ask again, or to give up.
func (n *Node) coded(err error) error {
	if err == nil {
		return nil
	}
	if _, not := isNotLeader(err); not {
		return n.notLeader()
	}
	code := codeRefused
	switch {
	case errors.Is(err, quorum.ErrUnknown), errors.Is(err, quorum.ErrDiskFull), errors.Is(err, quorum.ErrClosed), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code = codeUnknown
	case errors.Is(err, ErrUnsafe):
		code = codeUnsafe
	}
	return &wire.RemoteError{Code: code, Text: err.Error()}
}

// leaderElsewhere is where this node would send others: to whom Raft names, where it runs. What was only heard may be older than what the
// asker knows, and is told only where nothing better can be.
func (n *Node) leaderElsewhere() leaderAt {
	r := n.current()
	at := n.leaderNow()
	if at.ID == n.id() || r != nil && at.ID != r.q.State().LeaderID {
		return leaderAt{}
	}
	return at
}

// notLeader says where to go instead.
func (n *Node) notLeader() error {
	text, err := json.Marshal(n.leaderElsewhere())
	if err != nil {
		return err
	}
	return &wire.RemoteError{Code: codeNotLeader, Text: string(text)}
}
