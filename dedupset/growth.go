package dedupset

import "time"

// The index of a set follows the number of its claims up to its cap, in steps of four, and back when all of them have expired. A
// larger one is made ready by a helper when the one that serves is half full, and waited for until that holds a quarter more than it is
// made for: at 380 MB/s, which is how fast memory is touched first on a slow machine, up to 9 million rows a second can be added meanwhile. Then rows move
// over, four for each that is added, and are found in either. An index that is moved into is made for no fewer rows than there are, so
// it never has more than five quarters of them, and a group, before it can be replaced in turn: it has slots for seven fifths. So neither growth nor a new cap ever makes an Apply long, a set that
// is hardly used is small, and one that is full has the index of its cap.

const (
	firstLimit = 32 << 10 // of the first index: 240 KiB, which no helper has to ready
	step       = 4
	finalStep  = 6 // a last step may be larger than the others, rather than be followed by a small one
	moveEach   = 4 // rows moved for each that is added
	sweepEach  = 2 // rows given up for each that is added
)

// startLimit is the size of the index that a set of so many rows begins with.
func startLimit(rows, most int64) int64 {
	limit := min(int64(firstLimit), most)
	for limit < most && rows*2 > limit {
		limit = nextLimit(limit, most)
	}
	return limit
}

// nextLimit is the step after limit.
func nextLimit(limit, most int64) int64 {
	if most <= finalStep*limit {
		return most
	}
	return step * limit
}

// fill is how many rows the index holds, or will hold once all have moved.
func (s *set) fill() int64 { return int64(s.next - s.swept) }

// makeRoom readies the set for n more rows. It gives up twice as many expired ones as come, so there are never more than the cap and
// a group.
func (s *set) makeRoom(n int) {
	s.sweep(sweepEach * n)
	s.drain(moveEach * n)
	s.grow(int64(n))
}

func (s *set) grow(n int64) {
	fill := s.fill() + n
	if s.old == nil && s.coming == nil {
		s.order(fill)
	}
	if s.old == nil && s.coming != nil && (s.coming.mem.ready.Load() || fill > s.index.limit+s.index.limit/4-group) {
		s.move()
	}
}

// order orders another index where the one that serves will be too small, or is larger than the cap needs.
func (s *set) order(fill int64) {
	most := s.terms.Entries
	switch {
	case s.index.limit < most && fill > s.index.limit/2:
		s.coming = newIndex(nextLimit(s.index.limit, most))
	case s.index.limit > most && s.known() <= most:
		s.coming = newIndex(most)
	}
}

// move begins to move over to the index that was ordered. What has expired stays behind.
func (s *set) move() {
	s.swept = s.oldest
	s.chunks.trim(s.swept)
	s.old, s.index, s.coming = s.index, s.coming, nil
	s.drained, s.split = s.swept, s.next
	s.drain(0)
}

// drain moves up to n rows out of the old index.
func (s *set) drain(n int) {
	if s.old == nil {
		return
	}
	for to := min(s.split, s.drained+uint64(n)); s.drained < to; {
		piece := min(to, s.drained+group)
		s.touchPlaces(s.drained, piece)
		for ; s.drained < piece; s.drained++ {
			s.index.add(s.chunks.row(s.drained)[:], uint32(s.drained))
		}
	}
	if s.drained == s.split {
		s.old = nil
	}
}

// sweep takes up to n expired rows out of the index.
func (s *set) sweep(n int) {
	for to := min(s.oldest, s.swept+uint64(n)); s.swept < to; {
		piece := min(to, s.swept+group)
		s.touchPlaces(s.swept, piece)
		for ; s.swept < piece; s.swept++ {
			s.giveUp(s.swept)
		}
	}
	s.chunks.trim(s.swept)
}

func (s *set) giveUp(place uint64) {
	if s.old != nil && place >= s.drained && place < s.split {
		s.drained = place + 1
		return
	}
	s.index.remove(s.chunks.row(place)[:], uint32(place))
}

func (s *set) touchPlaces(from, to uint64) {
	sum := uint32(0)
	for ; from < to; from++ {
		sum |= s.index.buckets[s.index.home(s.chunks.row(from)[:])].over
	}
	s.touched |= sum
}

const (
	tidyEvery = 20 * time.Millisecond
	tidyRows  = 16 << 10 // under a millisecond
)

// untidy says that there are rows to give up or to move.
func (s *set) untidy() bool { return s.swept < s.oldest || s.old != nil }

// tidy does what claims that come would do by the way.
func (s *set) tidy(now time.Duration) {
	switch {
	case !s.untidy() || now-s.tidied < tidyEvery:
		return
	case s.known() == 0 && s.fill() > firstLimit:
		s.empty()
	default:
		s.sweep(tidyRows)
		s.drain(tidyRows)
	}
	s.tidied = now
}

// empty begins anew with little memory: every row has expired.
func (s *set) empty() {
	s.swept, s.old, s.coming = s.next, nil, nil
	s.chunks.reset(s.next)
	s.index = newIndex(startLimit(0, s.terms.Entries))
}

// declare changes window and cap.
func (s *set) declare(now time.Duration, terms Terms) {
	s.terms = terms
	s.marks.shorten(now, terms.Window)
	s.expire(now)
	s.trim(now)
	s.coming = nil // it was for another cap
}

// bytes is the memory that the set takes on this replica.
func (s *set) bytes() int64 {
	n := s.chunks.bytes()
	for _, x := range []*index{s.index, s.old, s.coming} {
		if x != nil {
			n += int64(len(x.mem.mem))
		}
	}
	return n
}

// Memory is how many bytes a set of that cap takes on each replica once it is full: index and rows.
func Memory(entries int64) int64 {
	rows := (entries+chunkRows-1)>>chunkBits + 2
	return int64(bucketsFor(entries))*bucketSize + rows*chunkRows*rowSize
}
