package cluster

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stream-arrow/twgd/roster"
	"github.com/stream-arrow/twgd/tuning"
)

func TestTuneSizeDownAndUp(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		p := l.procs["n3"]
		if err := p.n.Tune(l.ctx, tuning.Size, "2"); err == nil || !strings.Contains(err.Error(), "1, 3, 5 and 7 work") {
			t.Errorf("size 2: %v", err)
		}
		if err := p.n.Tune(l.ctx, tuning.Size, "1"); err != nil {
			t.Fatal(err)
		}
		l.until(30*time.Second, "one seat", func() bool { return len(l.ids()) == 1 })
		l.writes()
		if s := p.n.Status(); s.Size != 1 || !slices.ContainsFunc(s.Alarms, func(a string) bool { return strings.Contains(a, "twgd tune cluster.size=3") }) {
			t.Errorf("the node whose file says 3 does not warn: %+v", s)
		}
		if err := p.n.Tune(l.ctx, tuning.Size, "3"); err != nil {
			t.Fatal(err)
		}
		l.until(30*time.Second, "three seats", func() bool { return l.all("n1 n2 n3") })
	})
}

func TestSubscribersHearOfTheRoleAndTheBudget(t *testing.T) {
	bubble(t, func(l *lab) {
		type told struct {
			voter  bool
			budget float64
		}
		news := make(chan told, 10)
		p := l.run("n1", alone)
		p.n.Subscribe(func(voter bool, budget float64) { news <- told{voter, budget} })
		if first := <-news; first.voter {
			t.Errorf("before the founding: %+v", first)
		}
		f := func(want told) {
			t.Helper()
			for got := range news {
				if got == want {
					return
				}
			}
		}
		f(told{true, 0.5})
		if err := p.n.Tune(l.ctx, tuning.VoterBudget, "0.25"); err != nil {
			t.Fatal(err)
		}
		f(told{true, 0.25})
	})
}

func TestTheLastNodeMayNotLeave(t *testing.T) {
	bubble(t, func(l *lab) {
		p := l.run("n1", alone)
		l.until(5*time.Second, "serving", func() bool { return p.state() == "ok" })
		err := p.n.Leave(l.ctx, LeaveOptions{Wait: true})
		if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "--drop") {
			t.Error(err)
		}
		if err := p.write(2 * time.Second); err != nil {
			t.Error("it does not serve after that: ", err)
		}
	})
}

func TestLeaveOfALiveNodeByAnotherIsRefused(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		for _, p := range l.procs {
			err := p.n.Leave(l.ctx, LeaveOptions{Node: names3[(slices.Index(names3, p.name)+1)%3]})
			if err == nil || !strings.Contains(err.Error(), "is alive at") {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		if err := l.procs["n1"].n.Leave(l.ctx, LeaveOptions{Node: "n7"}); err == nil || !strings.Contains(err.Error(), "n7") {
			t.Error(err)
		}
	})
}

func TestALonelyNodeOpensNoPort(t *testing.T) {
	bubble(t, func(l *lab) {
		p := l.run("n1", alone)
		l.until(5*time.Second, "serving", func() bool { return p.state() == "ok" })
		if p.n.port != nil || p.n.gossip != nil {
			t.Error("a port is open")
		}
		for _, port := range []string{":7481", ":7482"} {
			if _, err := l.net.Host("n2").Dial(l.ctx, "n1"+port); err == nil {
				t.Error("somebody listens at ", port)
			}
		}
	})
}

func TestSecretsAreRotatedWithoutAPause(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		step := func(secret, previous string) {
			for _, name := range names3 {
				l.procs[name].term()
				p := l.run(name, func(o *Options) { o.Secret, o.PreviousSecret = secret, previous })
				l.until(20*time.Second, name+" is back", func() bool { return len(p.n.Ready()) == 0 && l.all("n1 n2 n3") })
			}
		}
		step("a secret", "another")
		step("another", "a secret")
		step("another", "")
		l.writes()
	})
}

func TestMetricsAreThoseOfTheContract(t *testing.T) {
	bubble(t, func(l *lab) {
		reg := prometheus.NewRegistry()
		p := l.run("n1", alone, l.stored(), func(o *Options) { o.Registerer = reg })
		l.until(5*time.Second, "serving", func() bool { return p.state() == "ok" })
		if _, err := p.n.Backup(l.ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.write(time.Second); err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		f := func(name string, want float64) {
			t.Helper()
			if v, ok := got["twg_"+name]; !ok || want >= 0 && v != want {
				t.Errorf("%s is %v %v, not %v", name, v, ok, want)
			}
		}
		f("cluster_members", 1)
		f("cluster_voters", 1)
		f("cluster_is_leader", 1)
		f("cluster_has_leader", 1)
		f("cluster_commit_seconds", -1)
		f("leases_held", 0)
		f("cluster_failure_tolerance", 0)
		f("cluster_seats_even", 0)
		f("backup_last_success_timestamp_seconds", -1)
		f("backup_failures_total", 0)
	})
}

func TestMendNamesTheCaseAndTheCommand(t *testing.T) {
	now := time.Now()
	is := func(id string, index uint64) heard {
		return heard{address: id, last: now, hello: hello{ID: id, Name: roster.NameOf(id), Disk: diskState, LastTerm: 3, LastIndex: index}}
	}
	f := func(want string, seats []string, peers ...heard) {
		t.Helper()
		got := mend(roster.StartView{Me: "n1~a", Name: "n1", State: true, Seats: seats}, append(peers, is("n1~a", 10)))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q\nnot %q", got, want)
		}
	}
	three := []string{"n1~a", "n2~b", "n3~c"}
	f("", nil)
	f("", three, is("n2~b", 5))
	f("1 of 3 seats, silent: n2, n3: start n2, n3 again; where those disks are lost, stop n1 and run there: twgd restore -c FILE --from-disk --lost n2,n3", three)
	f("1 of 3 seats, silent: n3, disk lost: n2", three, is("n2~x", 0))
	f("1 of 2 seats, silent: n2", three[:2])
	f("of two seats each holds all", three[:2])
	f("stop n4 and run there: twgd restore -c FILE --from-disk --lost n2,n3", []string{"n2~b", "n3~c"}, is("n4~d", 11))
}

// TestNoDecisionReadsTheWallClock: of a time.Time this package uses differences only. What shows the wall clock to people is named here.
func TestNoDecisionReadsTheWallClock(t *testing.T) {
	shown := map[string]bool{"metrics.go UnixMilli": true} // of a backup's name
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	wall := []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "Format", "UTC", "Local", "Date", "Clock", "Hour", "Year", "Weekday", "YearDay", "AppendFormat", "MarshalText"}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(wall, s.Sel.Name) && !shown[file+" "+s.Sel.Name] {
				t.Errorf("%s uses %s", file, s.Sel.Name)
			}
			return true
		})
	}
}

func TestCaseK08WritesAreNotLostWhenTheOnlyNodeIsKilled(t *testing.T) {
	bubble(t, func(l *lab) {
		p := l.run("n1", alone)
		l.until(5*time.Second, "serving", func() bool { return p.state() == "ok" })
		h, err := p.n.Leases().Acquire(l.ctx, "work", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p.kill()
		p = l.run("n1", alone)
		l.until(5*time.Second, "serving again", func() bool { return p.state() == "ok" })
		ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
		defer cancel()
		info, err := p.n.Leases().Observe(ctx, "work")
		if err != nil || !info.Held || info.Token != h.Token() {
			t.Errorf("%+v %v, held under %d before", info, err, h.Token())
		}
	})
}

func TestAlarmsOfAnOfficeEndWithIt(t *testing.T) {
	var log strings.Builder
	a := newAlarms(slog.New(slog.NewTextHandler(&log, nil)))
	f := func(want ...string) {
		t.Helper()
		if got := a.texts(); !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
	}
	a.raise("office even", "two seats")
	a.raise("name n1", "alive twice")
	a.raise("name n1", "alive twice")
	a.raise("name n2", "alive twice, too")
	f("alive twice", "alive twice, too", "two seats")
	a.keep("office")
	f("alive twice", "alive twice, too")
	a.keep("name ", "name n2")
	f("alive twice, too")
	if n := strings.Count(log.String(), "level=ERROR"); n != 3 {
		t.Errorf("said %d times within a minute:\n%s", n, log.String())
	}
}
