package quorum

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/tuning"
)

// A heartbeat waits for the main loop like all else: raft's short cut would change the term beside it.
func TestTrap06HeartbeatsGoThroughTheMainLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		var f faults
		nodes[1].tamper = f.on
		grow(t, 3, nodes...)
		n := nodes[1]
		hold := make(chan struct{})
		f.mu.Lock()
		f.hold = hold
		f.mu.Unlock()
		nodes[0].mustSet("a", "1") // its main loop is storing this now
		term := n.q.State().Term
		stranger := overStream(m.listen("s2", "s2"), quietLogger())
		go func() {
			req := &raft.AppendEntriesRequest{RPCHeader: nodes[2].q.transport.header(), Term: term + 5}
			stranger.AppendEntries(raft.ServerID(n.id), raft.ServerAddress(n.id), req, &raft.AppendEntriesResponse{})
		}()
		time.Sleep(500 * time.Millisecond)
		if got := n.q.raft.CurrentTerm(); got != term {
			t.Errorf("the term went from %d to %d while the main loop was busy", term, got)
		}
		close(hold)
		within(t, time.Second, "then it is taken in", func() bool { return n.q.raft.CurrentTerm() == term+5 })
		ok(t, stranger.Close())
	})
}

func quietLogger() *logger { return newLogger(dbg) }

// Measured in fake time, over a network without delay: two heartbeats and an election at most, as measured on real ones.
func TestTrap06KilledLeaderIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		worst := time.Duration(0)
		for range 5 {
			_, nodes := three(t)
			grow(t, 3, nodes...)
			at := time.Now()
			nodes[0].stop()
			leaderOf(t, nodes[1:]...)
			worst = max(worst, time.Since(at))
			nodes[1].stop()
			nodes[2].stop()
		}
		if worst > 5*time.Second {
			t.Fatalf("a leader took %v", worst)
		}
	})
}

// Standing at once takes no time at all, where a heartbeat timeout takes one to two seconds.
func TestTrap06SoleSeatStandsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := filled(t)
		n.stop()
		at := time.Now()
		n.start()
		ok(t, n.q.Stand())
		ok(t, n.q.installed(t.Context()))
		if d := time.Since(at); d > 100*time.Millisecond {
			t.Fatalf("it took %v", d)
		}
	})
}

// stalled makes a server receive a snapshot that stops arriving; its main loop waits for the rest.
func stalled(t *testing.T, m *mesh, n *node) {
	t.Helper()
	sender := overStream(m.listen("s2", "s2"), quietLogger())
	t.Cleanup(func() { sender.Close() })
	never, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	go func() {
		req := &raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("s2"), Addr: []byte("s2")}, SnapshotVersion: 1,
			Term: 100, LastLogIndex: 1000, LastLogTerm: 99, Size: 1 << 40, Configuration: raft.EncodeConfiguration(alone(n.id)), ConfigurationIndex: 1}
		sender.InstallSnapshot(raft.ServerID(n.id), raft.ServerAddress(n.id), req, &raft.InstallSnapshotResponse{}, never)
	}()
	within(t, 5*time.Second, "the snapshot is arriving", func() bool { return n.q.raft.CurrentTerm() == 100 })
	synctest.Wait()
}

func TestTrap09CloseDuringAStalledSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh()
		n := newNode(t, m, "n1")
		n.start()
		stalled(t, m, n)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		at := time.Now()
		ok(t, n.q.Close(ctx))
		if d := time.Since(at); d > time.Second {
			t.Fatalf("it took %v", d)
		}
		n.q = nil
	})
}

// Futures of raft know no time: what waits for one ends with its context.
func TestTrap09NothingWaitsLongerThanItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		var f faults
		n.tamper = f.on
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		hold := make(chan struct{})
		f.mu.Lock()
		f.hold = hold
		f.mu.Unlock()
		for _, c := range []struct {
			what string
			f    func(context.Context) error
		}{
			{"propose", func(ctx context.Context) error {
				_, err := n.q.Propose(ctx, fsm.RouteTuning, tuning.Set("a", "1"))
				return err
			}},
			{"change", func(ctx context.Context) error { return n.q.AddNonvoter(ctx, "x~1") }},
			{"snapshot", func(ctx context.Context) error { _, _, err := n.q.Snapshot(ctx); return err }},
			{"close", func(ctx context.Context) error { return n.q.Close(ctx) }},
		} {
			at := time.Now()
			err := c.f(soon(t, time.Second))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(at) > 2*time.Second {
				t.Errorf("%s: %v after %v", c.what, err, time.Since(at))
			}
		}
		close(hold)
	})
}

// Nobody has to listen for Changed.
func TestTrap09UnreadChangesStopNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		l := nodes[0]
		for i := range 20 {
			to := others(nodes, l)[i%2]
			ok(t, l.q.Handover(t.Context(), to.id))
			l = leaderOf(t, to)
		}
		l.mustSet("a", "1")
		if len(l.q.Changed()) != 1 {
			t.Fatal("nothing is said to have changed")
		}
	})
}

// Right after a change of the configuration raft refuses a snapshot where the tables have not been handed the change yet. Which of the two
// they see first is left to chance, so there are several tries.
func TestTrap09SnapshotRightAfterAChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		n.start()
		var hold atomic.Pointer[chan struct{}]
		n.q.machine.ring = func() {
			if c := hold.Load(); c != nil {
				<-*c
			}
		}
		ok(t, n.q.Bootstrap(t.Context()))
		for i := range 20 {
			c := make(chan struct{})
			hold.Store(&c)
			var all sync.WaitGroup
			all.Go(func() { n.q.raft.AddNonvoter("x~1", "x~1", 0, 0).Error() })
			synctest.Wait()
			all.Go(func() { n.q.raft.RemoveServer("x~1", 0, 0).Error() })
			synctest.Wait()
			all.Go(func() {
				r, _, err := n.q.Snapshot(t.Context())
				if err != nil {
					t.Errorf("try %d: %v", i, err)
					return
				}
				r.Close()
			})
			synctest.Wait()
			hold.Store(nil)
			close(c)
			all.Wait()
		}
	})
}

// What a leader stored when it lost its office may be committed by the next.
func TestTrap13LostLeadershipIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		l := nodes[0]
		m.cut(l, nodes[1])
		m.cut(l, nodes[2])
		_, err := l.q.Propose(t.Context(), fsm.RouteTuning, tuning.Set("a", "1"))
		refused(t, err, ErrUnknown)
		var not ErrNotLeader
		if errors.As(err, &not) {
			t.Fatalf("the answer %v says that nothing was proposed", err)
		}
		m.heal()
		leaderOf(t, nodes...).mustSet("b", "2")
	})
}

// A leader that hears a majority at least once in a heartbeat timeout goes on: half of that is lost under load.
func TestTrap16SlowFollowersKeepTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		l := nodes[0]
		term := l.q.State().Term
		for _, o := range others(nodes, l) {
			m.slowDown(l, o, 650*time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		if s := l.q.State(); s.Term != term || !s.Leader {
			t.Fatalf("the state is %+v", s)
		}
	})
}

// A leader that was cut off answers no question, though nothing tells it.
func TestQueryIsNotAnsweredByWhoLedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		l := nodes[0]
		l.mustSet("a", "1")
		m.isolate(l, nodes...)
		w := leaderOf(t, others(nodes, l)...)
		w.mustSet("a", "2")
		if reply, err := l.q.Query(t.Context(), fsm.RouteTuning, nil); err == nil {
			all, _ := tuning.Settings(reply)
			t.Fatalf("the old leader answers %v", all)
		}
	})
}

// Within a lease a question asks nobody.
func TestQueryIsCheap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		q := nodes[0].q
		ok(t, q.Verify(t.Context()))
		first := q.office.Load().verified.Load()
		for range 100 {
			ok(t, q.Verify(t.Context()))
		}
		if q.office.Load().verified.Load() != first {
			t.Fatal("it asked again within the lease")
		}
		time.Sleep(trust)
		ok(t, q.Verify(t.Context()))
		if q.office.Load().verified.Load() == first {
			t.Fatal("it trusts an old answer")
		}
	})
}
