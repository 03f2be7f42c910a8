package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/tuning"
)

func TestOneServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		n.start()
		var not ErrNotLeader
		if err := n.set("a", "1"); !errors.As(err, &not) {
			t.Fatalf("before it was founded: %v", err)
		}
		ok(t, n.q.Bootstrap(t.Context()))
		n.mustSet("a", "1")
		refused(t, n.q.Bootstrap(t.Context()), ErrRefused)
		reply, err := n.q.Query(t.Context(), fsm.RouteTuning, nil)
		ok(t, err)
		if all, err := tuning.Settings(reply); err != nil || all["a"] != "1" {
			t.Fatalf("asked: %v %v", all, err)
		}
		s := n.q.State()
		if !s.Leader || !s.Ready || s.Role != Voter || s.LeaderID != n.id || !s.ConfigCommitted || s.ConfigIndex != 1 || s.LastTerm != s.Term {
			t.Fatalf("the state is %+v", s)
		}
		n.stop()
		n.start()
		ok(t, n.q.Stand())
		ok(t, n.q.installed(t.Context()))
		n.mustSet("b", "2")
		if n.get("a") != "1" {
			t.Fatal("a restart lost what was answered")
		}
	})
}

func TestThreeServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		grow(t, 3, nodes...)
		nodes[0].mustSet("a", "1")
		for _, n := range nodes {
			within(t, time.Second, "everybody has it", func() bool { return n.get("a") == "1" })
		}
		var not ErrNotLeader
		if err := nodes[1].set("a", "2"); !errors.As(err, &not) || not.Leader != nodes[0].id {
			t.Fatalf("a follower answers %v", err)
		}
		m.isolate(nodes[0], nodes...)
		at := time.Now()
		l := leaderOf(t, nodes[1:]...)
		if d := time.Since(at); d > 5*time.Second {
			t.Fatalf("a new leader took %v", d)
		}
		l.mustSet("a", "3")
		m.heal()
		agree(t, l, nodes...)
		within(t, time.Second, "the old leader has it", func() bool { return nodes[0].get("a") == "3" })
	})
}

func TestOpenRefusesForeignState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, err := Open(Options{Dir: t.TempDir(), FSM: fsm.New(), Stream: newMesh().listen("x", "x")})
		if err == nil {
			t.Fatal("a directory without an id was opened")
		}
	})
}

func TestProposeAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		q := n.q
		n.stop()
		_, err := q.Propose(context.Background(), fsm.RouteTuning, nil)
		refused(t, err, ErrClosed)
	})
}
