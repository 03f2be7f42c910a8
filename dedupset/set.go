package dedupset

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// set is the claims of one stream: rows in the order in which they came, and an index that finds them by their content.
//
// A row's place in the sequence of all rows is its age: rows before oldest have expired, and count as absent at once; the index gives
// them up bit by bit (growth.go), so no Apply is long because much expires at one time. The sequence has 64 bits and is never
// begun anew; the index keeps the low 32. No two rows in the index share them: an index holds rows of [swept, next) alone, and
// next-swept is at most MaxEntries and a quarter.
type set struct {
	stream string
	check  [8]byte
	terms  Terms
	used   time.Duration // when it was last declared or claimed in

	oldest, next uint64 // rows that are known; next-oldest is at most the cap, but for rows that a smaller cap found young
	marks        marks
	settled      uint64        // rows before it are no longer young, and may be evicted
	young        marks         // of rows from settled on
	lost         time.Duration // every claim that was evicted early came before
	claimed      uint64        // rows asked about
	twins        uint64        // of them held by another record
	evicted      uint64

	// What follows is about memory alone, and shows in no reply.

	swept  uint64 // rows before it are in no index any more; never after oldest
	chunks chunks // rows from swept on

	index   *index // where rows are added
	old     *index // where rows of [drained, split) still are, and no others that count; nil where nothing is being moved
	drained uint64
	split   uint64
	coming  *index        // what index is replaced by once its pages are there; nil where it serves
	tidied  time.Duration // when Expire last moved or gave up rows
	touched uint32        // of no meaning: keeps the compiler from leaving touch out
}

// group is how many rows are looked up together. Their buckets are fetched from memory at the same time, which is far faster than one
// after the other; more than the processor can have under way at once gains nothing.
const group = 128

// A young claim is never evicted, whatever the cap. A claim is asked for again for as long as a call lasts, which is less; were it let go
// between, another record could claim the content, and of two records each would be told that the other holds it.
const (
	youth      = time.Second
	youthGrain = youth / 8
)

func newSet(stream string, check [8]byte, terms Terms, first uint64) *set {
	s := &set{stream: stream, check: check, terms: terms, oldest: first, next: first, settled: first, swept: first}
	s.chunks.reset(first)
	s.index = newIndex(startLimit(0, terms.Entries))
	return s
}

func (s *set) known() int64 { return int64(s.next - s.oldest) }

// claim carries out the claims of whole rows, in order, and adds those to reply that another record holds.
func (s *set) claim(now time.Duration, rows, reply []byte) []byte {
	s.used = now
	s.trim(now)
	s.claimed += uint64(len(rows) / rowSize)
	for row := 0; len(rows) > 0; row += group {
		n := min(len(rows), group*rowSize)
		s.makeRoom(n / rowSize)
		s.touch(rows[:n])
		reply = s.claimGroup(now, rows[:n], row, reply)
		rows = rows[n:]
	}
	return reply
}

func (s *set) claimGroup(now time.Duration, rows []byte, row int, reply []byte) []byte {
	for ; len(rows) > 0; rows = rows[rowSize:] {
		content, tail := rows[:tailAt], rows[tailAt:rowSize]
		holder := s.find(content)
		switch {
		case holder == nil:
			s.insert(now, rows[:rowSize])
		case string(holder[tailAt:]) != string(tail):
			s.twins++
			reply = appendHeld(reply, row, holder[tailAt:])
		}
		row++
	}
	return reply
}

// touch reads the buckets of contents that are looked up next, and then the rows that they name.
func (s *set) touch(rows []byte) {
	sum := uint32(0)
	for b := rows; len(b) > 0; b = b[rowSize:] {
		sum |= s.index.buckets[s.index.home(b)].over
	}
	for b := rows; len(b) > 0; b = b[rowSize:] {
		sum |= s.touchRow(s.index, b)
	}
	if s.old != nil {
		for b := rows; len(b) > 0; b = b[rowSize:] {
			sum |= s.old.buckets[s.old.home(b)].over
		}
		for b := rows; len(b) > 0; b = b[rowSize:] {
			sum |= s.touchRow(s.old, b)
		}
	}
	s.touched |= sum
}

// touchRow reads the first row that the content's bucket may mean: where it is not the right one, what follows is slower.
func (s *set) touchRow(x *index, content []byte) uint32 {
	b := &x.buckets[x.home(content)]
	slot := b.first(tagOf(content))
	if slot == slots {
		return 0
	}
	at := s.swept + uint64(b.rows[slot]-uint32(s.swept))
	if at >= s.next {
		return 0
	}
	return uint32(s.chunks.row(at)[0])
}

// find is the row that holds a content, or nil.
func (s *set) find(content []byte) *[rowSize]byte {
	if r := s.search(s.index, s.oldest, content); r != nil || s.old == nil {
		return r
	}
	return s.search(s.old, max(s.oldest, s.drained), content)
}

// search looks for a content in an index, among rows from a place on.
func (s *set) search(x *index, from uint64, content []byte) *[rowSize]byte {
	tag := tagOf(content)
	for i, n := x.home(content), len(x.buckets); n > 0; i, n = x.after(i), n-1 {
		b := &x.buckets[i]
		lo, hi := b.equal(tag)
		for ; lo != 0; lo &= lo - 1 {
			if r := s.row(b.rows[bits.TrailingZeros64(lo)>>3], from, content); r != nil {
				return r
			}
		}
		for ; hi != 0; hi &= hi - 1 {
			if r := s.row(b.rows[8+bits.TrailingZeros32(hi)>>3], from, content); r != nil {
				return r
			}
		}
		if b.over == 0 {
			return nil
		}
	}
	return nil
}

// row is the row of a number, if it is of [from, next) and has the content. A number stands for the one place that has it and is
// neither before swept nor 2^32 behind it: what an index that is being left still says of earlier rows falls out of the range.
func (s *set) row(number uint32, from uint64, content []byte) *[rowSize]byte {
	at := s.swept + uint64(number-uint32(s.swept))
	if at < from || at >= s.next {
		return nil
	}
	r := s.chunks.row(at)
	if binary.LittleEndian.Uint64(r[:]) != binary.LittleEndian.Uint64(content) ||
		binary.LittleEndian.Uint64(r[8:]) != binary.LittleEndian.Uint64(content[8:]) {
		return nil
	}
	return r
}

// insert adds a row whose content nobody holds. Where the cap is reached the oldest goes; while that is young the row is not taken, so its
// record passes and holds nothing.
func (s *set) insert(now time.Duration, row []byte) {
	switch {
	case s.known() < s.terms.Entries:
	case s.oldest < s.settled:
		s.evict(now, 1)
	default:
		s.evicted++
		s.lost = now
		return
	}
	s.marks.note(now, s.next, s.terms.Window/grain)
	s.young.note(now, s.next, youthGrain)
	*s.chunks.place(s.next) = [rowSize]byte(row)
	s.index.add(row, uint32(s.next))
	s.next++
}

// trim sees which rows are no longer young, and evicts of those what is more than the cap.
func (s *set) trim(now time.Duration) {
	s.settled = s.young.expire(now, youth, s.settled, s.next)
	if more := s.known() - s.terms.Entries; more > 0 && s.settled > s.oldest {
		s.evict(now, min(uint64(more), s.settled-s.oldest))
	}
}

// evict lets go of the n oldest claims before their time.
func (s *set) evict(now time.Duration, n uint64) {
	s.oldest += n
	s.evicted += n
	s.lost = max(s.lost, min(now, s.marks.drop(s.oldest)))
	if s.oldest == s.next {
		s.marks.clear()
	}
}

// expire lets go of the claims whose window is over.
func (s *set) expire(now time.Duration) {
	s.oldest = s.marks.expire(now, s.terms.Window, s.oldest, s.next)
}

// over is when the set lets go of its first claim, or, where it has none, of itself.
func (s *set) over() time.Duration {
	if at, ok := s.marks.over(s.terms.Window); ok {
		return at
	}
	return s.used + max(s.terms.Window, idle)
}

// idle is how long a set without claims stays, or as long as its window where that is longer.
const idle = time.Hour

// stats at now, the time of the last command or expiry.
func (s *set) stats(now time.Duration) Stats {
	held := s.terms.Window
	if s.evicted > 0 {
		held = min(held, max(0, now-s.lost))
	}
	return Stats{
		Stream: s.stream, Window: s.terms.Window, Held: held, Cap: s.terms.Entries, Entries: s.known(), Bytes: s.bytes(),
		Claimed: s.claimed, Twins: s.twins, Evicted: s.evicted,
	}
}
