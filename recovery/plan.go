// Package recovery fills what a lane missed: it finds the spans that raw has and a sink has not, cuts them into windows, claims
// each window and carries it out of raw through the same lane code.
package recovery

import (
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
)

// Windows cuts gaps at the multiples of rows, so that whoever looks at the same gaps cuts alike, with no planner.
func Windows(gaps []checkpoint.Span, rows int64) []checkpoint.Span {
	var out []checkpoint.Span
	for _, g := range gaps {
		for at := g.From; at < g.To; {
			end := g.To
			if next := at - at%rows; g.To-next > rows {
				end = next + rows
			}
			out = append(out, checkpoint.Span{From: at, To: end})
			at = end
		}
	}
	return out
}

// Settled drops from windows what another process may still be writing: spans below begin, where this process's assignment
// started, that are not old yet. old says up to which offset all is older than the deadline and its margin. What lies at or above
// begin was stored by this process, which knows what its own lanes hold.
func Settled(windows []checkpoint.Span, begin, old int64) []checkpoint.Span {
	var out []checkpoint.Span
	for _, w := range windows {
		for _, part := range []checkpoint.Span{{From: w.From, To: min(w.To, old)}, {From: max(w.From, begin, old), To: w.To}} {
			if !part.Empty() {
				out = append(out, part)
			}
		}
	}
	return out
}

// WholeSettled is Settled for windows that cannot be split, because each becomes one file: a window counts once all of it below begin
// is old.
func WholeSettled(windows []checkpoint.Span, begin, old int64) []checkpoint.Span {
	var out []checkpoint.Span
	for _, w := range windows {
		if w.From >= begin || min(w.To, begin) <= old {
			out = append(out, w)
		}
	}
	return out
}

// sightings tell what raw has held for long from when this process saw where a chain ends: what lay below that was written before. They
// need no clock but the monotonic one of this process, and no read.
type sightings struct {
	seen []sighting // ascending in both
	old  int64      // what fell out of seen as old enough
}

type sighting struct {
	at   time.Time
	next int64
}

// see notes that raw ends at next, and returns the offset below which everything has been there for margin. Of a margin eight
// sightings are kept: it is exact to an eighth.
func (s *sightings) see(next int64, now time.Time, margin time.Duration) int64 {
	for len(s.seen) > 0 && !now.Before(s.seen[0].at.Add(margin)) {
		s.old = max(s.old, s.seen[0].next)
		s.seen = s.seen[1:]
	}
	n := len(s.seen)
	if n == 0 || s.seen[n-1].next < next && now.Sub(s.seen[n-1].at) >= margin/8 {
		if n > 0 || next > s.old {
			s.seen = append(s.seen, sighting{now, next})
		}
	}
	return s.old
}
