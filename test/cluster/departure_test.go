//go:build linux && e2e

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/fleet"
	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/netlab"
)

func TestCaseK04AKilledNodeKeepsItsSeat(t *testing.T) {
	f, y := three(t, nil)
	f.Node(2).Kill()
	gone(f, f.Node(2))
	f.Serves(y, 5*time.Second)
	f.Node(1).Kill()
	f.Node(2).Start()
	f.Leader(5 * time.Second)
	f.Serves(y, 5*time.Second)
	f.Node(1).Start()
	f.Rest(30*time.Second, 1, 2, 3)
}

func TestCaseK04AfterTwoDeparturesTheThirdServesAlone(t *testing.T) {
	f, y := three(t, nil)
	f.Node(2).Stop()
	f.Serves(y, 5*time.Second)
	f.Node(1).Stop()
	f.Serves(y, 5*time.Second)
	f.Rest(30*time.Second, 3)
	f.Node(2).Start()
	f.Leader(5 * time.Second)
	f.Serves(y, 5*time.Second)
}

func TestCaseK05EvenSizesAreRefused(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, 4} {
		f := fleet.New(t, fleet.Options{Program: program, Nodes: 1, Size: size})
		if code, out := f.Node(1).Ask("validate"); code != 2 || !strings.Contains(out, "1, 3, 5") {
			t.Errorf("size %d: exit code %d, and it says:\n%s", size, code, out)
		}
	}
}

func TestCaseK05ThreeWithOneGoneStillWrite(t *testing.T) {
	f, y := three(t, nil)
	f.Leader(5 * time.Second).Kill()
	f.Serves(y, 5*time.Second)
	gone(f, f.Node(others(f, f.Running()...)[0]))
	f.Leader(time.Second).Until("the cluster to be degraded", 10*time.Second, func(v fleet.View) bool {
		return v.State == "degraded" && v.Tolerance != nil && *v.Tolerance == 0
	})
}

func TestCaseK06TwoGoOneByOneAndComeBack(t *testing.T) {
	f, y := three(t, nil)
	f.Node(3).Stop()
	f.Serves(y, 5*time.Second)
	f.Node(2).Stop()
	f.Serves(y, 5*time.Second)
	f.Start(2, 3)
	f.Rest(30*time.Second, 1, 2, 3)
	f.SameSums(20 * time.Second)
}

func TestCaseK07RollingRestart(t *testing.T) {
	f, y := three(t, nil)
	writes := y.Writes()
	term := func() uint64 {
		v, err := f.Leader(10 * time.Second).View()
		harness.Must(t, err)
		return v.Term
	}
	for i := 1; i <= 3; i++ {
		before := term()
		f.Node(i).Stop()
		f.Node(i).Start()
		f.Node(i).Ready(20 * time.Second)
		f.Active(20*time.Second, i)
		if now := term(); now > before+1 {
			t.Errorf("the restart of n%d took the term from %d to %d: more than one change of leader", i, before, now)
		}
	}
	f.Rest(20*time.Second, 1, 2, 3)
	if gap := writes.Gap(); gap > 5*time.Second {
		t.Errorf("no write got through for %v", gap)
	} else {
		t.Logf("%d writes, the longest gap was %v", writes.Count(), gap)
	}
}

func TestCaseK08OneNodeLeadsAtOnce(t *testing.T) {
	f := fleet.New(t, fleet.Options{Program: program, Nodes: 1, Size: 1, Alone: true}) // not beside others: it is timed
	n := f.Node(1)
	f.Start()
	f.Rest(5*time.Second, 1)
	was, err := n.View()
	harness.Must(t, err)
	var took []time.Duration
	for range 3 {
		n.Stop()
		begin := time.Now()
		n.Launch("run")
		harness.Await(t, "the node to lead", 10*time.Second, func() (string, bool) {
			v, err := n.View()
			return fmt.Sprint(v, err), err == nil && v.Leader == n.Name
		})
		took = append(took, time.Since(begin))
	}
	if best := slices.Min(took); best > 500*time.Millisecond {
		t.Errorf("from its start to its leadership it took %v", took)
	}
	v, err := n.View()
	harness.Must(t, err)
	if v.ServerID != was.ServerID || !slices.Equal(v.Voters(), []string{n.Name}) {
		t.Errorf("it was %s and is %s, and those with a seat are %q", was.ServerID, v.ServerID, v.Voters())
	}
}

func TestCaseK08TheLeaderLeaves(t *testing.T) {
	f, y := three(t, nil)
	leader := f.Leader(5 * time.Second)
	if code, out := leader.Ask("leave", "--wait"); code != 0 {
		t.Fatalf("leave ends with code %d:\n%s", code, out)
	}
	if code := leader.Exit(30 * time.Second); code != 0 {
		t.Errorf("after it left, the node ends with code %d", code)
	}
	v, err := f.Leader(5 * time.Second).View()
	harness.Must(t, err)
	if m := v.Member(leader.Name); m.State != "left" && m.State != "" || slices.Contains(v.Voters(), leader.Name) {
		t.Errorf("it has ended, and its successor says of it: %+v", m)
	}
	f.Serves(y, 5*time.Second)
	f.Leader(time.Second).Until("one seat to remain", 30*time.Second, func(v fleet.View) bool { return len(v.Voters()) == 1 })
	f.Serves(y, 5*time.Second)
}

func TestCaseK09SlowDeparture(t *testing.T) {
	const grace = 15 * time.Second
	f, _ := three(t, func(o *fleet.Options) { o.Grace = grace })
	leader := f.Leader(5 * time.Second)
	brake, err := netlab.NewBrake(leader.Data, 256<<10, 40)
	harness.Must(t, err)
	defer func() { harness.Must(t, brake.Close()) }()
	harness.Must(t, brake.Take(leader.PID()))
	f.Lab.SetAll(netlab.Path{Delay: 200 * time.Millisecond})
	begin := time.Now()
	leader.Terminate()
	if code := leader.Exit(2 * grace); code != 0 {
		t.Errorf("it ends with code %d", code)
	}
	if took := time.Since(begin); took > grace {
		t.Errorf("it took %v, and its grace period is %v", took, grace)
	}
	if strings.Contains(leader.Since(), "handoff not done") {
		t.Log("the handoff was not done, and the log says so")
		return
	}
	next := f.Leader(10 * time.Second)
	v, err := next.View()
	harness.Must(t, err)
	if m := v.Member(leader.Name); m.State == "failed" || m.State == "active" {
		t.Errorf("%s sees it as %s", next.Name, m.State)
	}
}

func TestCaseK25TwoAtTheSameMoment(t *testing.T) {
	f, y := three(t, nil)
	stays, _ := follower(f, f.Leader(5*time.Second)) // the leader is among those who go
	f.Stop(others(f, stays)...)
	f.Serves(y, 10*time.Second)
	f.Rest(30*time.Second, stays.Number)
	f.Start(others(f, stays)...)
	f.Rest(40*time.Second, 1, 2, 3)
}

func TestCaseK27AllAtOnceAndInOrderAgain(t *testing.T) {
	f, y := three(t, nil)
	inOrder := func() {
		t.Helper()
		for _, n := range f.Nodes {
			n.Start()
			n.Ready(30 * time.Second)
		}
		f.Rest(60*time.Second, 1, 2, 3)
		f.Serves(y, 5*time.Second)
	}
	f.Stop()
	inOrder()
	for _, n := range f.Nodes {
		n.Terminate()
		time.Sleep(time.Second) // the case says so
	}
	for _, n := range f.Nodes {
		if code := n.Exit(40 * time.Second); code != 0 {
			t.Errorf("node %s ends with code %d", n.Name, code)
		}
	}
	inOrder()
}
