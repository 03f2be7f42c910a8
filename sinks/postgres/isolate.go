package postgres

// hunt finds the rows at fault among n, by trying ranges of them in ascending order. The caller tries what next gives and says how
// it went; each row ends in a range that was good or in bad.
//
// A COPY that fails names the row at which it stopped. Then the rows before it are tried (they should be good), the row itself
// (it should fail alone) and the rest: three tries a bad row, whatever the number of rows, and log4(n/16) more while ranges grow
// again after it. Where there is no hint, or once one was wrong, ranges are halved: 2·log2(n) tries a bad row. No row is refused that did
// not fail alone, and whatever the answers are there are fewer than 2·n tries: each failure splits its range in two or three, and
// so many splits leave single rows.
type hunt struct {
	n     int
	rest  []stretch // what is left, the next one last
	limit int       // the length of the next try: short after a failure near its start, lest a load of poison be sent over and over
	deaf  bool      // a hint was wrong
	tries int
	bad   []int
}

// stretch is the range [from, to) of rows. A hint may have said of it that its rows are good, or of a single row that it is bad.
type stretch struct {
	from, to          int
	cleared, suspects bool
}

// minLimit is how many rows are tried at least after a failure.
const minLimit = 16

func newHunt(n int) *hunt {
	h := &hunt{n: n, limit: n}
	h.push(stretch{from: 0, to: n})
	return h
}

func (h *hunt) push(s stretch) {
	if s.from < s.to {
		h.rest = append(h.rest, s)
	}
}

// next is the range to try; false when all is known.
func (h *hunt) next() (stretch, bool) {
	last := len(h.rest) - 1
	if last < 0 {
		return stretch{}, false
	}
	s := h.rest[last]
	h.rest = h.rest[:last]
	if s.to-s.from > h.limit {
		h.push(stretch{from: s.from + h.limit, to: s.to, cleared: s.cleared})
		s.to = s.from + h.limit
	}
	h.tries++
	return s, true
}

// again puts back a range that was not judged and has to be tried in another way.
func (h *hunt) again(s stretch) { h.push(s) }

// good says that the rows of s are written.
func (h *hunt) good(s stretch) {
	h.deaf = h.deaf || s.suspects
	h.limit = min(max(4*h.limit, minLimit), h.n)
}

// failed says that a row of s is at fault; line is its index within s as the server says, negative where it does not. It returns
// true where s is that row.
func (h *hunt) failed(s stretch, line int) bool {
	if s.to-s.from == 1 {
		h.bad = append(h.bad, s.from)
		return true
	}
	h.deaf = h.deaf || s.cleared || line >= s.to-s.from
	if h.deaf || line < 0 {
		mid := s.from + (s.to-s.from)/2
		h.push(stretch{from: mid, to: s.to})
		h.push(stretch{from: s.from, to: mid})
		return false
	}
	at := s.from + line
	h.push(stretch{from: at + 1, to: s.to})
	h.push(stretch{from: at, to: at + 1, suspects: true})
	h.push(stretch{from: s.from, to: at, cleared: true})
	h.limit = max(minLimit, 4*line)
	return false
}
