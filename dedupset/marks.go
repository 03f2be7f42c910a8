package dedupset

import "time"

// marks tell the age of rows by their place. They lie some width apart: a 256th of the window where they say when claims end, so a claim is
// known for its window, and at most that much longer.
type marks []mark

// mark: the rows from first on, up to the next mark's, came before end.
type mark struct {
	end   time.Duration
	first uint64
}

const (
	grain    = 256   // marks a window
	maxMarks = 1_024 // more come together only where the window is declared anew, again and again: rows then share a mark
)

// note says that the row at place comes at now.
func (m *marks) note(now time.Duration, place uint64, width time.Duration) {
	last := len(*m) - 1
	switch {
	case last >= 0 && now < (*m)[last].end:
	case last == maxMarks-1:
		(*m)[last].end = now + width
	default:
		*m = append(*m, mark{end: now + width, first: place})
	}
}

// shorten ends the last mark as early as a window that begins now allows.
func (m marks) shorten(now, window time.Duration) {
	if n := len(m); n > 0 {
		m[n-1].end = min(m[n-1].end, now+window/grain)
	}
}

// drop forgets rows before oldest; it says when the last of them was there at the latest.
func (m *marks) drop(oldest uint64) time.Duration {
	n := 0
	for n+1 < len(*m) && (*m)[n+1].first < oldest {
		n++
	}
	end := (*m)[n].end
	if n+1 < len(*m) && (*m)[n+1].first == oldest {
		n++
	}
	m.cut(n)
	return end
}

// cut takes the first n marks away.
func (m *marks) cut(n int) {
	if n > 0 {
		*m = (*m)[:copy(*m, (*m)[n:])]
	}
}

func (m *marks) clear() { *m = (*m)[:0] }

// expire is the first row whose window is not over at now, of rows [oldest, next).
func (m *marks) expire(now, window time.Duration, oldest, next uint64) uint64 {
	n := 0
	for n < len(*m) && (*m)[n].end+window <= now {
		n++
	}
	switch {
	case n == 0:
		return oldest
	case n == len(*m):
		m.clear()
		return next
	}
	oldest = (*m)[n].first
	m.cut(n)
	return oldest
}

// over is when the first rows expire.
func (m marks) over(window time.Duration) (time.Duration, bool) {
	if len(m) == 0 {
		return 0, false
	}
	return m[0].end + window, true
}
