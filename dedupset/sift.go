package dedupset

import "encoding/binary"

// sifted is the rows of one call with each content once, because equal contents of one call need no quorum to know of each other, and
// because they could otherwise end in two commands that overtake each other.
type sifted struct {
	rows   [][24]byte // the first of each content, in order
	of     []int32    // row of the call → its content's place in rows
	copies int        // rows of the call that are not the first of their content
}

// sift finds equal contents through a table of places, probed one after the other. A content hash is keyed, so nobody can choose contents
// that meet in it.
func sift(rows [][24]byte) sifted {
	size := 64
	for size < 2*len(rows) {
		size *= 2
	}
	at := make([]int32, size) // place in rows, and one more; 0: free
	s := sifted{rows: make([][24]byte, 0, len(rows)), of: make([]int32, len(rows))}
	for i := range rows {
		h := int(binary.LittleEndian.Uint64(rows[i][:8])) & (size - 1)
		for at[h] != 0 && [16]byte(s.rows[at[h]-1][:16]) != [16]byte(rows[i][:16]) {
			h = (h + 1) & (size - 1)
		}
		if at[h] == 0 {
			s.rows = append(s.rows, rows[i])
			at[h] = int32(len(s.rows))
		} else {
			s.copies++
		}
		s.of[i] = at[h] - 1
	}
	return s
}

// parts cuts the contents into as few pieces as hold at most most each, of about equal size.
func (s *sifted) parts(most int) (out [][][24]byte) {
	pieces := (len(s.rows) + most - 1) / most
	for i := range pieces {
		out = append(out, s.rows[i*len(s.rows)/pieces:(i+1)*len(s.rows)/pieces])
	}
	return out
}

// verdict turns what the set says of the contents into what it says of the rows: ascending. held is ascending by place in rows.
//
// A content that another record holds is held for all rows but that record's own. One that was free belongs to its first row, and the others
// are that one's twins, again unless they are the same record.
func (s *sifted) verdict(rows [][24]byte, held []Held) []Held {
	if s.copies == 0 {
		return held // places and rows are the same
	}
	by := make([]*Held, len(s.rows))
	for i := range held {
		by[held[i].Row] = &held[i]
	}
	var out []Held
	for i := range rows {
		place, tail := s.of[i], [8]byte(rows[i][16:])
		holder := [8]byte(s.rows[place][16:])
		if by[place] != nil {
			holder = by[place].By
		}
		if tail != holder {
			out = append(out, Held{Row: i, By: holder})
		}
	}
	return out
}
