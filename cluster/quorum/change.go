package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Changes of the configuration are made one at a time, by the leader, and are open until raft has answered: also where ctx ended before,
// the next one waits. Raft's own check of a previous index is of no use, because it does not tell the index.

// AddNonvoter lets a server without a role hold the log. That it can be reached is no condition: nobody waits for it.
func (q *Quorum) AddNonvoter(ctx context.Context, id string) error {
	return q.change(ctx, "taking in", id, func(role Role) error {
		if role != None {
			return fmt.Errorf("%w: %s has a role already", ErrRefused, id)
		}
		return nil
	}, func() raft.Future { return q.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, 0) })
}

// Promote gives a seat to a server that holds the log. One that is not heard, or is behind, is refused: its seat would be in force at
// once, and a leader that needs its vote would stop for good.
func (q *Quorum) Promote(ctx context.Context, id string) error {
	return q.change(ctx, "promoting", id, func(role Role) error {
		if role != Nonvoter {
			return fmt.Errorf("%w: %s is no server without a seat that holds the log", ErrRefused, id)
		}
		return q.caught(id)
	}, func() raft.Future { return q.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), 0, 0) })
}

func (q *Quorum) caught(id string) error {
	f := q.Follower(id)
	if f.Contact.IsZero() || time.Since(f.Contact) > outOfContact {
		return fmt.Errorf("%w: %s has not been heard for %v", ErrRefused, id, outOfContact)
	}
	if last := q.journal.lastEntry().index; f.LastIndex+caughtUp < last {
		return fmt.Errorf("%w: %s holds the log up to %d of %d", ErrRefused, id, f.LastIndex, last)
	}
	return nil
}

// Demote takes a seat away; the server goes on holding the log, and learns of it. Its own seat a leader keeps: it hands over first.
func (q *Quorum) Demote(ctx context.Context, id string) error {
	return q.change(ctx, "demoting", id, func(role Role) error {
		if id == q.id {
			return fmt.Errorf("%w: a leader does not demote itself", ErrRefused)
		}
		if role != Voter {
			return fmt.Errorf("%w: %s has no seat", ErrRefused, id)
		}
		return nil
	}, func() raft.Future { return q.raft.DemoteVoter(raft.ServerID(id), 0, 0) })
}

// Remove forgets a server that has no seat.
func (q *Quorum) Remove(ctx context.Context, id string) error {
	return q.change(ctx, "removing", id, func(role Role) error {
		if role != Nonvoter {
			return fmt.Errorf("%w: %s is no server without a seat", ErrRefused, id)
		}
		return nil
	}, func() raft.Future { return q.raft.RemoveServer(raft.ServerID(id), 0, 0) })
}

func (q *Quorum) change(ctx context.Context, what, id string, allow func(Role) error, do func() raft.Future) error {
	wrap := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	if err := q.gate.enter(ctx); err != nil {
		return wrap(err)
	}
	defer q.gate.leave()
	if err := q.begin(ctx); err != nil {
		return wrap(err)
	}
	if _, err := q.inOffice(ctx); err != nil {
		q.end()
		return wrap(err)
	}
	if err := allow(q.roleOf(id)); err != nil {
		q.end()
		return wrap(err)
	}
	err := q.wait(ctx, func() error {
		defer q.end()
		return do().Error()
	})
	if err != nil {
		return wrap(q.outcome(err))
	}
	return nil
}

// begin waits for its turn to change the configuration; end gives it back.
func (q *Quorum) begin(ctx context.Context) error {
	select {
	case q.changes <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another change is open: %w", ctx.Err())
	}
}

func (q *Quorum) end() { <-q.changes }

// Bootstrap founds a quorum of this server alone, which leads when it returns. It is refused where there is state.
func (q *Quorum) Bootstrap(ctx context.Context) error {
	if err := q.gate.enter(ctx); err != nil {
		return err
	}
	defer q.gate.leave()
	err := q.wait(ctx, func() error { return q.raft.BootstrapCluster(alone(q.id)).Error() })
	if errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("%w: there is state already", ErrRefused)
	}
	if err != nil {
		return fmt.Errorf("founding a quorum: %w", err)
	}
	if err := q.Stand(); err != nil {
		return err
	}
	return q.installed(ctx)
}

// installed waits until this server may propose.
func (q *Quorum) installed(ctx context.Context) error {
	for {
		rung := q.bell.wait()
		if q.office.Load() != nil {
			return nil
		}
		if err := q.health.refuses(); err != nil {
			return err
		}
		select {
		case <-rung:
		case <-ctx.Done():
			return fmt.Errorf("waiting for this server's election: %w", ctx.Err())
		}
	}
}
