package quorum

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/stream-arrow/twgd/fsm"
)

// An id belongs to a disk: an empty one is another server, whatever its name.
func TestTrap07EmptyDiskIsAnotherServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	first, err := Create(dir, "n1")
	ok(t, err)
	again, err := Create(dir, "n1")
	ok(t, err)
	if again != first || !strings.HasPrefix(first, "n1~") || len(first) != len("n1~")+2*birthBytes {
		t.Fatalf("the ids are %q and %q", first, again)
	}
	ok(t, os.RemoveAll(dir))
	other, err := Create(dir, "n1")
	ok(t, err)
	if other == first {
		t.Fatal("an empty disk came back under the old id")
	}
	for _, name := range []string{"", "a~b"} {
		if _, err := Create(filepath.Join(t.TempDir(), "x"), name); err == nil {
			t.Errorf("%q was taken for a name", name)
		}
	}
}

// The id lies in the file of the log: who takes the log away takes the id away.
func TestTrap07LostLogLosesTheID(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	first, err := Create(dir, "n1")
	ok(t, err)
	ok(t, os.Remove(filepath.Join(dir, boltName)))
	found, err := Inspect(dir)
	ok(t, err)
	if found.ID != "" {
		t.Fatalf("found %+v", found)
	}
	other, err := Create(dir, "n1")
	ok(t, err)
	if other == first {
		t.Fatal("a lost log came back under the old id")
	}
}

func filled(t *testing.T) *node {
	t.Helper()
	n := newNode(t, newMesh(), "n1")
	n.limits = Limits{Trailing: 1}
	n.start()
	ok(t, n.q.Bootstrap(t.Context()))
	n.mustSet("a", "1")
	return n
}

func (n *node) snapshot() {
	n.t.Helper()
	r, _, err := n.q.Snapshot(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	ok(n.t, r.Close())
}

// Snapshots that do not reach the log are an empty disk, and so is one that does not read back.
func TestTrap07SnapshotThatDoesNotReachTheLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for what, spoil := range map[string]func(snaps string) error{
			"lost": os.RemoveAll,
			"flipped": func(snaps string) error {
				files, _ := filepath.Glob(filepath.Join(snaps, "*", "state.bin"))
				for _, f := range files {
					b, err := os.ReadFile(f)
					if err != nil {
						return err
					}
					b[len(b)/2] ^= 1
					if err := os.WriteFile(f, b, 0o600); err != nil {
						return err
					}
				}
				return nil
			},
		} {
			n := filled(t)
			n.snapshot()
			n.mustSet("b", "2")
			n.stop()
			whole, err := Inspect(n.dir)
			ok(t, err)
			if whole.ID != n.id || !whole.HasState || whole.Broken != "" || len(whole.Servers) != 1 || whole.LastIndex < 4 {
				t.Fatalf("%s: before: %+v", what, whole)
			}
			ok(t, spoil(filepath.Join(n.dir, snapsName)))
			found, err := Inspect(n.dir)
			ok(t, err)
			if found.ID != "" || found.HasState || found.Broken == "" {
				t.Fatalf("%s: found %+v", what, found)
			}
			if _, err := Open(Options{Dir: n.dir, FSM: fsm.New(), Log: dbg, Stream: n.m.listen("x", "x")}); err == nil {
				t.Fatalf("%s: it was opened", what)
			}
			id, err := Create(n.dir, "n1")
			ok(t, err)
			if id == n.id {
				t.Fatalf("%s: it came back under the old id", what)
			}
			if _, err := os.Stat(n.dir + ".broken/" + boltName); err != nil {
				t.Fatalf("%s: what was there is gone: %v", what, err)
			}
		}
	})
}

// One snapshot that is wrong is no loss where the one before it reaches the log.
func TestOlderSnapshotServes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := filled(t)
		n.limits = Limits{Trailing: 1 << 20}
		n.stop()
		n.start()
		ok(t, n.q.Stand())
		ok(t, n.q.installed(t.Context()))
		n.snapshot()
		n.mustSet("b", "2")
		n.snapshot()
		n.mustSet("c", "3")
		n.stop()
		dirs, _ := filepath.Glob(filepath.Join(n.dir, snapsName, "*"))
		if len(dirs) != retain {
			t.Fatalf("there are %v", dirs)
		}
		newest := dirs[0] // the index in their names has one digit
		if dirs[1] > newest {
			newest = dirs[1]
		}
		ok(t, os.Truncate(filepath.Join(newest, "state.bin"), 10))
		n.start()
		ok(t, n.q.Stand())
		ok(t, n.q.installed(t.Context()))
		if n.get("a") != "1" || n.get("b") != "2" || n.get("c") != "3" {
			t.Fatal("something is lost")
		}
	})
}

func TestDamagedBoltFileIsAnEmptyDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	_, err := Create(dir, "n1")
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(dir, boltName), make([]byte, 1<<16), 0o600))
	found, err := Inspect(dir)
	ok(t, err)
	if found.Broken == "" || found.ID != "" {
		t.Fatalf("found %+v", found)
	}
}

func TestTrap11AnotherProcessIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := filled(t)
		_, err := Open(Options{Dir: n.dir, FSM: fsm.New(), Log: dbg, Stream: n.m.listen("x", "x")})
		if !errors.Is(err, bolterrors.ErrTimeout) || !strings.Contains(err.Error(), "another process") {
			t.Fatalf("the answer is %v", err)
		}
	})
}

func TestRewriteMakesOneOfThree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		nodes[0].mustSet("a", "1")
		agree(t, nodes[0], nodes...)
		for _, n := range nodes {
			n.stop()
		}
		n := nodes[2]
		ok(t, Rewrite(n.dir, dbg))
		found, err := Inspect(n.dir)
		ok(t, err)
		if found.ID != n.id || len(found.Servers) != 1 || !found.Servers[0].Voter {
			t.Fatalf("found %+v", found)
		}
		n.start()
		ok(t, n.q.Stand())
		ok(t, n.q.installed(t.Context()))
		if n.get("a") != "1" {
			t.Fatal("what it held is lost")
		}
		n.mustSet("b", "2")
		if err := Rewrite(filepath.Join(t.TempDir(), "none"), nil); err == nil {
			t.Fatal("a directory that is not there was rewritten")
		}
	})
}

type memKV map[string][]byte

func (m memKV) Set(k, v []byte) error { m[string(k)] = append([]byte{}, v...); return nil }
func (m memKV) Get(k []byte) ([]byte, error) {
	if v, ok := m[string(k)]; ok {
		return v, nil
	}
	return nil, errNotFound
}
func (m memKV) SetUint64(k []byte, v uint64) error {
	return m.Set(k, binary.BigEndian.AppendUint64(nil, v))
}
func (m memKV) GetUint64(k []byte) (uint64, error) {
	v, err := m.Get(k)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}

// A vote of which only the term was written is no vote, above all not one for an earlier candidate.
func TestVoteIsOneWrite(t *testing.T) {
	store := memKV{}
	cast := func(term uint64, who string) {
		b := newBallot(store, nil)
		ok(t, b.SetUint64([]byte(keyVoteTerm), term))
		if who != "" {
			ok(t, b.Set([]byte(keyVoteCand), []byte(who)))
		}
	}
	seen := func(term uint64, who string) {
		t.Helper()
		b := newBallot(store, nil)
		gotTerm, _ := b.GetUint64([]byte(keyVoteTerm))
		got, _ := b.Get([]byte(keyVoteCand))
		if gotTerm != term || string(got) != who {
			t.Fatalf("the vote is for %q in term %d, want %q in %d", got, gotTerm, who, term)
		}
	}
	seen(0, "")
	cast(3, "x")
	seen(3, "x")
	cast(4, "") // and a crash
	seen(3, "x")
	cast(4, "y")
	seen(4, "y")
}

// The same on raft: a server that went down between the two writes must not elect, in that term, whom it had voted for before. That one's
// log is not looked at.
func TestVoteForAnEarlierCandidateIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		var f faults
		nodes[1].tamper = f.on
		grow(t, 3, nodes...)
		n := nodes[1]
		m.isolate(n, nodes...)
		time.Sleep(5 * time.Second)
		ask := func(who string, term, last uint64) bool {
			req := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, Addr: []byte(who)}, Term: term, LastLogIndex: last, LastLogTerm: last}
			answer := make(chan raft.RPCResponse, 1)
			n.q.transport.deliver(raft.RPC{Command: req, RespChan: answer})
			return (<-answer).Response.(*raft.RequestVoteResponse).Granted
		}
		if !ask("stale", 50, 1000) {
			t.Fatal("a good log was refused")
		}
		f.mu.Lock()
		f.err, f.after = errFull, 2 // as raft would write it: the two terms are stored, for whom not any more
		f.mu.Unlock()
		ask("other", 51, 1000)
		f.set(nil)
		n.stop()
		n.start()
		if ask("stale", 51, 1) {
			t.Fatal("a log of nothing was elected")
		}
	})
}

func TestStartWritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := filled(t)
		n.stop()
		var f faults
		n.tamper = f.on
		n.start()
		if w := f.writes.Load(); w != 0 {
			t.Fatalf("a start writes %d times", w)
		}
	})
}
