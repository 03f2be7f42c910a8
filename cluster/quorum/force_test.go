package quorum

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// deadEnd says that nobody is elected though all is up, for as long as anybody would wait.
func deadEnd(t *testing.T, nodes ...*node) {
	t.Helper()
	time.Sleep(30 * time.Second)
	for _, n := range nodes {
		if n.q.State().Leader {
			t.Fatalf("%s leads: this is no dead end, and the test shows nothing", n.id)
		}
	}
}

func force(t *testing.T, nodes ...*node) *node {
	t.Helper()
	for range 10 {
		for _, n := range nodes {
			n.q.Force(t.Context())
			for _, l := range nodes {
				if l.q.State().Leader {
					return leaderOf(t, nodes...)
				}
			}
		}
	}
	t.Fatal("forced candidacy elects nobody")
	return nil
}

// The leader of two demotes itself and goes down before anybody hears of it. The other refuses nothing, but needs its vote; it does
// not stand, since it has no seat in what it holds, and refuses its vote to ... nobody asks.
func TestTrap03SelfDemotionIsADeadEndThatForceMends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		nodes = nodes[:2]
		grow(t, 2, nodes...)
		m.cut(nodes[0], nodes[1])
		go nodes[0].q.raft.DemoteVoter(raft.ServerID(nodes[0].id), 0, 0).Error()
		time.Sleep(100 * time.Millisecond)
		nodes[0].stop()
		m.heal()
		nodes[0].start()
		if nodes[0].q.State().Role != Nonvoter || nodes[0].q.State().ConfigCommitted {
			t.Fatalf("the demotion is not what it should be: %+v", nodes[0].q.State())
		}
		deadEnd(t, nodes...)
		force(t, nodes...).mustSet("a", "1")
	})
}

// The leader of three appends the demotion of another one, which nobody hears, and goes down; the demoted one leads the rest, loses the
// third, and meets the old leader: that refuses its vote.
func TestForceWhereAPeerHoldsAnotherConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		l, next, third := nodes[0], nodes[1], nodes[2]
		m.cut(l, next)
		m.cut(l, third)
		go l.q.raft.DemoteVoter(raft.ServerID(next.id), 0, 0).Error()
		time.Sleep(100 * time.Millisecond)
		l.stop()
		m.heal()
		w := leaderOf(t, next, third)
		if w != next {
			ok(t, w.q.Handover(t.Context(), next.id))
		}
		leaderOf(t, next).mustSet("a", "1")
		third.stop()
		time.Sleep(3 * time.Second)
		l.start()
		deadEnd(t, l, next)
		w = force(t, l, next)
		w.mustSet("b", "2")
		if w.get("a") != "1" {
			t.Fatal("what was committed is lost")
		}
		within(t, 5*time.Second, "the old leader has it", func() bool { return l.get("b") == "2" })
	})
}

// Growth from two to three is committed by the leader and the newcomer; the leader is lost before the third hears of it: it refuses its
// vote to a server that has no seat for it.
func TestForceWhereTheThirdDoesNotKnowTheNewcomer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 2, nodes...)
		l, third, newcomer := nodes[0], nodes[1], nodes[2]
		m.cut(l, third)
		ok(t, l.q.Promote(t.Context(), newcomer.id))
		l.stop()
		m.heal()
		deadEnd(t, third, newcomer)
		force(t, third, newcomer).mustSet("a", "1")
	})
}

// A server that reaches nobody does not force anything: its term would grow, and end the leader's when it comes back.
func TestForceIsRefusedToWhoIsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		m.isolate(nodes[2], nodes...)
		time.Sleep(15 * time.Second)
		term := nodes[2].q.State().Term
		for range 5 {
			refused(t, nodes[2].q.Force(t.Context()), ErrRefused)
		}
		m.heal()
		time.Sleep(10 * time.Second)
		if s := nodes[0].q.State(); s.Term != term || !s.Leader {
			t.Fatalf("the leader was disturbed: %+v", s)
		}
	})
}

// Who has a leader refuses also a forced candidate.
func TestForceDoesNotUnseatALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		m.cut(nodes[0], nodes[2])
		m.cut(nodes[2], nodes[0])
		time.Sleep(15 * time.Second)
		for range 3 {
			nodes[2].q.Force(t.Context())
		}
		if s := nodes[0].q.State(); !s.Leader {
			t.Fatalf("the leader was unseated: %+v", s)
		}
		nodes[0].mustSet("a", "1")
	})
}
