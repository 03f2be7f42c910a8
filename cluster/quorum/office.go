package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stream-arrow/twgd/fsm"
)

// office is one term of this server as the leader. It begins when the server has applied all that it held when it was elected: before,
// its tables and its clock may be behind what an earlier leader has answered.
type office struct {
	term     uint64
	clock    atomic.Pointer[fsm.Clock]
	verified atomic.Int64 // until when, by uptime, this server leads for certain; 0 before it asked
	strict   atomic.Bool  // a successor was told to stand: ask each time
	left     <-chan struct{}
}

// uptime is a monotonic clock: the wall clock is no part of it.
func (q *Quorum) uptime() time.Duration { return time.Since(q.began) }

// watch opens an office at each election that is won, and ends it when leadership is lost.
func (q *Quorum) watch() {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case leads := <-q.raft.LeaderCh():
			end()
			end = func() {}
			if leads {
				end = q.take()
			}
			q.bell.ring()
		case <-q.ctx.Done():
			return
		}
	}
}

// take runs an office until end is called; end returns when it has ended.
func (q *Quorum) take() (end func()) {
	ctx, cancel := context.WithCancel(q.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.hold(ctx)
	}()
	return func() { cancel(); <-done }
}

func (q *Quorum) hold(ctx context.Context) {
	o := &office{term: q.raft.CurrentTerm(), left: ctx.Done()}
	if err := q.wait(ctx, func() error { return q.raft.Barrier(0).Error() }); err != nil {
		return
	}
	q.rebase(o)
	q.office.Store(o)
	defer q.office.Store(nil)
	q.bell.ring()
	q.tick(ctx, o)
}

// rebase starts the office's clock where the tables' time stands.
func (q *Quorum) rebase(o *office) {
	var base time.Duration
	q.machine.Read(func(_ *fsm.Tables, now time.Duration, _ uint64) { base = now })
	o.clock.Store(fsm.NewClock(base, q.uptime))
}

// tick lets the time of the tables go on while something in them can expire and nobody proposes. Without that, nothing is written.
func (q *Quorum) tick(ctx context.Context, o *office) {
	for {
		moved, wait := q.machine.moved, never
		if at, ok := q.machine.Next(); ok {
			wait = at - o.clock.Load().Now()
		}
		if wait <= 0 {
			q.apply(ctx, fsm.Tick(o.clock.Load().Now()))
			moved, wait = nil, tickAgain
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-moved:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// tickAgain is the pause after a tick: one may expire nothing, or not be stored.
const tickAgain = 100 * time.Millisecond
