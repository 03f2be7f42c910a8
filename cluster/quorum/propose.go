package quorum

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/fsm"
)

// Propose carries out a command on the tables of all servers, and returns the answer of the route's table. Only a leader does; one that
// has just been elected lets the caller wait until it may. Commands that are proposed together share their entries' way to the disks.
//
// ErrNotLeader, ErrTooLarge, ErrDiskFull and ErrClosed say that nothing was proposed, unless ErrUnknown says more. After ErrUnknown the
// command may have been carried out, or may yet be, also where ctx ended.
func (q *Quorum) Propose(ctx context.Context, route byte, cmd []byte) ([]byte, error) {
	if err := q.gate.enter(ctx); err != nil {
		return nil, err
	}
	defer q.gate.leave()
	o, err := q.inOffice(ctx)
	if err != nil {
		return nil, err
	}
	entry, err := fsm.Entry(route, o.clock.Load().Now(), cmd)
	if err != nil {
		return nil, err
	}
	return q.apply(ctx, entry)
}

// Query puts a question to a table of the leader, without an entry. The answer holds all that was answered to anybody before Query was
// called.
func (q *Quorum) Query(ctx context.Context, route byte, x []byte) ([]byte, error) {
	if err := q.Verify(ctx); err != nil {
		return nil, err
	}
	return q.machine.Query(route, x)
}

// inOffice waits until this server may propose, where it leads.
func (q *Quorum) inOffice(ctx context.Context) (*office, error) {
	for {
		rung := q.bell.wait()
		if err := q.health.refuses(); err != nil {
			return nil, err
		}
		if o := q.office.Load(); o != nil {
			return o, nil
		}
		if q.raft.State() != raft.Leader {
			return nil, q.notLeader()
		}
		select {
		case <-rung:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting until this leader may propose: %w", ctx.Err())
		}
	}
}

func (q *Quorum) notLeader() error {
	id := string(q.leader())
	if id == q.id {
		id = "" // it has just lost or won
	}
	return ErrNotLeader{Leader: id}
}

// apply puts an entry into the log, and waits for the answer.
func (q *Quorum) apply(ctx context.Context, entry []byte) ([]byte, error) {
	var f raft.ApplyFuture
	err := q.wait(ctx, func() error {
		f = q.raft.Apply(entry, 0)
		return f.Error()
	})
	if err != nil {
		return nil, q.outcome(err)
	}
	switch r := f.Response().(type) {
	case fsm.Reply:
		return r.Body, nil
	case error:
		return nil, r
	}
	return nil, fmt.Errorf("%w: the tables answered nothing", ErrUnknown)
}

// wait waits for f, which raft ends some time, or for the end of ctx. Who calls it is inside the gate, holds it closed, or is one of our
// own goroutines: shut waits for all three before it waits for what is open.
func (q *Quorum) wait(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	q.open.Go(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outcome says what an error of raft means for who proposed. Only what raft refused before it made an entry did certainly not happen. A
// leader that lost its office has stored the entry, and the next may commit it.
func (q *Quorum) outcome(err error) error {
	if errors.Is(err, raft.ErrNotLeader) {
		return q.notLeader()
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// trust is how long a leader trusts one answer of a majority. Whoever heard it will not vote for another for at least one heartbeat
// timeout after that, so half of it leaves room for clocks that differ.
const trust = heartbeat / 2

// Verify returns nil where this server led at some moment since the call, and has applied all that was answered before. Within a
// lease it asks nobody.
func (q *Quorum) Verify(ctx context.Context) error {
	if err := q.gate.enter(ctx); err != nil {
		return err
	}
	defer q.gate.leave()
	o, err := q.inOffice(ctx)
	if err != nil {
		return err
	}
	asked := q.uptime()
	if !o.strict.Load() && int64(asked) < o.verified.Load() {
		return nil
	}
	if err := q.wait(ctx, func() error { return q.raft.VerifyLeader().Error() }); err != nil {
		return q.unverified(err)
	}
	o.verified.Store(int64(asked + trust))
	return nil
}

func (q *Quorum) unverified(err error) error {
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) {
		return q.notLeader()
	}
	return fmt.Errorf("asking the others whether this server leads: %w", err)
}
