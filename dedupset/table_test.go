package dedupset

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is a table that is told commands.

type script struct {
	*testing.T
	table Table
	now   time.Duration
}

// distinct are n rows of contents from first on, of the record by.

func distinct(first, n int, by byte) [][rowSize]byte {
	out := make([][rowSize]byte, n)
	for i := range out {
		c := spread(uint64(first + i))
		copy(out[i][:], c[:])
		out[i][tailAt] = by
	}
	return out
}

func (s *script) claim(stream string, rows [][rowSize]byte) ([]Held, Code) {
	s.Helper()
	cmd, err := Claim(stream, [8]byte{}, rows)
	if err != nil {
		s.Fatal(err)
	}
	held, code, err := ParseReply(s.table.Apply(s.now, cmd), len(rows))
	if err != nil {
		s.Fatal(err)
	}
	return held, code
}

// want claims n contents from first on for a record, and wants the named ones to be held, by the record 1.

func (s *script) want(stream string, first, n int, by byte, rows ...int) {
	s.Helper()
	held, code := s.claim(stream, distinct(first, n, by))
	var got []int
	for _, h := range held {
		got = append(got, h.Row)
		if h.By != [8]byte{1} {
			s.Errorf("row %d is held by %x", h.Row, h.By)
		}
	}
	if code != OK || !slices.Equal(got, rows) {
		s.Errorf("held are %v, code %v, want %v", got, code, rows)
	}
}

func (s *script) declare(stream string, window time.Duration, entries int64) {
	s.Helper()
	if _, _, code, err := ParseDeclared(s.table.Apply(s.now, Declare(stream, [8]byte{}, window, entries))); code != OK || err != nil {
		s.Fatal(code, err)
	}
}

func TestAClaimIsHeldByTheFirst(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Minute, 1000)
	s.want("a", 0, 3, 1)
	s.want("a", 0, 3, 1) // a retry
	s.want("a", 1, 4, 2, 0, 1)
	held, _ := s.claim("a", append(distinct(10, 1, 1), distinct(10, 2, 7)...))
	if len(held) != 1 || held[0] != (Held{Row: 1, By: [8]byte{1}}) {
		t.Errorf("in one claim: %v", held)
	}
}

// TestRetriesMakeNoClaimYounger: it ends with the window of the first time.

func TestRetriesMakeNoClaimYounger(t *testing.T) {
	s := &script{T: t}
	s.declare("a", 256*time.Second, 1000)
	s.want("a", 0, 1, 1)
	s.now = 256 * time.Second
	s.want("a", 0, 1, 1)
	s.want("a", 0, 1, 2, 0) // a window later it is still known
	s.now += time.Second - 1
	s.want("a", 0, 1, 2, 0)
	s.now++
	s.want("a", 0, 1, 2) // and a 256th of it later no more
}

// TestClaimsOfOneTimeExpireTogether: those of a 256th of the window, its end not included.

func TestClaimsOfOneTimeExpireTogether(t *testing.T) {
	s := &script{T: t}
	s.declare("a", 256*time.Second, 1000)
	for i, at := range []time.Duration{0, time.Second - 1, time.Second, 2*time.Second - 1, 2 * time.Second} {
		s.now = at
		s.want("a", i, 1, 1)
	}
	f := func(at time.Duration, known int64) {
		t.Helper()
		s.table.Expire(at)
		if got := s.table.Stats(at)[0].Entries; got != known {
			t.Errorf("at %v %d are known", at, got)
		}
	}
	f(257*time.Second-1, 5)
	f(257*time.Second, 3)
	f(258*time.Second-1, 3)
	f(258*time.Second, 1)
	f(259*time.Second, 0)
}

func TestStreamsNeverSeeEachOther(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Minute, 1000)
	s.declare("b", time.Minute, 1000)
	s.want("a", 0, 50, 1)
	s.want("b", 0, 50, 2)
	s.want("a", 0, 2, 3, 0, 1)
	if held, _ := s.claim("b", distinct(0, 1, 3)); len(held) != 1 || held[0].By != [8]byte{2} {
		t.Error(held)
	}
}

func TestTheCapLetsGoOfTheOldest(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Hour, 1000)
	for i := range 15 {
		s.now = time.Duration(1+i) * time.Minute
		s.want("a", i*100, 100, 1)
	}
	got := s.table.Stats(s.now)[0]
	if got.Entries != 1000 || got.Evicted != 500 || got.Window != time.Hour || got.Held != 10*time.Minute-time.Hour/grain {
		t.Errorf("%+v", got)
	}
	s.want("a", 500, 3, 2, 0, 1, 2)
	s.want("a", 499, 1, 2)
	s.now = 3 * time.Hour
	s.table.Expire(s.now)
	s.declare("a", time.Hour, 1000)
	if got := s.table.Stats(s.now)[0]; got.Held != time.Hour || got.Entries != 0 {
		t.Errorf("%+v", got)
	}
}

// TestWhatTheTableTakes: terms beyond the limits are taken as the nearest that are allowed; commands that make no sense are answered.

func TestWhatTheTableTakes(t *testing.T) {
	f := func(window time.Duration, entries int64, want Terms) {
		t.Helper()
		var table Table
		got, before, code, err := ParseDeclared(table.Apply(0, Declare("a", [8]byte{}, window, entries)))
		if got != want || before != (Terms{}) || code != OK || err != nil || table.sets[0].terms != want {
			t.Errorf("%v, %d: %v, %v, %v, %v", window, entries, got, before, code, err)
		}
	}
	f(0, 0, Terms{MinWindow, MinEntries})
	f(-1, -1, Terms{MinWindow, MinEntries})
	f(time.Minute, 5000, Terms{time.Minute, 5000})
	f(1<<62, 1<<62, Terms{MaxWindow, MaxEntries})
	g := func(cmd []byte, want Code) {
		t.Helper()
		var table Table
		table.Apply(0, Declare("a", [8]byte{}, time.Minute, 1000))
		if _, code, err := ParseReply(table.Apply(0, cmd), 1); code != want || err != nil {
			t.Errorf("%x: %v, %v", cmd, code, err)
		}
	}
	known, _ := Claim("a", [8]byte{}, [][rowSize]byte{{}})
	unknown, _ := Claim("b", [8]byte{}, nil)
	foreign, _ := Claim("a", [8]byte{1}, nil)
	g(known, OK)
	g(unknown, Undeclared)
	g(foreign, Undeclared)
	g(nil, Malformed)
	g(known[:len(known)-1], Malformed)
	g(append([]byte{2}, known[1:]...), Malformed) // a later format
	g(append([]byte{format, 3}, known[2:]...), Malformed)
	g(Declare("", [8]byte{}, time.Minute, 1000), Malformed)
	g(Declare(strings.Repeat("a", MaxStream+1), [8]byte{}, time.Minute, 1000), Malformed)
	g(append(Declare("a", [8]byte{}, time.Minute, 1000), 0), Malformed)
}

// TestClaimsFitIntoAnEntry: the greatest claim has the greatest command, less than a row.

func TestClaimsFitIntoAnEntry(t *testing.T) {
	for _, stream := range []string{"a", strings.Repeat("a", MaxStream)} {
		rows := make([][rowSize]byte, MaxRows(stream)+1)
		cmd, err := Claim(stream, [8]byte{}, rows[1:])
		if err != nil || len(cmd) > maxCommand || len(cmd)+rowSize <= maxCommand {
			t.Errorf("%d rows are %d bytes: %v", len(rows)-1, len(cmd), err)
		}
		if _, err := Claim(stream, [8]byte{}, rows); err == nil {
			t.Errorf("%d rows are taken", len(rows))
		}
	}
	if n := MaxRows(strings.Repeat("a", MaxStream+1)); n != 0 {
		t.Errorf("%d rows of a stream that cannot be", n)
	}
}

func TestRepliesAreRead(t *testing.T) {
	f := func(reply []byte, rows int, want []Held, code Code, good bool) {
		t.Helper()
		held, got, err := ParseReply(reply, rows)
		if !slices.Equal(held, want) || got != code || (err == nil) != good {
			t.Errorf("%x: %v, %v, %v", reply, held, got, err)
		}
	}
	two := appendHeld(appendHeld([]byte{0}, 1, make([]byte, 8)), 258, []byte("12345678"))
	f(two, 259, []Held{{Row: 1}, {Row: 258, By: [8]byte([]byte("12345678"))}}, OK, true)
	f(two, 258, nil, OK, false)
	f(two[:len(two)-1], 300, nil, OK, false)
	f(appendHeld(two, 258, make([]byte, 8)), 300, nil, OK, false)
	f([]byte{1}, 300, nil, Undeclared, true)
	f([]byte{9}, 300, nil, 9, true)
	f(nil, 300, nil, OK, false)
}

// TestAKeyEmptiesTheSet: what was hashed under another key means nothing.

func TestAKeyEmptiesTheSet(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Minute, 1000)
	s.want("a", 0, 10, 1)
	_, before, _, _ := ParseDeclared(s.table.Apply(0, Declare("a", [8]byte{1}, time.Minute, 1000)))
	if got := s.table.Stats(0)[0]; got.Entries != 0 || got.Claimed != 0 || before != (Terms{}) {
		t.Errorf("%+v, before %v", got, before)
	}
	if _, code := s.claim("a", distinct(0, 1, 1)); code != Undeclared {
		t.Error(code)
	}
}

// TestSetsThatNobodyUsesGo: after an hour without a claim, or a window, once they are empty.

func TestSetsThatNobodyUsesGo(t *testing.T) {
	f := func(window, claimed time.Duration, want time.Duration) {
		t.Helper()
		s := &script{T: t}
		s.declare("a", window, 1000)
		s.now = claimed
		s.want("a", 0, 10, 1)
		for at := s.now; ; {
			next, ok := s.table.Next()
			if !ok {
				if at != want {
					t.Errorf("window %v: gone at %v", window, at)
				}
				return
			}
			if next <= at {
				t.Fatalf("nothing happens at %v", next)
			}
			at = next
			s.table.Expire(at)
		}
	}
	f(time.Minute, 10*time.Minute, 70*time.Minute)
	f(2*time.Hour, time.Hour, 3*time.Hour+2*time.Hour/grain)
	s := &script{T: t}
	for i := range MaxSets {
		s.declare(fmt.Sprint("s", i), time.Minute, 1000)
	}
	if reply := s.table.Apply(0, Declare("t", [8]byte{}, time.Minute, 1000)); Code(reply[0]) != Full {
		t.Errorf("%x", reply)
	}
	s.now = time.Hour
	s.declare("t", time.Minute, 1000)
}

// TestManyWindowsShareMarks: a window that is made longer again and again keeps the marks of shorter ones, but not more than there may be.

func TestManyWindowsShareMarks(t *testing.T) {
	s := &script{T: t}
	s.declare("a", MinWindow, 10_000)
	n := 0
	for window := MinWindow; window <= MaxWindow; window *= 2 {
		s.declare("a", window, 10_000)
		for range grain / 2 { // half a window: what was claimed in shorter ones stays
			s.want("a", n, 1, 1)
			s.now += window / grain
			n++
		}
	}
	set := s.table.sets[0]
	if len(set.marks) != maxMarks || set.known() != int64(n) {
		t.Errorf("%d marks for %d claims of %d", len(set.marks), set.known(), n)
	}
	s.want("a", 0, 1, 2, 0)
	if err := new(Table).Restore(version, bytes.NewReader(section(t, &s.table))); err != nil {
		t.Fatal(err)
	}
	s.now += 2 * MaxWindow
	s.table.Expire(s.now)
	if len(s.table.sets) != 0 {
		t.Errorf("%+v", s.table.Stats(s.now))
	}
}

// TestTheIndexFollows: it grows in steps up to its cap while claims go on, and a set whose claims have all expired is small again.

// TestDeclaredAnewWhileMoving: a small cap and a large one again, while rows move, leave nothing that does not fit.

// TestTidyEndsByItself: what has expired is given up though nobody claims any more.

// TestApplyOfASetTakesNoHeap: but for a chunk and a mark now and then.

func TestApplyOfASetTakesNoHeap(t *testing.T) {
	s := newSet("a", [8]byte{}, Terms{time.Minute, 2000}, 0)
	var buf []byte
	for _, r := range distinct(0, 1000, 1) {
		buf = append(buf, r[:]...)
	}
	reply := make([]byte, 0, 64<<10)
	n := byte(0)
	if got := testing.AllocsPerRun(60, func() {
		n++
		for b := buf; len(b) > 0; b = b[rowSize:] {
			b[15] = n
		}
		s.expire(time.Duration(n) * time.Second)
		s.claim(time.Duration(n)*time.Second, buf, reply)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
	if s.claimed != 61_000 || s.evicted != 59_000 {
		t.Errorf("%d claimed, %d evicted", s.claimed, s.evicted)
	}
}

// TestPinnedChunksAreLeftAlone writes snapshots beside claims that recycle chunks, in memory that the race detector sees.

// iotestWriter takes what it is given in pieces, and lets others run between.

// TestASnapshotThatFailsUnpins: its chunks come back to use.

// TestSectionsAreValidated changes what a section says: each change is refused, and the table stays as it was.

func TestStatsAreAnswered(t *testing.T) {
	table := lived(t)
	got, err := ParseStats(table.Query(nil))
	if want := table.Stats(0); err != nil || !slices.Equal(got, want) || len(got) != 2 || got[0].Twins != 2 {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	if _, err := ParseStats(table.Query(nil)[:70]); err == nil {
		t.Error("half an answer is read")
	}
}

// TestMemory: what validate prints is what a full set takes, and at most 33 bytes a claim where that matters.
