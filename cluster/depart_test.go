package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/lease"
)

func TestCaseK06DeparturesDownToOneAndBack(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.procs["n3"].term()
		l.writes()
		l.procs["n2"].term()
		l.until(5*time.Second, "n1 alone serves", func() bool { return l.procs["n1"].write(time.Second) == nil })
		l.run("n2")
		l.run("n3")
		took := l.until(30*time.Second, "three seats again", func() bool { return l.all("n1 n2 n3") && l.procs["n1"].state() == "ok" })
		t.Log("three seats again after ", took)
		l.writes()
	})
}

func TestCaseK07RollingRestartChangesNoSeat(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		ids := l.ids()
		gap := l.writeGap(func() {
			for _, name := range []string{"n3", "n2", "n1"} {
				before := l.leader().n.Status().Term
				l.procs[name].term()
				time.Sleep(2 * time.Second)
				p := l.run(name)
				l.until(20*time.Second, name+" is back", func() bool { return len(p.n.Ready()) == 0 && l.all("n1 n2 n3") })
				if now := l.leader().n.Status().Term; now > before+1 {
					t.Errorf("restart of %s: term %d after %d", name, now, before)
				}
			}
		})
		t.Log("longest time without a write: ", gap)
		if gap > 5*time.Second {
			t.Errorf("no write for %v", gap)
		}
		if now := l.ids(); !slices.Equal(now, ids) {
			t.Errorf("seats %v, before %v", now, ids)
		}
	})
}

// ids are the server ids of all that hold a seat.
func (l *lab) ids() (out []string) {
	for _, m := range l.leader().n.Members() {
		if slices.Contains(m.Roles, "voter") {
			out = append(out, m.ServerID)
		}
	}
	return out
}

// writeGap runs f while a client outside of the cluster writes, through whichever node runs, and returns the longest time between two writes.
func (l *lab) writeGap(f func()) time.Duration {
	ctx, cancel := context.WithCancel(l.ctx)
	longest := make(chan time.Duration, 1)
	outside := l.run("n9", func(o *Options) { o.Ordinal, o.Joining = 9, true })
	l.until(20*time.Second, "n9 writes", func() bool { return outside.write(time.Second) == nil })
	go func() {
		var most time.Duration
		for last := time.Now(); ctx.Err() == nil; {
			if outside.write(10*time.Second) == nil {
				most = max(most, time.Since(last))
				last = time.Now()
			}
			time.Sleep(5 * time.Millisecond)
		}
		longest <- most
	}()
	f()
	cancel()
	return <-longest
}

func TestGracefulExitOfTheLeaderHardlyStopsWrites(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		gap := l.writeGap(func() {
			l.leader().term()
			time.Sleep(time.Second)
		})
		t.Log("longest time without a write: ", gap)
		if gap > 50*time.Millisecond {
			t.Errorf("no write for %v", gap)
		}
	})
}

func TestCaseK08LeaveOfTheLeader(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		p := l.leader()
		if err := p.n.Leave(context.Background(), LeaveOptions{Wait: true}); err != nil {
			t.Fatal(err)
		}
		close(p.drained)
		p.gone(10 * time.Second)
		if p.left != ErrLeft {
			t.Errorf("the process was told %v", p.left)
		}
		l.until(30*time.Second, "an odd number of seats", func() bool { return len(l.leader().n.Status().Members) > 0 && *l.leader().n.Status().Seats%2 == 1 })
		l.writes()
		for _, m := range l.leader().n.Members() {
			if m.ID == p.name {
				t.Errorf("%s is still a member: %+v", p.name, m)
			}
		}
	})
}

func TestCaseK25TwoAtOnce(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		a, b := l.procs["n2"], l.procs["n3"]
		a.stop()
		b.stop()
		close(a.drained)
		close(b.drained)
		a.gone(20 * time.Second)
		b.gone(20 * time.Second)
		if err := l.procs["n1"].write(5 * time.Second); err != nil {
			t.Fatal("n1 does not serve alone: ", err)
		}
		l.run("n2")
		l.run("n3")
		l.until(30*time.Second, "three seats again", func() bool { return l.all("n1 n2 n3") })
	})
}

func TestCaseK27AllAtOnce(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			bubble(t, func(l *lab) {
				l.three()
				all := []*proc{l.procs["n1"], l.procs["n2"], l.procs["n3"]}
				for _, p := range all {
					p.stop()
					close(p.drained)
					time.Sleep(pause)
				}
				for _, p := range all {
					p.gone(30 * time.Second)
				}
				for _, name := range []string{"n1", "n2", "n3"} {
					p := l.run(name)
					l.until(30*time.Second, name+" is ready", func() bool { return len(p.n.Ready()) == 0 })
				}
				took := l.until(30*time.Second, "three seats serve", func() bool { return l.all("n1 n2 n3") })
				t.Log("serving after ", took)
				l.writes()
			})
		})
	}
}

func TestCaseK09SlowNetworkAtTheEnd(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		for _, a := range names3 {
			for _, b := range names3 {
				if a != b {
					l.net.Delay(a, b, 200*time.Millisecond)
				}
			}
		}
		time.Sleep(10 * time.Second)
		p := l.leader()
		start := time.Now()
		p.term()
		if took := time.Since(start); took > p.o.Grace-time.Second {
			t.Errorf("the end took %v of %v", took, p.o.Grace)
		}
		l.until(20*time.Second, "the others see it as gone, not failed", func() bool {
			leader := l.leader()
			if leader == nil {
				return false
			}
			return slices.ContainsFunc(leader.n.Members(), func(m MemberStatus) bool { return m.ID == p.name && m.State == "left" })
		})
		if l.logged("handoff not done") {
			t.Error("the handoff was not done")
		}
	})
}

func TestCaseK09HandoffThatCannotBeDone(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.procs["n1"].kill()
		l.procs["n3"].kill()
		p := l.procs["n2"]
		time.Sleep(5 * time.Second)
		start := time.Now()
		p.term()
		if took := time.Since(start); took > p.o.Grace {
			t.Errorf("the end took %v of %v", took, p.o.Grace)
		}
		if !l.logged("handoff not done: the grace period ends; no leader answers") {
			t.Error("the log does not say so")
		}
	})
}

func TestCaseK17CompletingAfterTheLeaseWasTakenIsRefused(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		a, b := l.procs["n2"], l.procs["n3"]
		if l.leader() == a {
			a = l.procs["n1"]
		}
		held, err := a.n.Leases().Acquire(l.ctx, "window", 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		l.net.Isolate(a.name)
		next, err := b.n.Leases().Acquire(l.ctx, "window", 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if held.Context().Err() == nil {
			t.Error("two trust themselves")
		}
		if err := next.Done(l.ctx); err != nil {
			t.Error(err)
		}
		l.net.Rejoin(a.name)
		time.Sleep(5 * time.Second)
		if err := held.Done(l.ctx); !errors.Is(err, lease.ErrStale) {
			t.Errorf("completing under a stale token: %v", err)
		}
	})
}

// Giving up a founding is for where two have met: in a cluster that serves it would leave a seat behind that nobody fills.
func TestDropIsRefusedWhileTheClusterServes(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		for _, p := range l.procs {
			if err := p.n.Leave(l.ctx, LeaveOptions{Drop: true}); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "twgd leave") {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		if l.procs["n2"].voters() != "n1 n2 n3" {
			t.Error("seats have changed")
		}
	})
}
