//go:build linux && e2e

package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/fleet"
	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/leasing"
	"github.com/stream-arrow/twgd/test/netlab"
)

func TestCaseK10AllOnNewPorts(t *testing.T) {
	f, y := three(t, nil)
	f.Stop()
	for _, n := range f.Nodes {
		n.Move()
	}
	begin := time.Now()
	f.Start()
	f.Leader(10*time.Second - time.Since(begin))
	f.Rest(30*time.Second, 1, 2, 3)
	f.Leader(time.Second).Until("the addresses to be right", 10*time.Second, func(v fleet.View) bool {
		for _, n := range f.Nodes {
			if v.Member(n.Name).Address != n.Address() {
				return false
			}
		}
		return true
	})
	f.Serves(y, 5*time.Second)
}

func TestCaseK11AKilledNodeComesBack(t *testing.T) {
	f, y := three(t, nil)
	n, _ := follower(f, f.Leader(5*time.Second))
	writes := y.Writes()
	n.Kill()
	gone(f, n)
	harness.Await(t, "300 writes without it", 60*time.Second, func() (string, bool) {
		return fmt.Sprint(writes.Count()), writes.Count() >= 300
	})
	leader := f.Leader(10 * time.Second)
	was, err := leader.View() // now: on a busy machine two may have lost sight of each other meanwhile
	harness.Must(t, err)
	n.Start()
	n.Until("to follow again", 5*time.Second, func(v fleet.View) bool { return v.Leader == leader.Name })
	f.Active(5*time.Second, n.Number)
	now, err := leader.View()
	harness.Must(t, err)
	if now.Term != was.Term || now.Leader != was.Leader {
		t.Errorf("%s led in term %d, now %s does in term %d", was.Leader, was.Term, now.Leader, now.Term)
	}
	f.SameSums(20 * time.Second)
}

// anEmptyDisk stops all, empties n1's disk, and starts n1 first. Whatever was told before must hold afterwards.
func anEmptyDisk(t *testing.T, foundAfter time.Duration, between func(*fleet.Node)) {
	f, y := three(t, func(o *fleet.Options) { o.FoundAfter = foundAfter })
	c, end := y.Client("keeper~1")
	held, err := c.Acquire(t.Context(), "kept", time.Hour)
	harness.Must(t, err)
	end() // it is not renewed any more, and an hour is long
	was, err := f.Node(1).View()
	harness.Must(t, err)
	f.Stop()
	f.Node(1).Wipe()
	f.Node(1).Start()
	between(f.Node(1))
	f.Start(2, 3)
	f.Leader(15 * time.Second)
	f.Rest(60*time.Second, 1, 2, 3)
	f.Node(1).Until("to be of the founding that was", 10*time.Second, func(v fleet.View) bool { return v.Founding == was.Founding })
	now, err := f.Node(1).View()
	harness.Must(t, err)
	if now.ServerID == was.ServerID {
		t.Errorf("with an empty disk n1 is still %s", now.ServerID)
	}
	info, err := c.Observe(t.Context(), "kept")
	harness.Must(t, err)
	if info.Token != held.Token() {
		t.Errorf("a lease of an hour was held under %x, and now %+v", held.Token(), info)
	}
}

func TestCaseK13AnEmptyDiskIsReplaced(t *testing.T) {
	anEmptyDisk(t, time.Minute, func(n *fleet.Node) {
		n.Until("to say whom it waits for", 10*time.Second, func(v fleet.View) bool { return v.Waiting != "" && v.Leader == "" })
	})
}

func TestCaseK13AnEmptyDiskThatFoundedYields(t *testing.T) {
	anEmptyDisk(t, 2*time.Second, func(n *fleet.Node) {
		n.Until("to found, since nobody answers", 20*time.Second, func(v fleet.View) bool { return v.Leader == n.Name })
	})
}

func TestCaseK14ARemovedNodeComesBackAsNew(t *testing.T) {
	f, y := three(t, nil)
	n := f.Node(3)
	was, err := n.View()
	harness.Must(t, err)
	n.Kill()
	gone(f, n)
	if code, out := f.Node(1).Ask("leave", "--node", n.Name, "--wait"); code != 0 {
		t.Fatalf("leave --node ends with code %d:\n%s", code, out)
	}
	f.Leader(10*time.Second).Until("n3 to be without a seat", 30*time.Second, func(v fleet.View) bool {
		return !slices.Contains(v.Voters(), n.Name) && v.Member(n.Name).State != "failed"
	})
	f.Serves(y, 5*time.Second)
	n.Start()
	n.Says(20*time.Second, "removed")
	f.Rest(60*time.Second, 1, 2, 3)
	now, err := n.View()
	harness.Must(t, err)
	if now.ServerID == was.ServerID {
		t.Errorf("it is still %s", now.ServerID)
	}
}

func TestCaseK16APausedLeader(t *testing.T) {
	f, y := three(t, nil)
	traffic := y.Traffic(16, 10*time.Second)
	leader := f.Leader(5 * time.Second)
	granted(t, traffic, 10)
	begin := time.Now()
	leader.Pause()
	granted(t, traffic, 20)
	time.Sleep(10*time.Second - time.Since(begin)) // the case says so
	leader.Continue()
	leader.Until("to follow another", 10*time.Second, func(v fleet.View) bool { return v.Leader != "" && v.Leader != leader.Name })
	granted(t, traffic, 20)
	f.Judge(traffic, 50)
	f.SameSums(20 * time.Second)
}

// granted waits for so many grants more.
func granted(t *testing.T, traffic *leasing.Traffic, n int) {
	t.Helper()
	begin := traffic.Granted()
	harness.Await(t, "leases to be granted", 30*time.Second, func() (string, bool) {
		return fmt.Sprint(traffic.Granted() - begin), traffic.Granted() >= begin+n
	})
}

func TestCaseK21TheDiskIsFull(t *testing.T) {
	t.Parallel()
	f := fleet.New(t, fleet.Options{Program: program, Nodes: 3})
	disks := map[*fleet.Node]*netlab.Disk{}
	for _, n := range f.Nodes {
		disk, err := netlab.NewDisk(3 << 20)
		harness.Must(t, err)
		defer func() { harness.Must(t, disk.Close()) }()
		n.Data, disks[n] = disk.Dir+"/data", disk
	}
	f.Form()
	y := f.Tenancy()
	traffic := y.Traffic(21, 10*time.Second)
	leader := f.Leader(5 * time.Second)
	was, err := leader.View()
	harness.Must(t, err)
	harness.Must(t, disks[leader].Fill(0))
	leader.Until("to say that its disk is full, and not to lead", 60*time.Second, func(v fleet.View) bool { return v.DiskFull && v.Leader != leader.Name })
	leader.Unready(10*time.Second, "full")
	granted(t, traffic, 20)
	harness.Must(t, disks[leader].Free())
	leader.Ready(30 * time.Second)
	leader.Until("to follow, with its disk as it was", 30*time.Second, func(v fleet.View) bool {
		return !v.DiskFull && v.Leader != "" && v.ServerID == was.ServerID
	})
	f.Rest(30*time.Second, 1, 2, 3)
	f.Judge(traffic, 20)
	f.SameSums(30 * time.Second)
	for _, n := range f.Running() {
		n.Kill() // before its disk goes
	}
}

func TestCaseK24TheWallClockJumps(t *testing.T) {
	f, y := three(t, nil)
	ttl := 20 * time.Second
	if long {
		ttl = time.Minute
	}
	leader := f.Leader(5 * time.Second)
	clock, err := netlab.NewClock(leader.PID())
	harness.Must(t, err)
	c, end := y.Client("sleeper~1")
	harness.Must(t, clock.Set(time.Hour))
	asked := time.Now()
	held, err := c.Acquire(t.Context(), "sleeps", ttl)
	harness.Must(t, err)
	end() // nobody renews it
	got := time.Now()
	harness.Must(t, clock.Set(-time.Hour))
	f.Serves(y, 5*time.Second)
	away := time.Now()
	leader.Kill()
	f.Serves(y, 10*time.Second)
	leaderless := time.Since(away)
	var seen time.Time // when it was last seen to be held
	harness.Await(t, "the lease to end", ttl+leaderless+10*time.Second, func() (string, bool) {
		at := time.Now()
		info, err := c.Observe(t.Context(), "sleeps")
		if err == nil && info.Token == held.Token() {
			seen = at
		}
		return fmt.Sprint(info, err), err == nil && !info.Held
	})
	if ended := time.Now(); ended.Sub(asked) < ttl || seen.Sub(got) > ttl+leaderless+2*time.Second {
		t.Errorf("a lease of %v ended %v after it was asked for, and was still held %v after it was granted; %v were without a leader",
			ttl, ended.Sub(asked), seen.Sub(got), leaderless)
	}
}
