package dedupset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model says in plain words what the table does: a list of claims for each stream, and a map of them.
type model struct {
	now  time.Duration
	sets map[string]*modelSet
}

type modelSet struct {
	check                    [8]byte
	terms                    Terms
	used, lost, end, adult   time.Duration
	rows                     []modelRow
	holders                  map[[tailAt]byte][8]byte
	claimed, twins, evicteds uint64
}

// modelRow is known until its end and the window are over.
type modelRow struct {
	content    [tailAt]byte
	end, adult time.Duration // adult: it came before
}

func (m *model) move(now time.Duration) {
	m.now = max(m.now, now)
	for name, s := range m.sets {
		for len(s.rows) > 0 && s.rows[0].end+s.terms.Window <= m.now {
			s.letGo()
		}
		if len(s.rows) == 0 && s.used+max(s.terms.Window, time.Hour) <= m.now {
			delete(m.sets, name)
		}
	}
}

func (s *modelSet) letGo() {
	delete(s.holders, s.rows[0].content)
	s.rows = s.rows[1:]
}

func (s *modelSet) evict(now time.Duration) {
	s.lost = max(s.lost, min(now, s.rows[0].end))
	s.evicteds++
	s.letGo()
}

func (m *model) declare(now time.Duration, stream string, check [8]byte, terms Terms) (before Terms) {
	m.move(now)
	s := m.sets[stream]
	if s == nil || s.check != check {
		s = &modelSet{check: check, terms: terms, holders: map[[tailAt]byte][8]byte{}}
		m.sets[stream] = s
	} else if before = s.terms; before != terms {
		s.redeclare(m.now, terms)
	}
	s.used = m.now
	return before
}

func (s *modelSet) redeclare(now time.Duration, terms Terms) {
	s.terms = terms
	last := s.end
	s.end = min(s.end, now+terms.Window/256)
	for i := len(s.rows) - 1; i >= 0 && s.rows[i].end == last; i-- {
		s.rows[i].end = s.end
	}
	for len(s.rows) > 0 && s.rows[0].end+terms.Window <= now {
		s.letGo()
	}
	s.trim(now)
}

func (s *modelSet) trim(now time.Duration) {
	for int64(len(s.rows)) > s.terms.Entries && s.rows[0].adult+youth <= now {
		s.evict(now)
	}
}

func (m *model) claim(now time.Duration, stream string, check [8]byte, rows [][rowSize]byte) (held []Held, code Code) {
	m.move(now)
	s := m.sets[stream]
	if s == nil || s.check != check {
		return nil, Undeclared
	}
	s.used = m.now
	s.trim(m.now)
	for i, row := range rows {
		s.claimed++
		content, tail := [tailAt]byte(row[:]), [8]byte(row[tailAt:])
		holder, known := s.holders[content]
		switch {
		case !known:
			s.insert(m.now, content, tail)
		case holder != tail:
			s.twins++
			held = append(held, Held{Row: i, By: holder})
		}
	}
	return held, OK
}

func (s *modelSet) insert(now time.Duration, content [tailAt]byte, tail [8]byte) {
	if int64(len(s.rows)) >= s.terms.Entries {
		if s.rows[0].adult+youth > now {
			s.evicteds++
			s.lost = now
			return
		}
		s.evict(now)
	}
	if now >= s.adult || s.adult == 0 {
		s.adult = now + youth/8
	}
	if len(s.rows) == 0 || now >= s.end {
		s.end = now + s.terms.Window/256
	}
	s.rows = append(s.rows, modelRow{content: content, end: s.end, adult: s.adult})
	s.holders[content] = tail
}

func (m *model) stats(now time.Duration) []Stats {
	out := []Stats{}
	for name, s := range m.sets {
		held := s.terms.Window
		if s.evicteds > 0 {
			held = min(held, now-s.lost)
		}
		out = append(out, Stats{
			Stream: name, Window: s.terms.Window, Held: held, Cap: s.terms.Entries, Entries: int64(len(s.rows)),
			Claimed: s.claimed, Twins: s.twins, Evicted: s.evicteds,
		})
	}
	slices.SortFunc(out, func(a, b Stats) int { return bytes.Compare([]byte(a.Stream), []byte(b.Stream)) })
	return out
}

// world is a table, the model beside it, and a replica that is restored again and again.
type world struct {
	*testing.T
	rand           *rand.Rand
	now            time.Duration
	model          model
	table, replica *Table
	contents       func(n uint64) [tailAt]byte
	start          uint64 // where sequences begin
	pinned         []pinnedImage
}

// pinnedImage is a snapshot that has not been written, and what it has to write.
type pinnedImage struct {
	write func() []byte
	want  []byte
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{
		T: t, rand: rand.New(rand.NewPCG(seed, 1)), model: model{sets: map[string]*modelSet{}},
		table: &Table{}, replica: &Table{}, contents: spread,
	}
}

// mix makes numbers look random.
func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9)
	x = hi ^ lo ^ x
	return x * 0x94d049bb133111eb
}

// spread is a content as a keyed hash would make it.
func spread(n uint64) (out [tailAt]byte) {
	binary.LittleEndian.PutUint64(out[:], mix(n))
	binary.LittleEndian.PutUint64(out[8:], mix(n^1<<63))
	return out
}

// crowded contents share two home buckets and five tags, so that every search is long and finds many rows of its tag.
func crowded(n uint64) (out [tailAt]byte) {
	out[7] = byte(n%2) * 0x80
	out[8] = byte(n % 5)
	binary.BigEndian.PutUint32(out[9:], uint32(n))
	return out
}

func (w *world) apply(cmd []byte) []byte {
	w.Helper()
	if at, ok := w.table.Next(); ok && at <= w.now {
		w.table.Expire(w.now)
	}
	reply := w.table.Apply(w.now, cmd)
	if other := w.replica.Apply(w.now, cmd); !bytes.Equal(reply, other) {
		w.Fatalf("replicas differ: %x and %x", reply, other)
	}
	return reply
}

func (w *world) declare(stream string, check byte, terms Terms) {
	w.Helper()
	_, known := w.table.find([]byte(stream))
	before := w.model.declare(w.now, stream, [8]byte{check}, terms)
	got, had, code, err := ParseDeclared(w.apply(Declare(stream, [8]byte{check}, terms.Window, terms.Entries)))
	if got != terms || had != before || code != OK || err != nil {
		w.Fatalf("%v, %v, %v, %v; before was %v", got, had, code, err, before)
	}
	if !known && w.start > 0 {
		for _, t := range []*Table{w.table, w.replica} {
			at, _ := t.find([]byte(stream))
			t.sets[at] = newSet(stream, [8]byte{check}, terms, w.start)
			t.sets[at].used = w.now
		}
	}
}

// claim claims n contents of a universe from its place at, for two records of each.
func (w *world) claim(stream string, check byte, n int, at, universe uint64) {
	w.Helper()
	rows := make([][rowSize]byte, n)
	for i := range rows {
		c := w.contents((at + uint64(w.rand.IntN(n+n/4+1))) % universe)
		copy(rows[i][:], c[:])
		rows[i][23] = byte(w.rand.IntN(2))
	}
	cmd, err := Claim(stream, [8]byte{check}, rows)
	if err != nil {
		w.Fatal(err)
	}
	want, wantCode := w.model.claim(w.now, stream, [8]byte{check}, rows)
	held, code, err := ParseReply(w.apply(cmd), n)
	if err != nil || code != wantCode || !slices.Equal(held, want) {
		w.Fatalf("%d rows are held, code %v, %v; want %d, code %v", len(held), code, err, len(want), wantCode)
	}
}

func (w *world) check() {
	w.Helper()
	want := w.model.stats(w.now)
	got := w.table.Stats(w.now)
	for i := range got {
		got[i].Bytes = 0
	}
	if !slices.Equal(got, want) {
		w.Fatalf("%+v\nwant %+v", got, want)
	}
	for _, s := range w.table.sets {
		if fill, most := s.fill(), s.index.limit+s.index.limit/4+group; fill > most {
			w.Fatalf("%d rows in an index for %d", fill, s.index.limit)
		}
	}
}

func (w *world) section(t *Table) []byte {
	w.Helper()
	return section(w.T, t)
}

func section(t testing.TB, table *Table) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := table.Snapshot()(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// restore makes the replica anew from a snapshot of the table.
func (w *world) restore() {
	w.Helper()
	data := w.section(w.table)
	if other := w.section(w.replica); !bytes.Equal(data, other) {
		w.Fatal("replicas write other sections")
	}
	fresh := &Table{}
	if err := fresh.Restore(version, bytes.NewReader(data)); err != nil {
		w.Fatal(err)
	}
	if again := w.section(fresh); !bytes.Equal(data, again) {
		w.Fatal("what was restored writes another section")
	}
	w.table, w.replica = w.replica, fresh
}

// pin makes a snapshot that is written later.
func (w *world) pin() {
	write := w.table.Snapshot()
	w.pinned = append(w.pinned, pinnedImage{want: w.section(w.table), write: func() []byte {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			w.Error(err)
		}
		return out.Bytes()
	}})
}

func (w *world) unpin() {
	w.Helper()
	for _, p := range w.pinned {
		if !bytes.Equal(p.write(), p.want) {
			w.Error("a snapshot has changed since it was made")
		}
	}
	w.pinned = nil
}

func (w *world) step(n int, terms func() Terms, universe uint64, rows int) {
	w.Helper()
	stream := fmt.Sprint("s", w.rand.IntN(2))
	check := byte(0)
	if w.rand.IntN(200) == 0 {
		check = 1
	}
	w.now += time.Duration(w.rand.Int64N(int64(20 * time.Millisecond)))
	switch k := w.rand.IntN(100); {
	case k < 4:
		w.declare(stream, check, terms())
	case k < 6:
		w.restore()
	case k < 8:
		w.pin()
	case k < 9:
		w.unpin()
	case k < 10 && w.rand.IntN(4) == 0:
		w.now += time.Duration(w.rand.Int64N(int64(5 * time.Second)))
	case k < 11 && w.rand.IntN(40) == 0:
		w.now += 2 * time.Hour
	default:
		w.claim(stream, check, w.rand.IntN(rows), uint64(n)*uint64(rows)/4, universe)
	}
	w.check()
}

func (w *world) run(steps int, terms func() Terms, universe uint64, rows int) {
	w.Helper()
	for n := range steps {
		w.step(n, terms, universe, rows)
	}
	w.unpin()
	w.restore()
}

// TestModel holds the table against the model in random lives: small caps and large ones, which the index has to grow for.
func TestModel(t *testing.T) {
	for seed := range uint64(4) {
		w := newWorld(t, seed)
		small := func() Terms {
			return Terms{Window: time.Duration(1+w.rand.IntN(8)) * time.Second, Entries: 1000 + w.rand.Int64N(2000)}
		}
		w.run(400, small, 8000, 400)
	}
	for seed := range uint64(2) {
		w := newWorld(t, seed)
		large := func() Terms {
			return Terms{Window: time.Duration(2+w.rand.IntN(20)) * time.Second, Entries: 1000 + w.rand.Int64N(int64(1)<<(10+w.rand.IntN(9)))}
		}
		w.run(200, large, 1<<19, 6000)
	}
}

// TestModelWrap begins sequences so late that the low 32 bits of rows' places go past their end.
func TestModelWrap(t *testing.T) {
	for seed, before := range []uint64{100, 1500, 5000, chunkRows + 77, 70_000} {
		w := newWorld(t, uint64(seed))
		w.start = 1<<32 - before
		terms := func() Terms { return Terms{Window: 4 * time.Second, Entries: 1000 + w.rand.Int64N(40_000)} }
		w.run(200, terms, 100_000, 2000)
	}
}

// TestModelCrowded makes most entries lie far from home.
func TestModelCrowded(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(t, seed)
		w.contents = crowded
		terms := func() Terms { return Terms{Window: 2 * time.Second, Entries: 1000 + w.rand.Int64N(500)} }
		w.run(300, terms, 4000, 200)
	}
}
