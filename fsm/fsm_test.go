package fsm

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/dedupset"
	"github.com/stream-arrow/twgd/lease"
	"github.com/stream-arrow/twgd/tuning"
)

var _ raft.BatchingFSM = (*FSM)(nil)

// TestATableIsOneLine: what joins a table is its field in Tables; everything else follows from it. The names and routes of all tables
// are reserved and never change.
func TestATableIsOneLine(t *testing.T) {
	want := map[string]byte{"roster": 1, "leases": 2, "tuning": 3, "dedup": 4}
	for _, r := range reserved {
		if want[r.name] != r.route {
			t.Errorf("%s has route %d", r.name, r.route)
		}
		delete(want, r.name)
	}
	if len(want) > 0 {
		t.Errorf("not reserved: %v", want)
	}
	tables := &Tables{}
	sections := bind(tables)
	v := reflect.ValueOf(tables).Elem()
	for i := range v.NumField() {
		joined := slices.ContainsFunc(sections, func(s section) bool { return s.Section == v.Field(i).Interface() })
		if v.Field(i).IsNil() || !joined {
			t.Errorf("%s is not joined", v.Type().Field(i).Name)
		}
	}
	if len(sections) != v.NumField() {
		t.Errorf("%d sections, %d fields", len(sections), v.NumField())
	}
}

func TestEntriesReachTheirTables(t *testing.T) {
	s := filled(t)
	s.f.Read(func(tables *Tables, now time.Duration, index uint64) {
		if tables.Leases.Len() != 50 || tables.Tuning.All()[tuning.Size] != "3" || now != 3*time.Second || index != s.index {
			t.Errorf("%d leases, %v, %v, index %d", tables.Leases.Len(), tables.Tuning.All(), now, index)
		}
	})
	if reply, err := s.f.Query(RouteTuning, nil); err != nil || len(reply) < 10 {
		t.Errorf("a question: %x, %v", reply, err)
	}
	next := func(want time.Duration) {
		t.Helper()
		if at, ok := s.f.Next(); !ok || at != want {
			t.Errorf("next at %v, %v, want %v", at, ok, want)
		}
		s.apply(Tick(want))
	}
	next(23*time.Second + 20*time.Second/256) // the claim
	next(62 * time.Second)                    // the leases
	next(3*time.Second + time.Hour)           // the set, which nobody uses
	s.f.Read(func(tables *Tables, _ time.Duration, _ uint64) {
		if tables.Leases.Len() != 0 {
			t.Errorf("%d leases outlive a tick", tables.Leases.Len())
		}
	})
	if _, ok := s.f.Next(); ok {
		t.Error("something can still expire")
	}
}

func TestEntriesThatReachNoTable(t *testing.T) {
	f := func(data []byte, want error, now time.Duration) {
		t.Helper()
		s := newScript(t)
		before, _ := s.f.Sum()
		err, _ := s.apply(data).(error)
		if after, _ := s.f.Sum(); !errors.Is(err, want) || s.now() != now || after == before {
			t.Errorf("%x: %v, time %v", data, err, s.now())
		}
		if reply := s.body(s.entry(RouteTuning, now, tuning.Set("k", "v"))); tuning.Answer(reply) != nil {
			t.Errorf("%x: nothing goes on afterwards: %x", data, reply)
		}
	}
	unknown, _ := Entry(9, time.Minute, []byte("claim"))
	f(unknown, ErrRoute, time.Minute)
	f(nil, ErrEntry, 0)
	f([]byte{1, 2, 3}, ErrEntry, 0)
	f(append([]byte{2}, unknown[1:]...), ErrEntry, 0) // a later format
	f(Tick(-1), ErrEntry, 0)
	f(Tick(maxTime+1), ErrEntry, 0)
	f(append(Tick(time.Second), 1), ErrEntry, 0)
	if _, err := New().Query(9, nil); !errors.Is(err, ErrRoute) {
		t.Error(err)
	}
}

// TestTrap11EntriesHaveALimit: one byte too many is refused before it reaches the log, and by who applies it.
func TestTrap11EntriesHaveALimit(t *testing.T) {
	most := make([]byte, MaxEntry-headSize)
	data, err := Entry(RouteLease, 0, most)
	if err != nil || len(data) != 256<<10 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if _, err := Entry(RouteLease, 0, append(most, 0)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if err, _ := newScript(t).apply(append(data, 0)).(error); !errors.Is(err, ErrEntry) {
		t.Error(err)
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	s := newScript(t)
	f := func(at, want time.Duration) {
		t.Helper()
		if s.apply(Tick(at)); s.now() != want {
			t.Errorf("a tick at %v: %v, want %v", at, s.now(), want)
		}
	}
	f(10, 10)
	f(5, 10)
	f(10, 10)
	f(11, 11)
}

// TestCaseK16LeaderPaused: a leader is paused for ten seconds; another takes office and renews; the first one's proposals, stamped
// before, arrive late or never. No lease ends early, what is stale is refused, and tokens only grow.
func TestCaseK16LeaderPaused(t *testing.T) {
	s := newScript(t)
	real := time.Duration(0) // monotonic, the same for all
	clock := func() time.Duration { return real }
	first := NewClock(0, clock)
	s.entry(RouteLease, first.Now(), lease.Epoch(1))
	s.entry(RouteLease, first.Now(), acquire("w", 1, 10*time.Second))
	one := s.holder("w").Token
	real += 2 * time.Second
	stamped := first.Now() // and then it is paused
	real += 2 * time.Second
	second := NewClock(s.now(), clock)
	for range 10 {
		real += 3 * time.Second
		s.entry(RouteLease, second.Now(), renew(one))
		if s.holder("w").Token != one {
			t.Fatalf("%v: ended early, at cluster time %v", real, s.now())
		}
	}
	s.entry(RouteLease, stamped, renew(one)) // late, but in the log: it takes nothing back
	if at, _ := s.f.Next(); at != second.Now()+10*time.Second {
		t.Errorf("the lease ends at %v, want %v", at, second.Now()+10*time.Second)
	}
	real += 10 * time.Second
	s.entry(RouteLease, second.Now(), acquire("w", 2, 10*time.Second))
	two := s.holder("w").Token
	if two <= one {
		t.Errorf("token %d after %d", two, one)
	}
	if reply := s.body(s.entry(RouteLease, stamped, done("w", one))); reply[0] != 5 {
		t.Errorf("a stale completion is answered with %x", reply)
	}
	if s.holder("w").Token != two {
		t.Errorf("%+v", s.holder("w"))
	}
}

func TestClock(t *testing.T) {
	now := time.Hour
	c := NewClock(time.Minute, func() time.Duration { return now })
	f := func(at, want time.Duration) {
		t.Helper()
		now = at
		if got := c.Now(); got != want {
			t.Errorf("at %v: %v, want %v", at, got, want)
		}
	}
	f(time.Hour, time.Minute)
	f(time.Hour+time.Second, time.Minute+time.Second)
	f(time.Hour, time.Minute+time.Second) // a clock that goes back is not followed
	f(time.Hour+2*time.Second, time.Minute+2*time.Second)
}

// TestCaseK24NothingIsOwedToTheWall: leadership moves again and again; a lease of 60 s lives 60 s of leaders' time. What comes on top
// is the time without a leader, and of each leader at most what it led since its last tick.
func TestCaseK24NothingIsOwedToTheWall(t *testing.T) {
	s := newScript(t)
	real := time.Duration(0)
	clock := func() time.Duration { return real }
	c := NewClock(0, clock)
	s.entry(RouteLease, c.Now(), lease.Epoch(1))
	s.entry(RouteLease, c.Now(), acquire("w", 1, time.Minute))
	leaderless, tick := time.Duration(0), time.Second
	for real < 3*time.Minute {
		if real%(20*time.Second) == 0 { // nobody leads for five seconds
			real += 5 * time.Second
			leaderless += 5*time.Second + tick
			c = NewClock(s.now(), clock)
		}
		s.apply(Tick(c.Now()))
		if !s.holder("w").Held {
			break
		}
		real += tick
	}
	if real < time.Minute || real > time.Minute+leaderless+tick {
		t.Errorf("lived %v, of which %v without a leader", real, leaderless)
	}
}

// TestReplicasAreEqual: three machines apply the same entries, one by one, in batches, and from a snapshot on. At each index their sums
// are the same, and so are the bytes of their snapshots; one entry that differs is seen at once.
func TestReplicasAreEqual(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := newScript(t)
	s.entry(RouteLease, 0, lease.Epoch(1))
	s.entry(RouteDedup, 0, dedupset.Declare("s", [8]byte{}, time.Minute, 1000))
	batched, loaded, wrong := New(), New(), New()
	for n := range 400 {
		from := len(s.log)
		for range 1 + r.IntN(5) {
			at := time.Duration(n) * time.Second / 3
			switch r.IntN(3) {
			case 0:
				s.entry(RouteLease, at, acquire(string(rune('a'+r.IntN(9))), byte(r.IntN(250)), 10*time.Second))
			case 1:
				s.entry(RouteLease, at, renew(1<<40|uint64(r.IntN(100))))
			case 2:
				s.entry(RouteDedup, at, claim(byte(r.IntN(200)), byte(r.IntN(3))))
			}
		}
		if n == 0 {
			from = 0
		}
		batched.ApplyBatch(s.log[from:])
		loaded.ApplyBatch(s.log[from:])
		wrong.ApplyBatch(s.log[from:])
		if n == 300 {
			wrong.mu.tables.Tuning.Apply(0, tuning.Set("k", "v")) // a bit that flipped somewhere
		}
		data := snapshotOf(t, s.f)
		if string(data) != string(snapshotOf(t, batched)) || string(data) != string(snapshotOf(t, loaded)) {
			t.Fatalf("round %d: snapshots differ", n)
		}
		if n%50 == 0 {
			loaded = New()
			if err := restore(loaded, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, other := range []*FSM{batched, loaded} {
		if index, same, ok := Compare(s.f.Sums(), other.Sums()); !ok || !same || index != s.index {
			t.Errorf("at %d: same %v, known %v", index, same, ok)
		}
	}
	data, _ := Entry(RouteTuning, 0, tuning.Set("k", "w"))
	for _, f := range []*FSM{batched, wrong} {
		f.Apply(&raft.Log{Index: s.index + 1, Data: data})
	}
	tampered, _ := Entry(RouteTuning, 0, tuning.Set("k", "x"))
	s.apply(tampered)
	if _, same, ok := Compare(s.f.Sums(), batched.Sums()); !ok || same {
		t.Error("another entry at the same index was not noticed")
	}
}

// TestSumsMeet: a replica that lags has a mark in common with one that is ahead.
func TestSumsMeet(t *testing.T) {
	f := func(lag int, want bool) {
		t.Helper()
		ahead, behind := newScript(t), New()
		for range 20_000 {
			ahead.apply(Tick(0))
		}
		behind.ApplyBatch(ahead.log[:len(ahead.log)-lag])
		index, same, ok := Compare(ahead.f.Sums(), behind.Sums())
		if ok != want || ok && !same {
			t.Errorf("lag %d: at %d, same %v, known %v", lag, index, same, ok)
		}
	}
	f(0, true)
	f(63, true)
	f(300, true)
	f(15_000, true)
	f(19_000, false)
}

func TestRaftsOwnEntriesAreLeftAlone(t *testing.T) {
	f := New()
	data, _ := Entry(RouteTuning, 5, tuning.Set("k", "v"))
	out := f.ApplyBatch([]*raft.Log{
		{Index: 1, Type: raft.LogConfiguration, Data: []byte("x")},
		{Index: 2, Type: raft.LogCommand, Data: data},
	})
	if index, _ := f.Sum(); len(out) != 2 || out[0] != nil || index != 2 || tuning.Answer(out[1].(Reply).Body) != nil {
		t.Errorf("%v, index %d", out, index)
	}
}

// TestAnswersAreInTheSum: replicas whose tables differ answer the same entry differently, and are found out by it.
func TestAnswersAreInTheSum(t *testing.T) {
	s := newScript(t)
	s.entry(RouteLease, 0, lease.Epoch(1))
	other := New()
	other.ApplyBatch(s.log)
	other.mu.tables.Leases.Apply(0, acquire("x", 9, time.Minute)) // as if memory had failed
	s.entry(RouteLease, 0, acquire("w", 1, time.Minute))
	other.Apply(s.log[1])
	if index, same, ok := Compare(s.f.Sums(), other.Sums()); index != 2 || same || !ok {
		t.Errorf("at %d: same %v, known %v", index, same, ok)
	}
}
