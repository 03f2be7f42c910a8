package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCaseK03CutOffRemovedHealed(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.run("n4", func(o *Options) { o.Ordinal = 3 })
		l.until(20*time.Second, "n4 is a standby", func() bool { return slices.Contains(l.procs["n4"].n.Roles(), "standby") })
		old := l.procs["n3"].n.id()
		l.net.Isolate("n3")
		time.Sleep(5 * time.Second)
		if err := l.procs["n1"].n.Leave(l.ctx, LeaveOptions{Node: "n3"}); err != nil {
			t.Fatal(err)
		}
		l.until(30*time.Second, "n3 is removed", func() bool { return l.procs["n1"].voters() == "n1 n2 n4" && l.procs["n1"].state() == "ok" })
		before := l.leader().n.Status()
		l.net.Rejoin("n3")
		l.until(30*time.Second, "n3 has joined as new", func() bool {
			p := l.procs["n3"]
			return p.n.id() != old && slices.Contains(p.n.Roles(), "standby") && len(p.n.Ready()) == 0
		})
		time.Sleep(30 * time.Second)
		if now := l.leader().n.Status(); now.Leader != before.Leader || now.Term != before.Term {
			t.Errorf("leader %s in term %d, before %s in %d", now.Leader, now.Term, before.Leader, before.Term)
		}
		if !l.logged("removed: ") {
			t.Error("n3 does not say that it was removed")
		}
		l.writes()
	})
}

func TestCaseK04KillOneThenAnother(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.procs["n2"].kill()
		time.Sleep(10 * time.Second)
		l.procs["n1"].kill()
		time.Sleep(time.Second)
		l.run("n2")
		took := l.until(15*time.Second, "n2 and n3 serve", func() bool { return l.procs["n3"].write(time.Second) == nil })
		t.Log("serving again after ", took)
		if took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		if v := l.leader().voters(); v != "n1 n2 n3" {
			t.Errorf("seats %s", v)
		}
	})
}

func TestCaseK04KillOneThenTermAnother(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.procs["n2"].kill()
		time.Sleep(10 * time.Second)
		l.procs["n1"].term()
		if err := l.procs["n3"].write(5 * time.Second); err != nil {
			t.Fatal("n3 does not serve alone: ", err)
		}
		l.run("n2")
		l.until(30*time.Second, "n2 is back", func() bool { return l.procs["n2"].state() != "no_quorum" && l.procs["n2"].write(time.Second) == nil })
	})
}

func TestCaseK10AllOnNewAddresses(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		ids := l.ids()
		for _, name := range []string{"n1", "n2", "n3"} {
			l.procs[name].kill()
			l.net.Host(name).Move()
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			l.run(name, func(o *Options) { o.Listen, o.Gossip, o.Join = name+":9481", name+":9482", []string{"n1:9481"} })
		}
		took := l.until(30*time.Second, "a leader", func() bool { return l.all("n1 n2 n3") })
		t.Log("serving again after ", took)
		if took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		l.until(10*time.Second, "the new addresses", func() bool {
			return !slices.ContainsFunc(l.procs["n2"].n.Members(), func(m MemberStatus) bool { return !strings.HasSuffix(m.Address, ":9481") })
		})
		if now := l.ids(); !slices.Equal(now, ids) {
			t.Errorf("seats %v, before %v", now, ids)
		}
		l.writes()
	})
}

func TestCaseK11KilledAndBackAfterTwentySeconds(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		term := l.leader().n.Status().Term
		follower := "n2"
		if l.leader().name == follower {
			follower = "n3"
		}
		l.procs[follower].kill()
		time.Sleep(20 * time.Second)
		p := l.run(follower)
		took := l.until(20*time.Second, "a follower again", func() bool { return p.n.Role() && p.n.Status().Leader != "" })
		if took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		if now := l.leader().n.Status().Term; now != term {
			t.Errorf("term %d, before %d", now, term)
		}
	})
}

func TestCaseK12AloneWithStateDoesNotFound(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		founding := l.leader().n.Status().Founding
		for _, name := range []string{"n3", "n2", "n1"} {
			l.procs[name].kill()
		}
		p := l.run("n1")
		time.Sleep(3 * time.Minute)
		s := p.n.Status()
		if s.State != "no_quorum" || s.Founding != founding || !strings.Contains(s.Waiting, "1 of 3 seats, silent: n2, n3") {
			t.Errorf("status %+v", s)
		}
		if !strings.Contains(s.Mend, "twgd restore -c FILE --from-disk --lost n2,n3") {
			t.Errorf("the command is not named: %q", s.Mend)
		}
		l.run("n2")
		took := l.until(20*time.Second, "n1 and n2 serve", func() bool { return p.write(time.Second) == nil })
		t.Log("serving after ", took)
	})
}

func TestCaseK12ForeignClusterIsRefusedByName(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		p := l.run("n4", func(o *Options) { o.Cluster, o.Ordinal = "other", 3 })
		l.until(time.Minute, "n4 says whom it met", func() bool {
			return slices.ContainsFunc(p.n.Status().Alarms, func(s string) bool { return strings.Contains(s, `"test"`) && strings.Contains(s, `"other"`) })
		})
		if s := p.n.Status(); s.Leader != "" || len(s.Members) != 1 {
			t.Errorf("n4 is %+v", s)
		}
	})
}

func TestCaseK13EmptyDiskUnderAKnownNameIsReplaced(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		if err := l.procs["n2"].write(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		founding, old := l.leader().n.Status().Founding, l.procs["n1"].n.id()
		for _, name := range []string{"n1", "n2", "n3"} {
			l.procs[name].kill()
		}
		if err := os.RemoveAll(filepath.Join(l.dir, "n1")); err != nil {
			t.Fatal(err)
		}
		p := l.run("n1")
		time.Sleep(5 * time.Second)
		l.run("n2")
		l.run("n3")
		l.until(2*time.Minute, "three seats, one of them new", func() bool { return l.all("n1 n2 n3") && !slices.Contains(l.ids(), old) })
		if s := p.n.Status(); s.Founding != founding || s.ID == old {
			t.Errorf("n1 is %+v", s)
		}
		l.writes()
	})
}

func TestCaseK14RemovedForGoodComesBackWithItsOldDisk(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		old := l.procs["n3"].n.id()
		l.procs["n3"].kill()
		time.Sleep(5 * time.Second)
		if err := l.procs["n2"].n.Leave(l.ctx, LeaveOptions{Node: "n3"}); err != nil {
			t.Fatal(err)
		}
		l.until(30*time.Second, "one seat", func() bool { return len(l.ids()) == 1 })
		p := l.run("n3")
		l.until(time.Minute, "n3 is new and has a seat", func() bool { return p.n.id() != old && l.all("n1 n2 n3") })
		if !l.logged("removed: ") {
			t.Error("n3 does not say that it was removed")
		}
	})
}

func TestCaseK15UnreachableAddress(t *testing.T) {
	bubble(t, func(l *lab) {
		l.size = 3
		l.run("n1", func(o *Options) { o.Join = nil })
		l.until(10*time.Second, "n1 serves", func() bool { return l.procs["n1"].state() != "founding" && l.procs["n1"].write(time.Second) == nil })
		p := l.run("n2", func(o *Options) { o.Joining, o.Advertise = true, "10.9.9.9:7481" })
		named := false
		for range 30 {
			time.Sleep(4 * time.Second)
			named = named || slices.ContainsFunc(p.n.Status().Alarms, func(s string) bool { return strings.Contains(s, "cannot reach this node at 10.9.9.9:7481") })
			if err := l.procs["n1"].write(2 * time.Second); err != nil {
				t.Fatal("writes stopped: ", err)
			}
		}
		if p.n.Role() || len(l.ids()) != 1 {
			t.Errorf("n2 has a seat: %v", l.ids())
		}
		if !named {
			t.Error("no alarm names the address")
		}
	})
}

func TestCaseK16LeaderCutOffWhileLeasesLive(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		leader := l.leader()
		var other *proc
		for _, p := range l.procs {
			if p != leader {
				other = p
			}
		}
		held, err := other.n.Leases().Acquire(l.ctx, "work", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		l.net.Isolate(leader.name)
		time.Sleep(10 * time.Second)
		if held.Context().Err() != nil {
			t.Error("a lease ended though its holder reaches a quorum")
		}
		l.net.Rejoin(leader.name)
		time.Sleep(5 * time.Second)
		if err := held.Release(l.ctx); err != nil {
			t.Error(err)
		}
		next, err := leader.n.Leases().Acquire(l.ctx, "work", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if next.Token() <= held.Token() {
			t.Errorf("token %d after %d", next.Token(), held.Token())
		}
	})
}

func TestCaseK23KilledWhileGrowing(t *testing.T) {
	for _, pause := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			bubble(t, func(l *lab) {
				l.run("n1")
				l.run("n2")
				l.run("n3")
				l.until(time.Minute, "the growth begins", func() bool {
					p := l.leader()
					return p != nil && len(l.seatsOf(p)) >= 2
				})
				time.Sleep(pause)
				l.procs["n3"].kill()
				l.until(time.Minute, "an odd number of seats, or an alarm", func() bool {
					p := l.leader()
					return p != nil && (len(l.seatsOf(p))%2 == 1 || len(p.n.Status().Alarms) > 0)
				})
			})
		})
	}
}

// seatsOf is the configuration that a process holds.
func (l *lab) seatsOf(p *proc) (out []string) {
	if r := p.n.current(); r != nil {
		for _, s := range r.q.State().Servers {
			if s.Voter {
				out = append(out, s.ID)
			}
		}
	}
	return out
}

// A leader that has lost its majority does not go on calling itself one.
func TestLeaderWithoutAMajoritySaysSo(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		p := l.leader()
		l.net.Isolate(p.name)
		l.until(2*time.Second, p.name+" says so", func() bool { s := p.n.Status(); return s.Leader == "" && s.State == "no_quorum" })
		l.net.Rejoin(p.name)
		l.until(time.Minute, "all is well", func() bool { return l.all("n1 n2 n3") })
	})
}
