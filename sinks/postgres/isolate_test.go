package postgres

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// hints is what a server says of the first bad row in a range: its index there.
type hints func(first int, s stretch) int

func honest(first int, _ stretch) int { return first }
func silent(int, stretch) int         { return -1 }

// solve runs a hunt over n rows against a server that refuses bad, and checks that the rows that were written are exactly the others,
// each once and in order. It returns the number of tries.
func solve(t *testing.T, n int, bad []int, hint hints) int {
	t.Helper()
	isBad := map[int]bool{}
	for _, b := range bad {
		isBad[b] = true
	}
	h := newHunt(n)
	at := 0
	for s, more := h.next(); more; s, more = h.next() {
		if s.from < at || s.from >= s.to || s.to > n {
			t.Fatalf("tried [%d, %d) after %d", s.from, s.to, at)
		}
		first := -1
		for i := s.from; i < s.to && first < 0; i++ {
			if isBad[i] {
				first = i - s.from
			}
		}
		switch {
		case first < 0:
			if s.from != at {
				t.Fatalf("rows [%d, %d) were written, want from %d on", s.from, s.to, at)
			}
			at = s.to
			h.good(s)
		case h.failed(s, hint(first, s)):
			if s.from != at || s.to != at+1 {
				t.Fatalf("row %d is called bad after %d", s.from, at)
			}
			at = s.to
		}
	}
	if at != n || !slices.Equal(h.bad, bad) {
		t.Fatalf("ended at %d of %d with %d bad rows, want %d", at, n, len(h.bad), len(bad))
	}
	if n > 0 && h.tries >= 2*n {
		t.Errorf("%d tries for %d rows", h.tries, n)
	}
	return h.tries
}

func TestHunt(t *testing.T) {
	f := func(n int, bad []int, hint hints, most int) {
		t.Helper()
		if tries := solve(t, n, bad, hint); tries > most {
			t.Errorf("%d tries for %d bad of %d rows, want at most %d", tries, len(bad), n, most)
		}
	}
	all := make([]int, 10000)
	for i := range all {
		all[i] = i
	}
	f(0, nil, honest, 0)
	f(10000, nil, honest, 1)
	f(1, []int{0}, honest, 1)
	f(10000, []int{5000}, honest, 4)
	f(10000, []int{0}, honest, 3+6)
	f(10000, []int{9999}, honest, 3)
	f(10000, []int{2000, 4000, 6000}, honest, 1+3*3+3)
	f(10000, []int{5000}, silent, 2*14+1)
	f(10000, []int{2000, 4000, 6000}, silent, 3*2*14)
	f(10000, all, honest, 20000)
	f(10000, all, silent, 20000)
}

// Wrong hints cost tries and never a good row.
func TestHuntWithWrongHints(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		n := 1 + rng.IntN(300)
		var bad []int
		for i := range n {
			if rng.IntN(1+n/3) == 0 {
				bad = append(bad, i)
			}
		}
		right := rng.IntN(3)
		tries := solve(t, n, bad, func(first int, s stretch) int {
			if rng.IntN(3) < right {
				return first
			}
			return rng.IntN(2*(s.to-s.from)+2) - 1
		})
		if most := 6 + len(bad)*(2*bits.Len(uint(n))+6) + n/minLimit; tries > most {
			t.Errorf("%d tries for %d bad of %d rows, want at most %d", tries, len(bad), n, most)
		}
	}
}
