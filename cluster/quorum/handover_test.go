package quorum

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestTrap04HandoverFortyTimes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		l, worst := nodes[0], time.Duration(0)
		for i := range 40 {
			to := others(nodes, l)[i%2]
			at := time.Now()
			ok(t, l.q.Handover(t.Context(), to.id))
			within(t, time.Second, "the successor may propose", func() bool { return to.q.State().Ready })
			to.mustSet("a", "1")
			worst = max(worst, time.Since(at))
			l = to
		}
		if worst > 100*time.Millisecond {
			t.Fatalf("the slowest took %v", worst)
		}
	})
}

// A path that is slow makes a handover fail; the next must not be refused for good. (Raft's own transfer is: one that is asked for after
// one that timed out waits for a goroutine that has ended with the office, and its server refuses proposals whenever it leads again.)
func TestCaseK01HandoverAfterAFailedOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		l, slow, good := nodes[0], nodes[1], nodes[2]
		m.slowDown(l, slow, 2500*time.Millisecond)
		for range 2 {
			l.mustSet("a", "1")
			if err := l.q.Handover(soon(t, time.Second), slow.id); err == nil {
				t.Fatal("handed over though it takes longer than that to ask")
			}
			l.mustSet("a", "1")
		}
		m.isolate(l, nodes...)
		within(t, 5*time.Second, "the old leader steps down", func() bool { return !l.q.State().Leader })
		w := leaderOf(t, slow, good)
		m.heal()
		agree(t, w, nodes...)
		ok(t, w.q.Handover(t.Context(), l.id))
		within(t, time.Second, "the old leader leads again", func() bool { return l.q.State().Ready })
		l.mustSet("a", "2")
		ok(t, l.q.Handover(t.Context(), good.id))
		within(t, time.Second, "handed over again", func() bool { return good.q.State().Ready })
		good.mustSet("a", "3")
	})
}

// A successor that is told to stand and reaches nobody leaves the leader in office.
func TestHandoverToWhoReachesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		l, mute := nodes[0], nodes[1]
		m.cut(mute, nodes[2])
		m.cut(mute, l)
		if err := l.q.Handover(t.Context(), mute.id); err == nil {
			t.Fatal("a server that reaches nobody was elected")
		}
		m.heal()
		leaderOf(t, nodes...).mustSet("a", "2")
	})
}

func TestHandoverLosesNothingUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		var unknown, done atomic.Int64
		stop := make(chan struct{})
		var load sync.WaitGroup
		for range 8 {
			load.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					for _, n := range nodes {
						switch err := n.set("k", "v"); {
						case err == nil:
							done.Add(1)
						case errors.Is(err, ErrUnknown):
							unknown.Add(1)
						}
					}
				}
			})
		}
		l := nodes[0]
		for i := range 10 {
			to := others(nodes, l)[i%2]
			ok(t, l.q.Handover(t.Context(), to.id))
			within(t, time.Second, "the successor may propose", func() bool { return to.q.State().Ready })
			l = to
			time.Sleep(50 * time.Millisecond)
		}
		close(stop)
		load.Wait()
		if unknown.Load() > 0 || done.Load() == 0 {
			t.Fatalf("%d proposals were answered, %d are unknown", done.Load(), unknown.Load())
		}
	})
}

func TestHandoverRefusesWhoHasNoSeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 2, nodes...)
		refused(t, nodes[0].q.Handover(t.Context(), nodes[2].id), ErrRefused)
		refused(t, nodes[0].q.Handover(t.Context(), nodes[0].id), ErrRefused)
		var not ErrNotLeader
		if err := nodes[1].q.Handover(t.Context(), nodes[0].id); !errors.As(err, &not) {
			t.Fatalf("a follower answers %v", err)
		}
	})
}

// Who does not lead tells nobody to stand.
func TestStandOnlyAtTheLeadersWord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		term := nodes[0].q.State().Term
		req := &raft.TimeoutNowRequest{RPCHeader: nodes[1].q.transport.header()}
		to := raft.ServerID(nodes[2].id)
		if err := nodes[1].q.transport.TimeoutNow(to, raft.ServerAddress(to), req, &raft.TimeoutNowResponse{}); err == nil {
			t.Fatal("it was taken")
		}
		time.Sleep(3 * time.Second)
		if s := nodes[0].q.State(); s.Term != term || !s.Leader {
			t.Fatalf("the state is %+v", s)
		}
		refused(t, nodes[0].q.Stand(), ErrRefused)
	})
}
