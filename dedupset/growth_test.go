package dedupset

import (
	"testing"
	"time"
)

func TestTheIndexFollows(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Minute, 1_000_000)
	set, moved := s.table.sets[0], 0
	for at := 0; at < 1_200_000; at += 10_000 {
		s.now += youth / 50
		s.want("a", at, 10_000, 1)
		if set.old != nil {
			moved++
			s.want("a", at, 2, 2, 0, 1)
			s.want("a", at/2, 2, 2, 0, 1)
		}
	}
	if moved < 3 || set.index.limit != 1_000_000 || set.known() != 1_000_000 {
		t.Errorf("moved in %d claims, to an index for %d; %d are known", moved, set.index.limit, set.known())
	}
	if got, most := set.bytes(), Memory(1_000_000)+2*chunkRows*rowSize; got > most {
		t.Errorf("it takes %d bytes, at most %d", got, most)
	}
	s.now += 2 * youth
	s.declare("a", time.Minute, 100_000)
	s.want("a", 1_100_000, 1, 2, 0)
	s.want("a", 1_099_999, 1, 2)
	for at := 2_000_000; set.index.limit > 100_000 || set.old != nil; at += 10_000 {
		if at > 3_000_000 {
			t.Fatalf("the index stays at %d", set.index.limit)
		}
		s.now += youth / 5
		s.want("a", at, 10_000, 1)
	}
	s.now += 2 * time.Minute
	s.table.Expire(s.now)
	if set.index.limit != firstLimit || set.fill() != 0 {
		t.Errorf("an index for %d, %d rows", set.index.limit, set.fill())
	}
	s.want("a", 2_000_000, 10_000, 2)
}

func TestDeclaredAnewWhileMoving(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Minute, 10_000_000)
	set, at := s.table.sets[0], 0
	for ; set.old == nil || set.split-set.drained < 500_000; at += 10_000 {
		s.want("a", at, 10_000, 1)
	}
	s.now += 2 * youth
	s.declare("a", time.Minute, 1000)
	s.declare("a", time.Minute, 10_000_000)
	for range 50 {
		s.want("a", at, 10_000, 1)
		at += 10_000
		if fill := set.fill(); fill > set.index.limit+set.index.limit/4+group {
			t.Fatalf("%d rows in an index for %d", fill, set.index.limit)
		}
	}
	s.want("a", at-500_000-1000, 3, 2, 0, 1, 2)
	s.want("a", at-500_000-1001, 1, 2)
}

// TestAYoungClaimIsNeverLetGo: neither for others, nor for a smaller cap; once it is older it is.
func TestAYoungClaimIsNeverLetGo(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Minute, 2000)
	s.want("a", 0, 2000, 1)
	s.now += youth
	s.want("a", 5000, 1, 2) // not taken: it holds nothing
	s.want("a", 5000, 1, 3)
	s.want("a", 0, 2, 9, 0, 1)
	s.declare("a", time.Minute, 1000)
	s.want("a", 0, 2, 9, 0, 1)
	set := s.table.sets[0]
	if got := s.table.Stats(s.now)[0]; got.Entries != 2000 || got.Evicted != 2 || got.Held != 0 {
		t.Errorf("%+v", got)
	}
	s.now += youthGrain
	s.want("a", 5000, 1, 1)
	s.want("a", 5000, 1, 2, 0)
	if set.known() != 1000 || set.settled != 2000 {
		t.Errorf("%d are known, and settled to %d", set.known(), set.settled)
	}
	s.want("a", 1000, 1, 5)
}

func TestTidyEndsByItself(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Minute, 200_000)
	s.want("a", 0, 10_000, 1)
	for at := 10_000; at < 200_000; at += 10_000 {
		s.want("a", at, 10_000, 1)
	}
	s.now = 30 * time.Second
	s.want("a", 200_000, 1000, 1)
	ticks := 0
	for s.now = 61 * time.Second; ; s.now += time.Second {
		if at, ok := s.table.Next(); !ok || at > s.now {
			break
		}
		s.table.Expire(s.now)
		if ticks++; ticks > 20 {
			t.Fatalf("%d rows are left", s.table.sets[0].fill())
		}
	}
	if set := s.table.sets[0]; set.fill() != 1000 || set.old != nil || ticks < 3 {
		t.Errorf("%d rows after %d ticks", set.fill(), ticks)
	}
}

func TestMemory(t *testing.T) {
	for _, n := range []int64{5_000_000, 50_000_000, MaxEntries} {
		if got := float64(Memory(n)) / float64(n); got > 33 || got < 31 {
			t.Errorf("%d claims take %.2f bytes each", n, got)
		}
	}
	s := newSet("a", [8]byte{}, Terms{time.Minute, 300_000}, 0)
	rows := make([]byte, 0, 500_000*rowSize)
	for _, r := range distinct(0, 500_000, 1) {
		rows = append(rows, r[:]...)
	}
	s.claim(0, rows, nil)
	for s.old != nil {
		s.drain(1)
	}
	if got, most := s.bytes(), Memory(300_000)+2*chunkRows*rowSize; got > most || s.index.limit != 300_000 {
		t.Errorf("a full set takes %d bytes, Memory says %d", got, most)
	}
}
