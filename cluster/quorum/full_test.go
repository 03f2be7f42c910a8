package quorum

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// The leader's disk is full: another leads soon, this one says so, and goes on when there is room.
func TestCaseK21LeadersDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		var f faults
		nodes[0].tamper = f.on
		grow(t, 3, nodes...)
		l := nodes[0]
		l.mustSet("a", "1")
		agree(t, l, nodes...)
		time.Sleep(time.Second)
		f.set(errFull)
		at := time.Now()
		refused(t, l.set("a", "2"), ErrUnknown)
		w := leaderOf(t, others(nodes, l)...)
		if d := time.Since(at); d > 500*time.Millisecond {
			t.Errorf("another leads after %v", d)
		}
		w.mustSet("a", "3")
		if s := l.q.State(); !s.DiskFull || s.Leader || s.Failed != nil {
			t.Fatalf("the state is %+v", s)
		}
		refused(t, l.set("a", "4"), ErrDiskFull)
		time.Sleep(20 * time.Second) // its disk takes nothing, not even a term: it harms nobody
		w = leaderOf(t, others(nodes, l)...)
		w.mustSet("b", "1")
		f.set(nil)
		within(t, 15*time.Second, "it has what it missed", func() bool { return l.get("b") == "1" })
		if l.q.State().DiskFull {
			t.Fatal("it still says that its disk is full")
		}
		ok(t, leaderOf(t, nodes...).q.Handover(t.Context(), l.id))
		leaderOf(t, l).mustSet("c", "1")
	})
}

// A server whose disk is full is not elected, neither by itself nor at a leader's word; it would step down with its first entry.
func TestFullDiskIsNotElected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		var f faults
		nodes[2].tamper = f.on
		grow(t, 3, nodes...)
		l, full := nodes[0], nodes[2]
		f.set(errFull)
		l.mustSet("a", "1")
		within(t, 5*time.Second, "it says so", func() bool { return full.q.State().DiskFull })
		req := &raft.TimeoutNowRequest{RPCHeader: l.q.transport.header()}
		id := raft.ServerID(full.id)
		if err := l.q.transport.TimeoutNow(id, raft.ServerAddress(id), req, &raft.TimeoutNowResponse{}); err == nil {
			t.Fatal("it was told to stand, and took it")
		}
		vote := &raft.RequestPreVoteRequest{RPCHeader: full.q.transport.header(), Term: 9, LastLogIndex: 1000, LastLogTerm: 8}
		id = raft.ServerID(nodes[1].id)
		if err := full.q.transport.RequestPreVote(id, raft.ServerAddress(id), vote, &raft.RequestPreVoteResponse{}); !errors.Is(err, errNoElection) {
			t.Fatalf("it asks for votes: %v", err)
		}
		f.set(nil)
	})
}

// The only seat waits in its election, and goes on by itself.
func TestCaseK21OnlySeatsDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		var f faults
		n.tamper = f.on
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		n.mustSet("a", "1")
		term := n.q.State().Term
		f.set(errFull)
		refused(t, n.set("a", "2"), ErrUnknown)
		time.Sleep(time.Minute)
		if s := n.q.State(); !s.DiskFull || s.Leader || s.Term != term {
			t.Fatalf("the state is %+v", s)
		}
		f.set(nil)
		leaderOf(t, n).mustSet("b", "1")
		if n.get("a") != "1" {
			t.Fatal("something is lost")
		}
	})
}

// A server can be put down while its disk is full, and while raft waits for room.
func TestCloseWhileTheDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		var f faults
		n.tamper = f.on
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		f.set(errFull)
		refused(t, n.set("a", "2"), ErrUnknown)
		time.Sleep(10 * time.Second)
		at := time.Now()
		n.stop()
		if d := time.Since(at); d > time.Second {
			t.Fatalf("it took %v", d)
		}
	})
}

// A follower that can store no new term waits; raft would panic.
func TestFollowersDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		var f faults
		nodes[2].tamper = f.on
		grow(t, 3, nodes...)
		f.set(errFull)
		nodes[0].mustSet("a", "1")
		m.isolate(nodes[0], nodes[1])
		time.Sleep(10 * time.Second) // the second asks the third for its vote in a new term
		m.heal()
		f.set(nil)
		l := leaderOf(t, nodes...)
		l.mustSet("b", "1")
		within(t, 20*time.Second, "it has what it missed", func() bool { return nodes[2].get("b") == "1" })
	})
}

// What is no want of room is a failure: nothing is tried again on that disk.
func TestFailedDiskSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		var f faults
		n.tamper = f.on
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		f.set(syscall.EIO)
		refused(t, n.set("a", "2"), ErrUnknown)
		f.set(nil)
		time.Sleep(time.Minute)
		if s := n.q.State(); s.Failed == nil || s.DiskFull || s.Leader {
			t.Fatalf("the state is %+v", s)
		}
		if err := n.set("a", "3"); !errors.Is(err, syscall.EIO) {
			t.Fatalf("the answer is %v", err)
		}
	})
}

// A snapshot that finds no room leaves nothing behind, and is taken later.
func TestSnapshotThatFindsNoRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		var f faults
		n.tamper = f.on
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		n.mustSet("a", "1")
		f.set(errFull)
		if r, _, err := n.q.Snapshot(t.Context()); err == nil {
			r.Close()
			t.Fatal("there was room")
		}
		if left, _ := filepath.Glob(filepath.Join(n.dir, snapsName, "*")); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
		f.set(nil)
		leaderOf(t, n)
		n.snapshot()
	})
}

// The same on a real file system of 3 MB.
func TestCaseK21RealDiskIsFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=3m"); err != nil {
		t.Skip("mounting a small file system: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(t *testing.T) {
		n := &node{t: t, m: newMesh(), dir: filepath.Join(small, "raft"), limits: Limits{Snapshot: 1 << 30}}
		var err error
		n.id, err = Create(n.dir, "n1")
		ok(t, err)
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		ballast := filepath.Join(small, "ballast")
		ok(t, os.WriteFile(ballast, make([]byte, 3<<19), 0o600))
		n.mustSet("a", "1")
		stored := 0
		for err = nil; err == nil && stored < 200; stored++ {
			err = n.long(20 << 10)
		}
		refused(t, err, ErrUnknown)
		within(t, time.Second, "it says so", func() bool { return n.q.State().DiskFull && !n.q.State().Leader })
		time.Sleep(time.Minute)
		refused(t, n.set("a", "2"), ErrDiskFull)
		ok(t, os.Remove(ballast))
		leaderOf(t, n).mustSet("b", "1")
		n.stop()
		found, err := Inspect(n.dir)
		ok(t, err)
		if found.ID != n.id || found.Broken != "" {
			t.Fatalf("found %+v", found)
		}
		n.start()
		leaderOf(t, n)
		if n.get("a") != "1" || n.get("b") != "1" {
			t.Fatal("something is lost")
		}
		n.stop()
		t.Log(fmt.Sprint(stored, " entries of 20 KiB until it was full"))
	})
}
