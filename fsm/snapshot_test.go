package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stream-arrow/twgd/tuning"
)

func TestSnapshotIsRestored(t *testing.T) {
	s := filled(t)
	data := snapshotOf(t, s.f)
	head, err := Verify(iotest.OneByteReader(bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	index, sum := s.f.Sum()
	if head.Index != index || head.Sum != sum || head.Time != 3*time.Second || len(head.Sections) != len(s.f.mu.sections) {
		t.Errorf("%+v", head)
	}
	other := New()
	if err := restore(other, data); err != nil {
		t.Fatal(err)
	}
	if again := snapshotOf(t, other); !bytes.Equal(data, again) {
		t.Error("what was restored writes another snapshot")
	}
	next, _ := Entry(RouteTuning, time.Hour, tuning.Set("k", "v"))
	s.apply(next)
	other.Apply(s.log[len(s.log)-1])
	if _, same, ok := Compare(s.f.Sums(), other.Sums()); !ok || !same {
		t.Error("what was restored goes on otherwise")
	}
}

// TestDamageIsFound flips each byte, and cuts at each length. Verify finds all of it; Restore too, and then leaves everything as it was.
func TestDamageIsFound(t *testing.T) {
	s := newScript(t)
	s.entry(RouteTuning, 3*time.Second, tuning.Set(tuning.Size, "3"))
	data := snapshotOf(t, s.f)
	f := func(what string, at int, bad []byte) {
		t.Helper()
		if _, err := Verify(bytes.NewReader(bad)); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
			t.Errorf("%s at %d: verified: %v", what, at, err)
		}
		if err := restore(s.f, bad); err == nil {
			t.Errorf("%s at %d: restored", what, at)
		}
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x10
		f("a flip", i, bad)
		f("a cut", i, data[:i])
	}
	f("something behind", len(data), append(bytes.Clone(data), 0))
	if !bytes.Equal(data, snapshotOf(t, s.f)) {
		t.Error("a restore that failed changed something")
	}
}

// TestNewerIsRefused: what this program does not know it would lose.
func TestNewerIsRefused(t *testing.T) {
	f := func(change func(s *snapshot)) {
		t.Helper()
		snap, _ := filled(t).f.Snapshot()
		s := snap.(*snapshot)
		change(s)
		var out sink
		if err := s.Persist(&out); err != nil {
			t.Fatal(err)
		}
		_, err := Verify(bytes.NewReader(out.Bytes()))
		if again := restore(New(), out.Bytes()); !errors.Is(err, ErrNewer) || !errors.Is(again, ErrNewer) {
			t.Errorf("%v, %v", err, again)
		}
	}
	empty := func(io.Writer) error { return nil }
	f(func(s *snapshot) { s.tables = append(s.tables, pinned{"claims", 1, empty}) })
	f(func(s *snapshot) { s.tables = append(s.tables, pinned{"something", 1, empty}) })
	f(func(s *snapshot) { s.tables[0].version++ })
}

func TestSectionsComeOnceAndWhole(t *testing.T) {
	f := func(change func(s *snapshot)) {
		t.Helper()
		snap, _ := filled(t).f.Snapshot()
		s := snap.(*snapshot)
		change(s)
		var out sink
		if err := s.Persist(&out); err != nil {
			t.Fatal(err)
		}
		if err := restore(New(), out.Bytes()); err == nil {
			t.Error("restored")
		}
	}
	f(func(s *snapshot) { s.tables = append(s.tables, s.tables[0]) })
	f(func(s *snapshot) {
		write := s.tables[0].write
		s.tables[0].write = func(w io.Writer) error { return errors.Join(write(w), write(w)) }
	})
	f(func(s *snapshot) { s.tables[0].write = func(io.Writer) error { return nil } })
}

// TestOlderSnapshots have no section for a table that came later: it begins empty.
func TestOlderSnapshots(t *testing.T) {
	snap, _ := filled(t).f.Snapshot()
	s := snap.(*snapshot)
	s.tables = s.tables[:len(s.tables)-2]
	var out sink
	if err := s.Persist(&out); err != nil {
		t.Fatal(err)
	}
	f := New()
	if err := restore(f, out.Bytes()); err != nil {
		t.Fatal(err)
	}
	f.Read(func(tables *Tables, _ time.Duration, _ uint64) {
		if tables.Leases.Len() != 50 || len(tables.Tuning.All()) != 0 || len(tables.Dedup.Stats(0)) != 0 {
			t.Errorf("%d leases, %v", tables.Leases.Len(), tables.Tuning.All())
		}
	})
}

func TestSinkThatFailsIsCanceled(t *testing.T) {
	snap, _ := filled(t).f.Snapshot()
	full := errors.New("no room")
	out := sink{fail: full}
	if err := snap.Persist(&out); !errors.Is(err, full) || !out.canceled || out.closed {
		t.Errorf("%v, canceled %v, closed %v", err, out.canceled, out.closed)
	}
}

// TestSnapshotsDoNotStopApply persists snapshots beside Apply: each holds what was there when it was made.
func TestSnapshotsDoNotStopApply(t *testing.T) {
	s := filled(t)
	var all sync.WaitGroup
	for n := range 50 {
		want := snapshotOf(t, s.f)
		snap, _ := s.f.Snapshot()
		all.Go(func() {
			var out sink
			if err := snap.Persist(&out); err != nil || !bytes.Equal(out.Bytes(), want) {
				t.Errorf("snapshot %d has changed: %v", n, err)
			}
		})
		for i := range byte(20) {
			s.entry(RouteLease, time.Duration(10+n)*time.Second, acquire("x", byte(n)*5+i, time.Second))
			s.entry(RouteLease, time.Duration(10+n)*time.Second, renew(2<<40|uint64(i)+1))
		}
	}
	all.Wait()
}

func FuzzRestore(f *testing.F) {
	f.Add(snapshotOf(f, New()))
	f.Add(snapshotOf(f, filled(f).f))
	f.Fuzz(func(t *testing.T, data []byte) {
		fsm := New()
		_, verr := Verify(bytes.NewReader(data))
		err := restore(fsm, data)
		if verr != nil && err == nil {
			t.Errorf("restored what does not verify: %v", verr)
		}
		if err == nil {
			if err := restore(New(), snapshotOf(t, fsm)); err != nil {
				t.Error("written again: ", err)
			}
		}
	})
}

// FuzzSection gives a table's section any data, with checksums that are right.
func FuzzSection(f *testing.F) {
	f.Add("leases", []byte{0, 0, 0, 0, 0, 0})
	f.Add("tuning", []byte{1, 1, 'k', 1, 'v'})
	f.Add("dedup", []byte{0, 0})
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if len(name) > 255 {
			return
		}
		s := &snapshot{tables: []pinned{{name, 1, func(w io.Writer) error { _, err := w.Write(data); return err }}}}
		var out sink
		if err := s.Persist(&out); err != nil {
			t.Fatal(err)
		}
		_ = restore(New(), out.Bytes())
	})
}

func FuzzApply(f *testing.F) {
	for _, log := range filled(f).log[:4] {
		f.Add(log.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := filled(t)
		s.apply(data)
		s.apply(data)
		if err := restore(New(), snapshotOf(t, s.f)); err != nil {
			t.Error(err)
		}
	})
}

// TestAllocationsAreBounded: a header that promises much gets little.
func TestAllocationsAreBounded(t *testing.T) {
	data := snapshotOf(t, New())
	cut := bytes.Clone(data[:fixedHead+4])
	section := append([]byte{6}, "leases"...)
	section = binary.BigEndian.AppendUint16(section, 1)
	section = binary.BigEndian.AppendUint32(section, crc32.Checksum(section, castagnoli))
	f := func(chunk uint32, most uint64) {
		t.Helper()
		bad := binary.BigEndian.AppendUint32(append(bytes.Clone(cut), section...), chunk)
		bad = append(bad, 0, 0, 0, 0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Verify(bytes.NewReader(bad))
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; err == nil || got > most {
			t.Errorf("a chunk of %d bytes takes %d: %v", chunk, got, err)
		}
	}
	f(1<<32-1, maxChunk)
	f(maxChunk, 4*maxChunk)
}
