package parquet

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLevelsBytes(t *testing.T) {
	f := func(levels []uint8, width int, want ...byte) {
		t.Helper()
		got := appendLevels(nil, levels, width)
		if n := binary.LittleEndian.Uint32(got); int(n) != len(got)-4 || !slices.Equal(got[4:], want) {
			t.Errorf("levels %v of %d bits are % x, want the length and % x", levels, width, got, want)
		}
	}
	ones := func(n int) []uint8 { return slices.Repeat([]uint8{1}, n) }
	f(nil, 1)
	f(ones(1), 1, 2, 1)
	f(ones(8), 1, 16, 1)
	f(ones(100), 1, 0xc8, 0x01, 1)
	f([]uint8{0, 1}, 1, 3, 0b10)
	f([]uint8{0, 1, 0, 1, 0, 1, 0, 1}, 1, 3, 0b10101010)
	f([]uint8{2, 1, 0, 2, 2, 1, 0, 0}, 2, 3, 0b10000110, 0b00000110)
	f(append([]uint8{0}, ones(8)...), 1, 5, 0b11111110, 0b1) // a run that begins within a group of eight ends with it
	f(append([]uint8{0, 1, 0, 1, 0, 1, 0, 1}, ones(9)...), 1, 3, 0b10101010, 18, 1)
}

// TestLevelsRandom decodes what was encoded by a reader written from the format's description.
func TestLevelsRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		width := 1 + rng.IntN(2)
		var levels []uint8
		for len(levels) < rng.IntN(300) {
			levels = append(levels, slices.Repeat([]uint8{uint8(rng.IntN(width + 1))}, 1+rng.IntN(12)*rng.IntN(2))...)
		}
		if got := decodeLevels(t, appendLevels(nil, levels, width), len(levels), width); !slices.Equal(got, levels) {
			t.Fatalf("levels %v of %d bits are read back as %v", levels, width, got)
		}
	}
}

func decodeLevels(t *testing.T, b []byte, n, width int) (out []uint8) {
	b = b[4:]
	for len(b) > 0 {
		header, size := binary.Uvarint(b)
		b = b[size:]
		if header&1 == 0 {
			out = append(out, slices.Repeat(b[:1], int(header>>1))...)
			b = b[1:]
			continue
		}
		for i := range int(header>>1) * 8 {
			bit := i * width
			v := uint16(b[bit/8])
			if bit/8+1 < len(b) {
				v |= uint16(b[bit/8+1]) << 8
			}
			out = append(out, uint8(v>>(bit%8))&(1<<width-1))
		}
		b = b[int(header>>1)*width:]
	}
	if len(out) < n {
		t.Fatalf("%d levels are read, want %d", len(out), n)
	}
	return out[:n]
}

func FuzzLevels(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0})
	f.Fuzz(func(t *testing.T, levels []byte) {
		for i := range levels {
			levels[i] %= 3
		}
		if got := decodeLevels(t, appendLevels(nil, levels, 2), len(levels), 2); !slices.Equal(got, levels) {
			t.Fatalf("levels %v are read back as %v", levels, got)
		}
	})
}
