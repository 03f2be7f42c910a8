package quorum

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/dedupset"
	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/lease"
	"github.com/stream-arrow/twgd/tuning"
)

// long is a command that the tables refuse and the log takes: of n bytes.
func (n *node) long(bytes int) error {
	_, err := n.q.Propose(n.t.Context(), fsm.RouteTuning, make([]byte, bytes))
	return err
}

func TestTrap11EntriesAreCapped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := filled(t)
		refused(t, n.long(fsm.MaxEntry), ErrTooLarge)
		ok(t, n.long(fsm.MaxEntry-64))
		n.mustSet("b", "2")
	})
}

// logBytes is what the entries of a log take.
func logBytes(t *testing.T, l raft.LogStore) (bytes int64) {
	t.Helper()
	first, err := l.FirstIndex()
	ok(t, err)
	last, err := l.LastIndex()
	ok(t, err)
	for i := first; i <= last && i > 0; i++ {
		var e raft.Log
		ok(t, l.GetLog(i, &e))
		bytes += size(&e)
	}
	return bytes
}

// Entries are of 100 bytes or of 256 KiB: what counts is bytes. The log never holds much more than what leads to a snapshot and what is
// kept behind it; and what a restart finds counts too.
func TestTrap11SnapshotsByBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		n.limits = Limits{Snapshot: 1 << 20, Trailing: 256 << 10, Cache: 256 << 10}
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		n.mustSet("a", "1")
		for i := range 60 {
			ok(t, n.long(100<<10))
			time.Sleep(10 * time.Millisecond)
			if b := logBytes(t, n.q.disk.logs); b > n.limits.Snapshot+n.limits.Trailing+300<<10 {
				t.Fatalf("after %d entries the log holds %d bytes", i, b)
			}
			if i%7 == 6 {
				n.stop()
				n.start()
				ok(t, n.q.Stand())
				ok(t, n.q.installed(t.Context()))
			}
		}
		if n.get("a") != "1" {
			t.Fatal("something is lost")
		}
		if dirs, _ := filepath.Glob(filepath.Join(n.dir, snapsName, "*")); len(dirs) == 0 || len(dirs) > retain {
			t.Fatalf("the snapshots are %v", dirs)
		}
	})
}

// counted counts the snapshots that are sent, and knows the largest request.
type counted struct {
	wire
	mu      sync.Mutex
	to      map[raft.ServerID]int
	largest int64
}

func (c *counted) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	c.note(req)
	return c.wire.AppendEntries(id, to, req, resp)
}

func (c *counted) note(req *raft.AppendEntriesRequest) {
	sum := int64(0)
	for _, e := range req.Entries {
		sum += size(e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.largest = max(c.largest, sum)
}

func (c *counted) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := c.wire.AppendEntriesPipeline(id, to)
	return countedPipeline{p, c}, err
}

type countedPipeline struct {
	raft.AppendPipeline
	c *counted
}

func (p countedPipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.c.note(req)
	return p.AppendPipeline.AppendEntries(req, resp)
}

func (c *counted) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	c.mu.Lock()
	c.to[id]++
	c.mu.Unlock()
	return c.wire.InstallSnapshot(id, to, req, resp, data)
}

func (c *counted) count(n *node) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.to[raft.ServerID(n.id)]
}

// The leader is cut off while 400 proposals reach it; the others go on and take a snapshot. Its log is longer than theirs, and wrong: raft
// alone sends it the same snapshot for ever.
func TestCaseK02LongerLogOfAnEarlierTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		for _, n := range nodes {
			n.limits = Limits{Snapshot: 4 << 10, Trailing: 1 << 10}
		}
		grow(t, 3, nodes...)
		old := nodes[0]
		m.isolate(old, nodes...)
		var all sync.WaitGroup
		for i := range 400 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				old.q.Propose(ctx, fsm.RouteTuning, tuning.Set("lost", fmt.Sprint(i)))
			})
		}
		all.Wait()
		l := leaderOf(t, others(nodes, old)...)
		for i := range 100 {
			l.mustSet("kept", fmt.Sprint(i))
		}
		within(t, 10*time.Second, "a snapshot behind which the log is gone", func() bool {
			first, err := l.q.journal.FirstIndex()
			return err == nil && first > 60
		})
		if a, b := old.q.State().LastIndex, l.q.State().LastIndex; a <= b {
			t.Fatalf("the old leader's log ends at %d, the new one's at %d: the case is not there", a, b)
		}
		installs := func() (n int) {
			for _, o := range others(nodes, old) {
				n += o.sent.count(old)
			}
			return n
		}
		before := installs()
		m.heal()
		at := time.Now()
		within(t, 5*time.Second, "caught up", func() bool {
			w := leaderOf(t, others(nodes, old)...)
			return old.get("kept") == "99" && old.q.State().LastIndex == w.q.State().LastIndex
		})
		if n := installs() - before; n < 1 || n > 2 {
			t.Fatalf("it took %d snapshots and %v", n, time.Since(at))
		}
		if old.get("lost") != "" {
			t.Fatal("what was never committed is there")
		}
		leaderOf(t, others(nodes, old)...).mustSet("after", "1")
		within(t, time.Second, "goes on", func() bool { return old.get("after") == "1" })
		old.stop()
		old.start()
		within(t, 5*time.Second, "after a restart too", func() bool { return old.get("after") == "1" && old.get("lost") == "" })
	})
}

// The disk of the one that comes back is full just when its wrong entries are gone and the right ones are not there yet.
func TestFullBetweenTruncatingAndStoring(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, nodes := three(t)
		var f faults
		nodes[0].tamper = f.on
		grow(t, 3, nodes...)
		old := nodes[0]
		m.isolate(old, nodes...)
		for range 10 {
			old.q.Propose(soon(t, 10*time.Millisecond), fsm.RouteTuning, tuning.Set("lost", "1"))
		}
		l := leaderOf(t, others(nodes, old)...)
		l.mustSet("kept", "1")
		f.mu.Lock()
		f.storeErr = errFull
		f.mu.Unlock()
		m.heal()
		within(t, 10*time.Second, "it says so", func() bool { return old.q.State().DiskFull })
		time.Sleep(10 * time.Second)
		f.mu.Lock()
		f.storeErr = nil
		f.mu.Unlock()
		within(t, 10*time.Second, "caught up", func() bool { return old.get("kept") == "1" })
		if old.get("lost") != "" {
			t.Fatal("what was never committed is there")
		}
		agree(t, leaderOf(t, nodes...), nodes...)
	})
}

// A server is away under full load. The leader keeps a bounded log and a bounded cache, and brings it up by one snapshot.
func TestCaseK22AwayUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		for _, n := range nodes {
			n.limits = Limits{Snapshot: 256 << 10, Trailing: 128 << 10, Cache: 64 << 10}
		}
		grow(t, 3, nodes...)
		l, dead := nodes[0], nodes[2]
		dead.stop()
		load := func(entries int) {
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for i := range entries / 16 {
						if err := l.long(2000 + i%50); err != nil {
							t.Error(err)
							return
						}
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			all.Wait()
		}
		load(3000) // 6 MB
		if b := logBytes(t, l.q.disk.logs); b > (patience+1)*l.limits.Snapshot+l.limits.Trailing {
			t.Fatalf("the log holds %d bytes", b)
		}
		if b := l.q.journal.mu.cache.bytes; b > l.limits.Cache {
			t.Fatalf("the cache holds %d bytes", b)
		}
		l.mustSet("a", "1")
		before := l.sent.count(dead)
		dead.start()
		load(800)
		l.mustSet("b", "1")
		within(t, 10*time.Second, "caught up", func() bool { return dead.get("b") == "1" })
		if n := l.sent.count(dead) - before; n != 1 {
			t.Fatalf("it took %d snapshots", n)
		}
	})
}

// claims are claims of new contents, as a screening stage makes them.
type claims struct {
	n    uint64
	cmds atomic.Int64
}

const claimRows = 2000

func (c *claims) command(t *testing.T) []byte {
	rows := make([][24]byte, claimRows)
	for i := range rows {
		c.n++
		binary.LittleEndian.PutUint64(rows[i][:], c.n*0x9e3779b97f4a7c15)
		binary.LittleEndian.PutUint64(rows[i][8:], c.n)
	}
	cmd, err := dedupset.Claim("s", [8]byte{}, rows)
	ok(t, err)
	return cmd
}

// pour lets claims be made for a while, one each quarter of a second.
func (c *claims) pour(t *testing.T, n *node, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		reply, err := n.q.Propose(t.Context(), fsm.RouteDedup, c.command(t))
		ok(t, err)
		if held, code, err := dedupset.ParseReply(reply, claimRows); err != nil || code != dedupset.OK || len(held) > 0 {
			t.Fatal(len(held), code, err)
		}
		c.cmds.Add(1)
	}
}

// A server is away for ten minutes under full load of claims. The leader's memory stays as it was, since the set is at its cap and the log is
// bounded in bytes by the size of the tables; snapshots are no more bytes than the log; and one of them brings the other up.
func TestCaseK22AwayUnderClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		var sunk written
		for _, n := range nodes {
			n.limits = Limits{Snapshot: 128 << 10, Trailing: 128 << 10, Cache: 256 << 10}
		}
		nodes[0].tamper = sunk.on
		grow(t, 3, nodes...)
		l, dead := nodes[0], nodes[2]
		const entries = 100_000 // 2.4 MB, many times Limits.Snapshot
		_, err := l.q.Propose(t.Context(), fsm.RouteDedup, dedupset.Declare("s", [8]byte{}, time.Hour, entries))
		ok(t, err)
		var c claims
		c.pour(t, l, 15*time.Second) // the set is full
		dead.stop()
		c.pour(t, l, 20*time.Second)
		before, wrote := heap(), sunk.bytes.Load()
		logged, most, heapMost := c.cmds.Load(), int64(0), uint64(0)
		for range 20 {
			c.pour(t, l, 30*time.Second)
			most = max(most, logBytes(t, l.q.disk.logs))
			heapMost = max(heapMost, heap())
		}
		logged = (c.cmds.Load() - logged) * claimRows * 24
		const table = entries * 24
		if most > table*3/2+1<<20 {
			t.Errorf("the log held %d bytes, where the tables have %d", most, table)
		}
		if heapMost > before+8<<20 {
			t.Errorf("the memory grew from %d to %d bytes", before, heapMost)
		}
		if wrote = sunk.bytes.Load() - wrote; wrote > logged+logged/4 {
			t.Errorf("for %d bytes of claims snapshots of %d bytes were written", logged, wrote)
		}
		t.Logf("%d MB of claims, %d MB of snapshots, log at most %d bytes for %d of tables, heap %d to %d", logged>>20, wrote>>20, most, table, before, heapMost)
		sent := l.sent.count(dead)
		dead.start()
		c.pour(t, l, 20*time.Second)
		within(t, 10*time.Second, "caught up", func() bool { return dead.q.State().Applied == l.q.State().Applied })
		if n := l.sent.count(dead) - sent; n != 1 {
			t.Errorf("it took %d snapshots", n)
		}
		i, sum := l.f.Sum()
		if j, other := dead.f.Sum(); i != j || sum != other {
			t.Errorf("the sums differ at %d and %d", i, j)
		}
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// written counts the bytes of snapshots.
type written struct {
	raft.SnapshotStore
	bytes atomic.Int64
}

func (w *written) on(d *disk) { w.SnapshotStore = d.snaps; d.snaps = w }

func (w *written) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64, t raft.Transport) (raft.SnapshotSink, error) {
	s, err := w.SnapshotStore.Create(v, index, term, c, at, t)
	return &writtenSink{s, w}, err
}

type writtenSink struct {
	raft.SnapshotSink
	w *written
}

func (s *writtenSink) Write(p []byte) (int, error) {
	s.w.bytes.Add(int64(len(p)))
	return s.SnapshotSink.Write(p)
}

// One that is far behind gets its entries in requests that a slow disk stores within a heartbeat.
func TestLargeEntriesComeInShortRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		for _, n := range nodes {
			n.limits = Limits{Snapshot: 1 << 30, Trailing: 1 << 30, Cache: 1 << 20}
		}
		grow(t, 3, nodes...)
		l, dead := nodes[0], nodes[2]
		dead.stop()
		for range 100 {
			ok(t, l.long(250<<10))
		}
		dead.start()
		within(t, 10*time.Second, "caught up", func() bool { return dead.q.State().LastIndex == l.q.State().LastIndex })
		l.sent.mu.Lock()
		defer l.sent.mu.Unlock()
		if l.sent.largest > requestMost || l.sent.largest < requestMost/2 {
			t.Errorf("the largest request had %d bytes", l.sent.largest)
		}
	})
}

func TestTrap10RestoreVerifiesBeforeItTouches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		grow(t, 3, nodes...)
		l := nodes[0]
		l.mustSet("a", "old")
		r, meta, err := l.q.Snapshot(t.Context())
		ok(t, err)
		snap, err := io.ReadAll(r)
		ok(t, err)
		ok(t, r.Close())
		if int64(len(snap)) != meta.Size || meta.Index == 0 {
			t.Fatalf("%d bytes, %+v", len(snap), meta)
		}
		l.mustSet("a", "new")
		flipped := bytes.Clone(snap)
		flipped[len(flipped)/2] ^= 1
		for what, b := range map[string][]byte{"short": snap[:len(snap)-1], "flipped": flipped, "none": nil, "long": append(bytes.Clone(snap), 0)} {
			if err := l.q.Restore(t.Context(), bytes.NewReader(b), meta.Size); err == nil {
				t.Fatalf("%s: it was restored", what)
			}
		}
		if err := l.q.Restore(t.Context(), bytes.NewReader(append(bytes.Clone(snap), 0)), meta.Size+1); err == nil {
			t.Fatal("a snapshot with something behind it was restored")
		}
		l.mustSet("b", "1")
		if l.get("a") != "new" {
			t.Fatal("a refused restore changed something")
		}
		ok(t, l.q.Restore(t.Context(), bytes.NewReader(snap), meta.Size))
		for _, n := range nodes {
			within(t, 5*time.Second, "everybody has the old tables", func() bool { return n.get("a") == "old" && n.get("b") == "" })
		}
		l.mustSet("c", "1")
		if left, _ := filepath.Glob(filepath.Join(l.dir, "*.tmp")); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
		for _, n := range nodes {
			n.stop()
			n.start()
		}
		leaderOf(t, nodes...).mustSet("d", "1")
		if nodes[1].get("a") != "old" {
			t.Fatal("lost at a restart")
		}
	})
}

// A snapshot of a server that has applied nothing since its start is the one that lies there.
func TestSnapshotAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		nodes[0].limits = Limits{Trailing: 1}
		grow(t, 1, nodes[:1]...)
		n := nodes[0]
		n.mustSet("a", "1")
		n.snapshot()
		n.stop()
		n.start()
		r, meta, err := n.q.Snapshot(t.Context())
		ok(t, err)
		head, err := fsm.Verify(r)
		ok(t, err)
		ok(t, r.Close())
		if meta.Index == 0 || head.Index == 0 {
			t.Fatalf("%+v %+v", meta, head)
		}
	})
}

// Many proposals at once share a commit; entries that are sent to followers are not read back, though they are more bytes than entries.
func TestTrap15ProposalsShareCommits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		var f faults
		nodes[0].tamper = f.on
		grow(t, 3, nodes...)
		l := nodes[0]
		hold := make(chan struct{})
		f.mu.Lock()
		f.hold = hold
		f.mu.Unlock()
		stores, reads := f.stores.Load(), f.reads.Load()
		var all sync.WaitGroup
		const proposers = 200
		for range proposers {
			all.Go(func() {
				if err := l.long(20 << 10); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		close(hold)
		all.Wait()
		agree(t, l, nodes...)
		if n := f.stores.Load() - stores; n > 5 {
			t.Errorf("%d proposals took %d commits", proposers, n)
		}
		if n := f.reads.Load() - reads; n > 0 {
			t.Errorf("%d entries were read back", n)
		}
	})
}

// While one commit is on its way to the disk the next gathers, as many as a request to a follower may hold.
func TestTrap15BatchesGatherBehindACommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		n.start()
		if c := n.q.raft.ReloadableConfig(); c.SnapshotThreshold < 1<<40 {
			t.Errorf("raft counts entries for snapshots: %+v", c)
		}
		if c := config(n.id, quiet); !c.BatchApplyCh || c.MaxAppendEntries != maxBatch {
			t.Errorf("batches are off: %+v", c)
		}
	})
}

// An idle quorum writes nothing, anywhere.
func TestIdleWritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, nodes := three(t)
		var f faults
		for _, n := range nodes {
			n.tamper = f.on
		}
		grow(t, 3, nodes...)
		nodes[0].mustSet("a", "1")
		agree(t, nodes[0], nodes...)
		before := f.writes.Load()
		time.Sleep(time.Hour)
		if n := f.writes.Load() - before; n > 0 {
			t.Fatalf("an idle hour took %d writes", n)
		}
		if s := nodes[0].q.State(); !s.Leader {
			t.Fatal("the leader did not last an hour")
		}
	})
}

// While a lease can expire an idle leader lets time go on, with as many entries as there is to expire, and none afterwards.
func TestTimeGoesOnWhileSomethingExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newMesh(), "n1")
		var f faults
		n.tamper = f.on
		n.start()
		ok(t, n.q.Bootstrap(t.Context()))
		_, err := n.q.Propose(t.Context(), fsm.RouteLease, lease.Epoch(1))
		ok(t, err)
		c := lease.New(lease.Options{Proposer: proposer{n.q}, Asker: proposer{n.q}, Holder: "n1~1"})
		_, err = c.Acquire(t.Context(), "w", 10*time.Second)
		ok(t, err)
		before := f.stored.Load()
		time.Sleep(time.Minute)
		info, err := c.Observe(t.Context(), "w")
		ok(t, err)
		if info.Held {
			t.Fatalf("a minute later it is held: %+v", info)
		}
		n.f.Read(func(_ *fsm.Tables, now time.Duration, _ uint64) {
			if now < 10*time.Second || now > 12*time.Second {
				t.Errorf("the time of the tables is %v", now)
			}
		})
		if n := f.stored.Load() - before; n < 1 || n > 3 {
			t.Fatalf("that took %d entries", n)
		}
	})
}

type proposer struct{ q *Quorum }

func (p proposer) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	return p.q.Propose(ctx, fsm.RouteLease, cmd)
}
func (p proposer) Query(ctx context.Context, x []byte) ([]byte, error) {
	return p.q.Query(ctx, fsm.RouteLease, x)
}

func TestHalfWrittenSnapshotsGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := filled(t)
		n.stop()
		left := filepath.Join(n.dir, snapsName, "9-9-9.tmp")
		ok(t, os.MkdirAll(left, 0o700))
		n.start()
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Fatal("a half-written snapshot stays")
		}
		if dirs, _ := filepath.Glob(filepath.Join(n.dir, "*.tmp")); len(dirs) > 0 {
			t.Fatal(strings.Join(dirs, " "))
		}
	})
}
