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
	w := window{limit: 100}
	for i := uint64(5); i < 25; i++ {
		w.add(i, 10, &raft.Log{Index: i})
	}
	if w.len() != 10 || w.get(14) != nil || w.get(15).Index != 15 || w.get(24).Index != 24 || w.get(25) != nil {
		t.Fatalf("%d entries from %d", w.len(), w.first)
	}
	w.dropTo(20)
	if w.len() != 4 || w.get(20) != nil || w.get(21) == nil || w.bytes != 40 {
		t.Fatalf("%d entries from %d", w.len(), w.first)
	}
	w.add(40, 10, &raft.Log{Index: 40})
	if w.len() != 1 || w.get(40) == nil || w.get(21) != nil {
		t.Fatalf("%d entries from %d", w.len(), w.first)
	}
	w.add(41, 200, &raft.Log{Index: 41})
	if w.len() != 0 || w.bytes != 0 {
		t.Fatal("more is kept than the limit")
	}
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
