// Package checkpoint is the arithmetic of how far things got: spans of offsets, acknowledgements and contiguous positions.
// It has no goroutine, no clock and no I/O.
package checkpoint

import (
	"fmt"
	"slices"
	"strings"
)

// Span is the half-open range of offsets [From, To).
type Span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Len is the number of offsets in the span.
func (s Span) Len() int64 { return max(0, s.To-s.From) }

// Empty reports whether no offset lies in the span.
func (s Span) Empty() bool { return s.To <= s.From }

// Intersect is the part that both spans have.
func (s Span) Intersect(t Span) Span { return Span{max(s.From, t.From), min(s.To, t.To)} }

// Overlaps reports whether an offset lies in both.
func (s Span) Overlaps(t Span) bool { return !s.Intersect(t).Empty() }

func (s Span) String() string { return fmt.Sprintf("[%d, %d)", s.From, s.To) }

// SpanSet is a set of offsets. The zero value is empty. A union of sets is right whoever computed them and in whatever
// order, so coverage needs no lock between its writers.
//
// Invariant: spans are non-empty, ascending, and no two touch.
type SpanSet struct{ spans []Span }

// NewSpanSet is the union of spans.
func NewSpanSet(spans ...Span) SpanSet {
	var s SpanSet
	for _, sp := range spans {
		s.Add(sp)
	}
	return s
}

// Add puts the offsets of sp into the set.
func (s *SpanSet) Add(sp Span) {
	if sp.Empty() {
		return
	}
	lo := s.search(sp.From)
	hi := lo
	for hi < len(s.spans) && s.spans[hi].From <= sp.To {
		sp.From = min(sp.From, s.spans[hi].From)
		sp.To = max(sp.To, s.spans[hi].To)
		hi++
	}
	s.spans = slices.Replace(s.spans, lo, hi, sp)
}

// search is the index of the first span that ends at or behind offset: the first that could touch one beginning there.
func (s *SpanSet) search(offset int64) int {
	i, _ := slices.BinarySearchFunc(s.spans, offset, func(sp Span, o int64) int {
		switch {
		case sp.To < o:
			return -1
		case sp.To > o:
			return 1
		}
		return 0
	})
	return i
}

// Union adds all of t.
func (s *SpanSet) Union(t SpanSet) {
	for _, sp := range t.spans {
		s.Add(sp)
	}
}

// Spans lists the set in ascending order. The caller must not change it.
func (s SpanSet) Spans() []Span { return s.spans }

// Clone is a copy that does not share memory.
func (s SpanSet) Clone() SpanSet { return SpanSet{slices.Clone(s.spans)} }

// Len counts the offsets in the set.
func (s SpanSet) Len() (n int64) {
	for _, sp := range s.spans {
		n += sp.Len()
	}
	return n
}

// Covers reports whether every offset of sp is in the set.
func (s SpanSet) Covers(sp Span) bool { return sp.Empty() || len(s.Missing(sp)) == 0 }

// Overlaps reports whether some offset of sp is in the set.
func (s SpanSet) Overlaps(sp Span) bool {
	for i := s.search(sp.From); i < len(s.spans) && s.spans[i].From < sp.To; i++ {
		if s.spans[i].Overlaps(sp) {
			return true
		}
	}
	return false
}

// Missing lists the parts of within that are not in the set, in ascending order.
func (s SpanSet) Missing(within Span) []Span {
	var out []Span
	at := within.From
	for i := s.search(within.From); i < len(s.spans) && s.spans[i].From < within.To; i++ {
		if s.spans[i].From > at {
			out = append(out, Span{at, s.spans[i].From})
		}
		at = max(at, s.spans[i].To)
	}
	if at < within.To {
		out = append(out, Span{at, within.To})
	}
	return out
}

// Within is the part of the set that lies in sp.
func (s SpanSet) Within(sp Span) SpanSet {
	var out SpanSet
	for i := s.search(sp.From); i < len(s.spans) && s.spans[i].From < sp.To; i++ {
		out.Add(s.spans[i].Intersect(sp))
	}
	return out
}

// ContiguousFrom is the offset up to which the set has everything from offset on; offset itself where it has nothing there.
func (s SpanSet) ContiguousFrom(offset int64) int64 {
	for i := s.search(offset); i < len(s.spans) && s.spans[i].From <= offset; i++ {
		offset = max(offset, s.spans[i].To)
	}
	return offset
}

func (s SpanSet) String() string {
	var b strings.Builder
	for i, sp := range s.spans {
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString(sp.String())
	}
	return b.String()
}

// Remove takes the offsets of sp out of the set.
func (s *SpanSet) Remove(sp Span) {
	if sp.Empty() {
		return
	}
	var out []Span
	for _, have := range s.spans {
		for _, rest := range []Span{{have.From, min(have.To, sp.From)}, {max(have.From, sp.To), have.To}} {
			if !rest.Empty() {
				out = append(out, rest)
			}
		}
	}
	s.spans = out
}
