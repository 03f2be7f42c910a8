package quorum

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestFit(t *testing.T) {
	f := func(prev, prevTerm uint64, entries int, commit uint64, snap mark, wantPrev, wantCommit uint64) {
		t.Helper()
		got := fit(raft.AppendEntriesRequest{PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: make([]*raft.Log, entries), LeaderCommitIndex: commit}, snap)
		if got.PrevLogEntry != wantPrev || got.LeaderCommitIndex != wantCommit {
			t.Errorf("behind %d with %d entries, commit %d: got %d, %d", prev, entries, commit, got.PrevLogEntry, got.LeaderCommitIndex)
		}
	}
	none := mark{}
	f(0, 0, 0, 0, none, 0, 0)
	f(10, 2, 3, 12, none, 10, 12)
	f(10, 2, 3, 13, none, 10, 13)
	f(10, 2, 3, 14, none, 10, 13) // what is beyond the request may be wrong here
	f(10, 2, 0, 14, none, 10, 10)
	f(10, 2, 1, 20, mark{10, 2}, 0, 11) // the snapshot's end is equal, whatever the log says
	f(10, 3, 1, 20, mark{10, 2}, 10, 11)
	f(11, 2, 1, 20, mark{10, 2}, 11, 12)
}

func TestWindow(t *testing.T) {
	w := window{limit: 10 * (10 + entrySize)}
	add := func(i uint64, bytes int) { w.add(&raft.Log{Index: i, Data: make([]byte, bytes)}) }
	for i := uint64(5); i < 25; i++ {
		add(i, 10)
	}
	if len(w.entries) != 10 || w.get(14) != nil || w.get(15).Index != 15 || w.get(24).Index != 24 || w.get(25) != nil {
		t.Fatalf("%d entries from %d", len(w.entries), w.first)
	}
	w.dropTo(20)
	if len(w.entries) != 4 || w.get(20) != nil || w.get(21) == nil || w.bytes != 4*(10+entrySize) {
		t.Fatalf("%d entries from %d", len(w.entries), w.first)
	}
	add(40, 10)
	if len(w.entries) != 1 || w.get(40) == nil || w.get(21) != nil {
		t.Fatalf("%d entries from %d", len(w.entries), w.first)
	}
	add(41, 2000)
	if len(w.entries) != 0 || w.bytes != 0 {
		t.Fatal("more is kept than the limit")
	}
}

// However many entries there are, a tail counts them in few blocks, and never more of them than its bytes are.
func TestTail(t *testing.T) {
	f := func(limit, size int64, entries int, least, most uint64) {
		t.Helper()
		tail := tail{limit: limit}
		for i := range entries {
			tail.add(uint64(i)+7, size)
		}
		if n := tail.entries(); n < least || n > most {
			t.Errorf("%d entries of %d bytes, limit %d: %d are kept, want %d to %d", entries, size, limit, n, least, most)
		}
		if len(tail.blocks) > 67 {
			t.Errorf("%d blocks", len(tail.blocks))
		}
	}
	f(1000, 100, 5, 5, 5)
	f(1000, 100, 50, 9, 10)
	f(1000, 1, 100_000, 960, 1000)
	f(400<<20, 256<<10, 10_000, 1560, 1600)
	f(400<<20, 164, 5_000_000, 2_500_000, 2_557_000)
	f(100, 200, 10, 0, 0)
	jumped := tail{limit: 1000}
	jumped.add(5, 10)
	jumped.add(9, 10)
	if n := jumped.entries(); n != 1 {
		t.Errorf("after a gap %d entries count", n)
	}
}

func TestFitting(t *testing.T) {
	f := func(most int64, want int, bytes ...int) {
		t.Helper()
		var logs []*raft.Log
		for _, b := range bytes {
			logs = append(logs, &raft.Log{Data: make([]byte, b-entrySize)})
		}
		if n := fitting(logs, most); n != want {
			t.Errorf("%v into %d: %d fit, want %d", bytes, most, n, want)
		}
	}
	f(1000, 0)
	f(1000, 1, 5000)
	f(1000, 1, 5000, 100)
	f(1000, 2, 500, 500, 100)
	f(1000, 3, 500, 300, 200)
}

// A snapshot weighs: log of its size makes the next one due, and a quarter of it is kept behind it.
func TestLargeTablesMakeSnapshotsRare(t *testing.T) {
	f := func(snapSize, wantEnough, wantTail int64) {
		t.Helper()
		j, err := newJournal(raft.NewInmemStore(), nil, Limits{}.filled(), lookout{snap: mark{7, 1}, snapSize: snapSize}, func() {})
		ok(t, err)
		if j.enough() != wantEnough || j.mu.tail.limit != wantTail {
			t.Errorf("behind %d bytes a snapshot is due after %d and leaves %d, want %d and %d", snapSize, j.enough(), j.mu.tail.limit, wantEnough, wantTail)
		}
		j.mu.since = max(4*8<<20, 2*snapSize) - 1
		if !j.patient() {
			t.Errorf("behind %d bytes nobody waits for one that catches up, after %d", snapSize, j.mu.since)
		}
		j.mu.since++
		if j.patient() {
			t.Errorf("behind %d bytes a snapshot waits although the log has %d", snapSize, j.mu.since)
		}
	}
	f(0, 8<<20, 8<<20)
	f(10<<20, 10<<20, 8<<20)
	f(1600<<20, 1600<<20, 400<<20)
}

// A snapshot that came from somebody else says nothing of the entries that were there before it: they go. One of our own leaves them.
func TestForeignSnapshotDropsTheLogBehindIt(t *testing.T) {
	f := func(snap mark, wantFirst, wantLast uint64) {
		t.Helper()
		store := raft.NewInmemStore()
		for i := uint64(3); i <= 10; i++ {
			ok(t, store.StoreLog(&raft.Log{Index: i, Term: 2}))
		}
		j, err := newJournal(store, nil, Limits{}.filled(), lookout{snap: snap}, func() {})
		ok(t, err)
		first, _ := store.FirstIndex()
		last, _ := store.LastIndex()
		if first != wantFirst || last != wantLast {
			t.Errorf("snapshot %v: the log goes from %d to %d, want %d to %d", snap, first, last, wantFirst, wantLast)
		}
		if got := j.lastEntry(); got.index != max(wantLast, snap.index) {
			t.Errorf("snapshot %v: the last entry is %v", snap, got)
		}
	}
	f(mark{}, 3, 10)
	f(mark{5, 2}, 3, 10)
	f(mark{5, 3}, 6, 10)
	f(mark{10, 2}, 3, 10)
	f(mark{10, 3}, 0, 0)
	f(mark{20, 3}, 0, 0)
	f(mark{2, 1}, 3, 10)
}

// An operator sees nothing of raft's own at info, and of what is left each text once a minute.
func TestLogIsTamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLogger(slog.New(slog.NewTextHandler(&out, nil)))
		l.Info("entering leader state")
		l.Warn("heartbeat timeout reached, starting election")
		l.Error("failed to heartbeat to", "peer", "x")
		l.Named("net").Error("failed to decode incoming command", "error", "x")
		if out.Len() > 0 {
			t.Fatalf("said %s", out.String())
		}
		for range 100 {
			l.With("a", 1).Error("failed to take snapshot", "error", "x")
		}
		time.Sleep(sayAgain)
		l.Error("failed to take snapshot", "error", "x")
		if n := strings.Count(out.String(), "level=WARN"); n != 2 {
			t.Fatalf("said %d times:\n%s", n, out.String())
		}
	})
}
