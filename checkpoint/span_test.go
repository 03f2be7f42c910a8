package checkpoint

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// bitmap is a SpanSet as one would write it without thinking: offsets 0 to 63, a bit each.
type bitmap uint64

func (m bitmap) has(o int64) bool { return o >= 0 && o < 64 && m>>o&1 == 1 }

func (m *bitmap) add(s Span) {
	for o := max(0, s.From); o < min(64, s.To); o++ {
		*m |= 1 << o
	}
}

func bitsOf(spans []Span) (m bitmap) {
	for _, s := range spans {
		m.add(s)
	}
	return m
}

// wellFormed checks the invariant of a SpanSet.
func wellFormed(t *testing.T, spans []Span) {
	t.Helper()
	for i, s := range spans {
		if s.Empty() || i > 0 && spans[i-1].To >= s.From {
			t.Fatalf("not in order, or touching, or empty: %v", spans)
		}
	}
}

func TestSpanSetAgainstABitmap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	span := func() Span {
		from := rng.Int64N(64)
		return Span{from, from - 2 + rng.Int64N(1+rng.Int64N(20))}.clip()
	}
	for range 20_000 {
		var s, other SpanSet
		var m, n bitmap
		for range rng.IntN(12) {
			a, b := span(), span()
			s.Add(a)
			m.add(a)
			other.Add(b)
			n.add(b)
		}
		checkSet(t, s, m, span())
		u := s.Clone()
		u.Union(other)
		checkSet(t, u, m|n, span())
		checkSet(t, s, m, span()) // the clone has left it alone
		r, gone := s.Clone(), span()
		r.Remove(gone)
		checkSet(t, r, m&^bitsOf([]Span{gone}), span())
		checkSet(t, s, m, span())
		checkSet(t, NewSpanSet(u.Spans()...), m|n, span())
	}
}

func (s Span) clip() Span { return Span{min(64, s.From), min(64, s.To)} }

func checkSet(t *testing.T, s SpanSet, m bitmap, q Span) {
	t.Helper()
	wellFormed(t, s.Spans())
	if bitsOf(s.Spans()) != m {
		t.Fatalf("%v is not %b", s, m)
	}
	count, inside, to := int64(0), int64(0), q.From
	for o := int64(0); o < 64; o++ {
		if m.has(o) {
			count++
			if o >= q.From && o < q.To {
				inside++
			}
		}
	}
	for m.has(to) {
		to++
	}
	missing := s.Missing(q)
	wellFormed(t, missing)
	within := s.Within(q)
	wellFormed(t, within.Spans())
	switch {
	case s.Len() != count:
		t.Fatalf("%v has %d, Len says %d", s, count, s.Len())
	case s.Covers(q) != (inside == q.Len()):
		t.Fatalf("%v covers %v: %v", s, q, s.Covers(q))
	case s.Overlaps(q) != (inside > 0):
		t.Fatalf("%v overlaps %v: %v", s, q, s.Overlaps(q))
	case s.ContiguousFrom(q.From) != to:
		t.Fatalf("%v is contiguous from %d to %d, not %d", s, q.From, to, s.ContiguousFrom(q.From))
	case bitsOf(missing)&m != 0 || bitsOf(missing)|bitsOf(within.Spans()) != bitsOf([]Span{q}):
		t.Fatalf("%v in %v misses %v and has %v", s, q, missing, within)
	case within.Len() != inside:
		t.Fatalf("%v within %v is %v", s, q, within)
	}
}

func TestSpan(t *testing.T) {
	f := func(a, b Span, overlaps bool, both Span) {
		t.Helper()
		if a.Overlaps(b) != overlaps || b.Overlaps(a) != overlaps || !both.Empty() && (a.Intersect(b) != both || b.Intersect(a) != both) {
			t.Errorf("%v and %v: %v, %v", a, b, a.Overlaps(b), a.Intersect(b))
		}
	}
	f(Span{0, 5}, Span{5, 9}, false, Span{})
	f(Span{0, 5}, Span{4, 9}, true, Span{4, 5})
	f(Span{0, 9}, Span{4, 5}, true, Span{4, 5})
	f(Span{0, 9}, Span{4, 4}, false, Span{})
	f(Span{7, 3}, Span{0, 9}, false, Span{})
	if n := (Span{7, 3}).Len(); n != 0 {
		t.Error(n)
	}
	if s := NewSpanSet(Span{5, 7}, Span{1, 2}).String(); s != "[1, 2) [5, 7)" {
		t.Error(s)
	}
}

func TestSpanSetKeepsWhatTouchesTogether(t *testing.T) {
	f := func(in []Span, want ...Span) {
		t.Helper()
		if s := NewSpanSet(in...); !slices.Equal(s.Spans(), want) {
			t.Errorf("%v became %v, want %v", in, s, want)
		}
	}
	f([]Span{{0, 1}, {1, 2}, {2, 3}}, Span{0, 3})
	f([]Span{{0, 1}, {2, 3}, {1, 2}}, Span{0, 3})
	f([]Span{{5, 6}, {0, 9}}, Span{0, 9})
	f([]Span{{0, 1}, {4, 5}, {8, 9}, {1, 8}}, Span{0, 9})
	f([]Span{{4, 4}, {9, 2}})
}
