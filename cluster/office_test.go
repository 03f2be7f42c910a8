package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/cluster/quorum"
	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/lease"
)

func TestCommandsWaitForTheOffice(t *testing.T) {
	bubble(t, func(l *lab) {
		l.run("n1", func(o *Options) { o.Size, o.Join = 1, nil })
		l.until(time.Minute, "a leader", func() bool { return l.leader() != nil && l.leader().write(time.Second) == nil })
		r := l.leader().n.current()
		propose := func(within time.Duration) <-chan error {
			answer := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(l.ctx, within)
				defer cancel()
				_, err := r.propose(ctx, fsm.RouteLease, lease.Epoch(1))
				answer <- err
			}()
			synctest.Wait()
			return answer
		}
		r.office.Load().open.Store(false)
		waits := propose(time.Millisecond)
		if len(waits) != 0 {
			t.Fatalf("while the office is closed the answer is %v", <-waits)
		}
		if err := <-waits; !errors.As(err, new(quorum.ErrNotLeader)) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waited in vain hears %v", err)
		}
		waits = propose(time.Minute)
		if len(waits) != 0 {
			t.Fatalf("while the office is closed the answer is %v", <-waits)
		}
		start := time.Now() // the office opens at its next look
		if err := <-waits; err != nil || time.Since(start) > lookEvery {
			t.Errorf("once the office is open the answer is %v, after %v", err, time.Since(start))
		}
	})
}
