package parquet

import "encoding/binary"

// appendLevels appends levels, each of width bits, as a v1 data page has them: a length of four bytes, then runs. A run of eight
// and more equal levels is written once with its length; what lies between is packed, eight levels to width bytes.
func appendLevels(dst []byte, levels []uint8, width int) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := 0; i < len(levels); {
		if n := equal(levels[i:]); n >= 8 || n == len(levels)-i {
			dst = append(binary.AppendUvarint(dst, uint64(n)<<1), levels[i])
			i += n
			continue
		}
		end := i + 8
		for end < len(levels) && !eightEqual(levels[end:]) {
			end += 8
		}
		dst = appendPacked(dst, levels[i:min(end, len(levels))], width)
		i = end
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// equal is the length of the run that levels begins with.
func equal(levels []uint8) int {
	n := 1
	for n < len(levels) && levels[n] == levels[0] {
		n++
	}
	return n
}

func eightEqual(levels []uint8) bool { return len(levels) >= 8 && equal(levels[:8]) == 8 }

// appendPacked appends groups of eight levels, the first in the lowest bits. Only the end of a page is not a multiple of eight;
// it is filled up with zeros, which readers do not count.
func appendPacked(dst []byte, levels []uint8, width int) []byte {
	groups := (len(levels) + 7) / 8
	dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
	for g := range groups {
		var bits uint64
		for i, l := range levels[g*8 : min(g*8+8, len(levels))] {
			bits |= uint64(l) << (i * width)
		}
		for b := range width {
			dst = append(dst, byte(bits>>(8*b)))
		}
	}
	return dst
}
