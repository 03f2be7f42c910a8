package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	probeAgain = 5 * time.Millisecond // between two questions whether a successor holds the log
	takeover   = 2 * heartbeat        // a successor that has not taken over by then will not
	election   = 3 * heartbeat        // the time of one forced election: a candidate begins anew within two heartbeats
)

// Handover makes another server that has a seat the leader: no proposal is let in, those inside are answered, the other one is shown to
// hold the whole log, and is told to stand. Where it fails this server goes on leading and may hand over again, to whomever. (Raft's own
// transfer refuses everything for good where a second one follows on one that timed out.)
func (q *Quorum) Handover(ctx context.Context, id string) error {
	if err := q.handover(ctx, raft.ServerID(id)); err != nil {
		return fmt.Errorf("handing over to %s: %w", id, err)
	}
	return nil
}

func (q *Quorum) handover(ctx context.Context, id raft.ServerID) error {
	if err := q.begin(ctx); err != nil {
		return err
	}
	defer q.end()
	if string(id) == q.id || q.roleOf(string(id)) != Voter {
		return fmt.Errorf("%w: a successor is another server that has a seat", ErrRefused)
	}
	if err := q.gate.close(ctx); err != nil {
		return err
	}
	defer q.gate.reopen()
	o := q.office.Load()
	if o == nil {
		return q.notLeader()
	}
	if err := q.holds(ctx, o, id); err != nil {
		return err
	}
	o.strict.Store(true)
	req := &raft.TimeoutNowRequest{RPCHeader: q.transport.header()}
	if err := q.transport.TimeoutNow(id, raft.ServerAddress(id), req, &raft.TimeoutNowResponse{}); err != nil {
		return err
	}
	return q.replaced(ctx, id)
}

// holds asks the server until it holds our last entry: an append without entries behind that one, which it grants only then.
func (q *Quorum) holds(ctx context.Context, o *office, id raft.ServerID) error {
	for {
		last := q.journal.lastEntry()
		req := &raft.AppendEntriesRequest{RPCHeader: q.transport.header(), Term: o.term,
			PrevLogEntry: last.index, PrevLogTerm: last.term}
		var resp raft.AppendEntriesResponse
		err := q.transport.AppendEntries(id, raft.ServerAddress(id), req, &resp)
		if err == nil && resp.Success {
			return nil
		}
		select {
		case <-time.After(probeAgain):
		case <-o.left:
			return q.notLeader()
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("it does not hold the whole log: %w", ctx.Err()), err)
		}
	}
}

// replaced waits until the successor leads, as far as this server hears.
func (q *Quorum) replaced(ctx context.Context, id raft.ServerID) error {
	ctx, cancel := context.WithTimeout(ctx, takeover)
	defer cancel()
	for {
		rung := q.bell.wait()
		switch leader := q.leader(); {
		case leader == id:
			return nil
		case leader != "" && string(leader) != q.id:
			return fmt.Errorf("%s leads instead", leader)
		}
		select {
		case <-rung:
		case <-q.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("it did not take over: %w", ctx.Err())
		}
	}
}

// Stand makes the only seat of a quorum its leader at once, instead of after a heartbeat timeout: there is nobody to wait for.
func (q *Quorum) Stand() error {
	if !q.sole() {
		return fmt.Errorf("%w: only the only seat stands without waiting", ErrRefused)
	}
	return q.stand()
}

func (q *Quorum) stand() error {
	if err := q.health.refuses(); err != nil {
		return err
	}
	if err := q.transport.inject(&raft.TimeoutNowRequest{RPCHeader: q.transport.header()}); err != nil {
		return fmt.Errorf("standing for election: %w", err)
	}
	return nil
}

// Force stands for one election in the dead ends that a configuration makes which some servers hold and others do not: a server refuses
// its vote to whoever has no seat in the configuration that it holds itself, and a server that was demoted by its own uncommitted
// configuration does not stand. There a majority is up and nobody is ever elected. While an election is forced, a server that answers
// a pre-vote counts as having granted it, and a request for a vote does not say who asks, so that nobody looks for the asker's seat.
// Terms and logs are compared as ever, and whoever has a leader refuses: safety is Raft's own. It returns nil when there is a leader,
// whoever that is.
//
// It is refused where no majority of the seats answers: the term would grow for nothing, and end the office of whoever is met later.
func (q *Quorum) Force(ctx context.Context) error {
	if err := q.gate.enter(ctx); err != nil {
		return err
	}
	defer q.gate.leave()
	if q.leader() != "" {
		return nil
	}
	if err := q.reachable(ctx); err != nil {
		return err
	}
	q.transport.forcing.Store(true)
	defer q.transport.forcing.Store(false)
	if q.raft.State() == raft.Follower { // it would wait, or does not stand by itself at all
		if err := q.stand(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, election)
	defer cancel()
	return q.elected(ctx)
}

// elected waits for a leader.
func (q *Quorum) elected(ctx context.Context) error {
	for {
		rung := q.bell.wait()
		if q.leader() != "" {
			return nil
		}
		select {
		case <-rung:
		case <-q.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("nobody was elected: %w", ctx.Err())
		}
	}
}

// reachable says whether enough seats of the latest configuration answer, whatever they answer.
func (q *Quorum) reachable(ctx context.Context) error {
	term, last := q.raft.CurrentTerm(), q.journal.lastEntry()
	var mu sync.Mutex
	var silent []string
	var asked sync.WaitGroup
	seats := 0
	for _, s := range q.servers() {
		if !s.Voter {
			continue
		}
		if seats++; s.ID == q.id {
			continue
		}
		asked.Go(func() {
			req := &raft.RequestPreVoteRequest{RPCHeader: q.transport.header(), Term: term + 1, LastLogIndex: last.index, LastLogTerm: last.term}
			to := raft.ServerID(s.ID)
			if err := q.transport.RequestPreVote(to, raft.ServerAddress(to), req, &raft.RequestPreVoteResponse{}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				silent = append(silent, s.ID)
			}
		})
	}
	err := q.wait(ctx, func() error { asked.Wait(); return nil })
	if err == nil && seats-len(silent) < seats/2+1 {
		err = fmt.Errorf("%w: of %d seats too few answer, silent are %v", ErrRefused, seats, silent)
	}
	return err
}
