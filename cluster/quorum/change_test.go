package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A seat is in force as soon as it is appended: one that cannot be reached would stop a quorum of one for good.
func TestTrap02UnreachableServerStopsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		ok(t, n.q.AddNonvoter(t.Context(), "ghost~1"))
		refused(t, n.q.Promote(t.Context(), "ghost~1"), ErrRefused)
		refused(t, n.q.Promote(t.Context(), "nobody~1"), ErrRefused)
		time.Sleep(time.Minute)
		n.mustSet("a", "1")
		ok(t, n.q.Remove(t.Context(), "ghost~1"))
		if s := n.q.State(); len(s.Servers) != 1 {
			t.Fatalf("the servers are %v", s.Servers)
		}
	})
}

// The same by the library's own call: what Promote's refusal keeps away.
func TestTrap02TheLibraryStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		go n.q.raft.AddVoter("ghost~1", "ghost~1", 0, 0).Error()
		time.Sleep(time.Minute)
		if err := n.set("a", "1"); err == nil {
			t.Fatal("the library takes an unreachable voter: Promote need not refuse")
		}
	})
}

func TestPromoteRefusesWhoIsBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 1, nodes[:2]...)
		m.cut(nodes[0], nodes[1])
		for i := range caughtUp + 50 {
			nodes[0].mustSet("a", fmt.Sprint(i))
		}
		refused(t, nodes[0].q.Promote(t.Context(), nodes[1].id), ErrRefused)
		m.heal()
		within(t, 15*time.Second, "caught up", func() bool { return nodes[0].q.caught(nodes[1].id) == nil })
		ok(t, nodes[0].q.Promote(t.Context(), nodes[1].id))
	})
}

func TestOnlySeatsAreDemotedOnlySeatlessRemoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 2, nodes...)
		q := nodes[0].q
		refused(t, q.Remove(t.Context(), nodes[1].id), ErrRefused)
		refused(t, q.Demote(t.Context(), nodes[2].id), ErrRefused)
		refused(t, q.AddNonvoter(t.Context(), nodes[1].id), ErrRefused)
		ok(t, q.Demote(t.Context(), nodes[1].id))
		ok(t, q.Remove(t.Context(), nodes[1].id))
		if r := q.roleOf(nodes[1].id); r != None {
			t.Fatalf("its role is %v", r)
		}
	})
}

func TestTrap03LeaderDoesNotDemoteItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		q := nodes[0].q
		refused(t, q.Demote(t.Context(), nodes[0].id), ErrRefused)
		refused(t, q.Remove(t.Context(), nodes[0].id), ErrRefused)
		nodes[0].mustSet("a", "1")
	})
}

// A server whose demotion is committed goes on: it holds the log, and may come back. By default its raft would shut down.
func TestTrap03DemotedServerLives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 2, nodes[:2]...)
		ok(t, nodes[0].q.raft.DemoteVoter(raft.ServerID(nodes[0].id), 0, 0).Error())
		l := leaderOf(t, nodes[1])
		l.mustSet("a", "1")
		within(t, 5*time.Second, "the demoted one follows", func() bool { return nodes[0].get("a") == "1" })
		if r := nodes[0].q.State().Role; r != Nonvoter {
			t.Fatalf("its role is %v", r)
		}
	})
}

// One change at a time: who gave up waiting for one has not made another that takes effect later.
func TestTrap05OneChangeAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 2, nodes[:2]...)
		m.cut(nodes[0], nodes[1])
		q := nodes[0].q
		refused(t, q.AddNonvoter(soon(t, 100*time.Millisecond), "x~1"), ErrUnknown)
		err := q.AddNonvoter(soon(t, 100*time.Millisecond), "y~1")
		if err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "another change is open") {
			t.Fatalf("the second answers %v", err)
		}
		m.heal()
		l := leaderOf(t, nodes[:2]...)
		l.mustSet("a", "1")
		if l.q.roleOf("y~1") != None {
			t.Fatal("a change that was given up took effect")
		}
	})
}

func TestRoleAndConfigurationOfState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 2, nodes...)
		for i, want := range []Role{Voter, Voter, Nonvoter} {
			if got := nodes[i].q.State().Role; got != want {
				t.Errorf("node %d has role %v", i, got)
			}
		}
		before := nodes[0].q.State().ConfigIndex
		m.cut(nodes[0], nodes[1])
		m.cut(nodes[0], nodes[2])
		q := nodes[0].q
		refused(t, q.Promote(soon(t, 50*time.Millisecond), nodes[2].id), ErrUnknown)
		s := q.State()
		if s.ConfigIndex <= before || q.roleOf(nodes[2].id) != Voter {
			t.Fatalf("an appended configuration is in force, the state is %+v", s)
		}
	})
}

func TestTrap08AllOnNewAddresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		nodes[0].mustSet("a", "1")
		for _, n := range nodes {
			n.stop()
		}
		for _, n := range nodes {
			n.startAt(n.id + "@elsewhere")
		}
		at := time.Now()
		l := leaderOf(t, nodes...)
		if d := time.Since(at); d > 10*time.Second {
			t.Fatalf("a leader took %v", d)
		}
		l.mustSet("b", "2")
		for _, s := range l.q.raft.GetConfiguration().Configuration().Servers {
			if string(s.ID) != string(s.Address) {
				t.Fatalf("the configuration holds the address %s of %s", s.Address, s.ID)
			}
		}
	})
}
