package lease

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// naive is what a table does, said as plainly as possible: lists, and walks through them.
type naive struct {
	epoch, count uint64
	live         []*naiveRow // in order of coming
	past         []naivePast // that held
	refused      []naivePast // that never did
}

type naiveRow struct {
	name, holder string
	request      Request
	ttl, until   time.Duration
	token        uint64
}

type naivePast struct {
	request Request
	token   uint64
	done    bool
}

func (m *naive) expire(now time.Duration) {
	var over []*naiveRow
	for i, r := range m.live {
		if r.until <= now {
			over = append(over, m.live[i])
		}
	}
	slices.SortStableFunc(over, func(a, b *naiveRow) int { return int(a.until - b.until) })
	for _, r := range over {
		if r.token != 0 {
			m.end(r, false)
		} else {
			m.drop(r)
		}
	}
}

func (m *naive) drop(r *naiveRow) {
	m.live = slices.DeleteFunc(m.live, func(o *naiveRow) bool { return o == r })
}

func (m *naive) end(r *naiveRow, done bool) {
	m.note(naivePast{r.request, r.token, done})
	m.drop(r)
}

func (m *naive) over(r Request) bool {
	is := func(o naivePast) bool { return o.request == r }
	return slices.ContainsFunc(m.past, is) || slices.ContainsFunc(m.refused, is)
}

func (m *naive) note(p naivePast) {
	list := &m.past
	if p.token == 0 {
		list = &m.refused
	}
	if !m.over(p.request) {
		*list = append(*list, p)
		*list = (*list)[max(0, len(*list)-pastSize):]
	}
}

func (m *naive) attempt(r Request) *naiveRow {
	for _, o := range m.live {
		if o.request == r {
			return o
		}
	}
	return nil
}

// of are the attempts at a name: its holder, if any, comes first.
func (m *naive) of(name string) (out []*naiveRow) {
	for _, o := range m.live {
		if o.name == name {
			out = append(out, o)
		}
	}
	return out
}

func (m *naive) say(now time.Duration, f command) string {
	m.expire(now)
	switch f.op {
	case opEpoch:
		if f.epoch < m.epoch {
			return "stale"
		}
		if f.epoch > m.epoch {
			m.epoch, m.count = f.epoch, 0
		}
		return "done"
	case opAcquire:
		return m.acquire(now, f)
	case opRenew:
		out := ""
		for _, token := range f.tokens {
			word := "lost"
			for _, r := range m.live {
				if r.token == token && token != 0 {
					r.until, word = max(r.until, now+r.ttl), "kept"
				}
			}
			out += " " + word
		}
		return out[1:]
	case opRelease:
		return m.release(f)
	}
	r := m.attempt(f.request)
	switch {
	case r == nil:
		m.note(naivePast{request: f.request})
	case r.name != f.name:
		return "wrong"
	default:
		m.end(r, false)
	}
	return "done"
}

func (m *naive) acquire(now time.Duration, f command) string {
	if m.over(f.request) {
		return "over"
	}
	r, others := m.attempt(f.request), m.of(f.name)
	switch {
	case r != nil && (r.name != f.name || r.ttl != f.ttl):
		return "wrong"
	case r == nil && m.epoch == 0:
		return "no epoch"
	case r == nil && len(others) > 0 && !f.wait:
		m.note(naivePast{request: f.request})
		return fmt.Sprintf("taken %s %s", showToken(others[0].token), others[0].holder)
	case r == nil:
		r = &naiveRow{name: f.name, holder: f.holder, request: f.request, ttl: f.ttl}
		m.live, others = append(m.live, r), append(others, r)
	}
	r.until = max(r.until, now+r.ttl)
	if others[0] == r && r.token == 0 {
		m.count++
		r.token = m.epoch<<tokenBits | m.count
	}
	if r.token != 0 {
		return "granted " + showToken(r.token)
	}
	return fmt.Sprintf("waiting %d", slices.Index(others, r))
}

func (m *naive) release(f command) string {
	for _, r := range m.live {
		if r.token == f.token && r.name == f.name && f.token != 0 {
			m.end(r, f.done)
			return "done"
		}
	}
	for _, p := range m.past {
		if p.token == f.token && f.token != 0 && (p.done || !f.done) {
			return "done"
		}
	}
	return "stale"
}

// story makes random commands that are likely to mean something.
type story struct {
	*rand.Rand
	now      time.Duration
	requests int // so many so far
	tokens   []uint64
}

func (s *story) name() string { return fmt.Sprintf("w/%d", s.IntN(6)) }

func (s *story) request() (r Request) {
	n := s.requests - s.IntN(12)
	if s.IntN(3) == 0 {
		s.requests++
		n = s.requests
	}
	copy(r[:], fmt.Sprint(n))
	return r
}

func (s *story) token() uint64 {
	if len(s.tokens) == 0 || s.IntN(20) == 0 {
		return s.Uint64N(4)<<tokenBits | s.Uint64N(50)
	}
	return s.tokens[max(0, len(s.tokens)-1-s.IntN(12))]
}

func (s *story) command() []byte {
	if s.IntN(3) > 0 {
		s.now += time.Duration(s.IntN(1500)) * time.Millisecond
	}
	switch n := s.IntN(100); {
	case n < 55:
		r := s.request()
		return acquireCommand(s.name(), fmt.Sprintf("n%d", r[0]), r, time.Duration(1+s.IntN(2))*5*time.Second, s.IntN(3) > 0)
	case n < 75:
		var tokens []uint64
		for range 1 + s.IntN(4) {
			tokens = append(tokens, s.token())
		}
		return renewCommand(tokens)
	case n < 92:
		return releaseCommand(s.name(), s.token(), s.IntN(2) == 0)
	case n < 98:
		return withdrawCommand(s.name(), s.request())
	default:
		return Epoch(1 + s.Uint64N(3+uint64(s.now/time.Hour)))
	}
}

func (s *story) heard(reply []byte) {
	if reply[0] == codeGranted {
		r := reader{rest: reply[1:]}
		s.tokens = append(s.tokens, r.uint64())
	}
}

func bytesOf(t testing.TB, write func(w io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func section(t testing.TB, table *Table) []byte {
	t.Helper()
	return bytesOf(t, table.Snapshot())
}

func restored(t testing.TB, data []byte) *Table {
	t.Helper()
	var out Table
	if err := out.Restore(version, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestModel tells a table and two replicas of it long stories, and holds them against the naive model: the first replica is loaded from
// a snapshot now and then, the second applies the same commands once more afterwards. A snapshot that was pinned is written later.
func TestModel(t *testing.T) {
	steps := 20_000
	if testing.Short() {
		steps = 5_000
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { tell(t, seed, steps) })
	}
}

func tell(t *testing.T, seed uint64, steps int) {
	s := &story{Rand: rand.New(rand.NewPCG(seed, 1))}
	var table, second Table
	loaded := &Table{}
	model := &naive{}
	var pinned func(io.Writer) error
	var pinnedWant []byte
	for n := range steps {
		cmd := s.command()
		c, ok := parseCommand(cmd)
		if !ok {
			t.Fatalf("step %d: %x is no command", n, cmd)
		}
		reply := table.Apply(s.now, cmd)
		s.heard(reply)
		if want := model.say(s.now, c); show(reply) != want {
			t.Fatalf("step %d, %v: %+v\n got %s\nwant %s", n, s.now, c, show(reply), want)
		}
		for _, replica := range []*Table{loaded, &second} {
			if other := replica.Apply(s.now, cmd); !bytes.Equal(other, reply) {
				t.Fatalf("step %d: a replica says %s, not %s", n, show(other), show(reply))
			}
		}
		if reply[0] == codeGranted {
			grows(t, n, s.tokens)
		}
		checkIndexes(t, n, &table, model)
		if n%97 == 0 {
			data := section(t, &table)
			if !bytes.Equal(data, section(t, loaded)) || !bytes.Equal(data, section(t, &second)) {
				t.Fatalf("step %d: replicas differ", n)
			}
			loaded = restored(t, data)
			if pinned != nil {
				if got := bytesOf(t, pinned); !bytes.Equal(got, pinnedWant) {
					t.Fatalf("step %d: a pinned snapshot has changed", n)
				}
			}
			pinned, pinnedWant = table.Snapshot(), data
		}
	}
}

// grows fails where the latest of the tokens is neither one that was heard before nor greater than all of those.
func grows(t *testing.T, n int, tokens []uint64) {
	t.Helper()
	k := len(tokens) - 1
	if before := tokens[:k]; k > 0 && tokens[k] <= slices.Max(before) && !slices.Contains(before, tokens[k]) {
		t.Fatalf("step %d: token %s is new and not the greatest", n, showToken(tokens[k]))
	}
}

// checkIndexes compares what the table finds through its indexes with the model's lists.
func checkIndexes(t *testing.T, n int, table *Table, model *naive) {
	t.Helper()
	held, next := 0, time.Duration(1<<62)
	for _, r := range model.live {
		next = min(next, r.until)
		if r.token != 0 {
			held++
		}
	}
	at, ok := table.Next()
	if table.Len() != held || table.rows.len() != len(model.live) || ok != (len(model.live) > 0) || ok && at != next {
		t.Fatalf("step %d: %d held, %d rows, next %v; want %d, %d, %v", n, table.Len(), table.rows.len(), at, held, len(model.live), next)
	}
}
