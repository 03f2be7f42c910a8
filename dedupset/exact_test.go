package dedupset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// story is what several nodes learn of the same contents while the way to the leader is bad.
type story struct {
	t *testing.T
	d *desk

	mu     sync.Mutex
	passed map[uint64]bool            // records that were not named a twin by some answer, or that nobody could ask for
	by     map[uint64]map[uint64]bool // record → those whose twin it was called
	asked  map[uint64]map[uint64]bool // content → records
}

// call claims for one batch and takes in the answer.
func (s *story) call(f *Filter, contents, records []uint64) {
	key, err := f.Key(s.t.Context())
	all := make([][24]byte, len(contents))
	for i := range all {
		all[i] = row(contents[i], records[i])
	}
	var held []Held
	if err == nil {
		held, err = f.Claim(s.t.Context(), &key, all)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	twin := map[int]uint64{}
	for _, h := range held {
		twin[h.Row] = uint64(h.By[0]) | uint64(h.By[1])<<8 | uint64(h.By[2])<<16
	}
	for i, r := range records {
		if s.asked[contents[i]] == nil {
			s.asked[contents[i]] = map[uint64]bool{}
		}
		s.asked[contents[i]][r] = true
		of, is := twin[i]
		if !is || err != nil {
			s.passed[r] = true
			continue
		}
		if s.by[r] == nil {
			s.by[r] = map[uint64]bool{}
		}
		s.by[r][of] = true
	}
}

// weather draws what becomes of attempts: everything that can.
func weather(r *rand.Rand) func() fate {
	return func() fate {
		f := fate{takes: time.Duration(r.IntN(20)) * time.Millisecond, hidden: time.Duration(r.IntN(3000)) * time.Millisecond, twice: r.IntN(4) == 0}
		switch r.IntN(8) {
		case 0:
			f.lost = true
		case 1, 2:
			f.mute = true
		case 3:
			f.takes = time.Duration(r.IntN(1000)) * time.Millisecond
		case 4:
			f.err = ErrNoLeader
		}
		return f
	}
}

// play lets three nodes claim at random. A record is of one content, as its id is of its bytes, and is claimed again now and then, as after
// a crash before the answer counted.
func (s *story) play(seed uint64, window time.Duration) {
	r := chance(seed)
	s.d.fate = weather(chance(seed + 1000))
	var all sync.WaitGroup
	next := uint64(0)
	for range 3 {
		f := s.d.filter(func(o *FilterOptions) { o.Window = window })
		for range 4 {
			mine := chance(r.Uint64())
			all.Go(func() {
				for range 25 {
					var contents, records []uint64
					s.mu.Lock()
					for range 1 + mine.IntN(6) {
						if next > 0 && mine.IntN(5) == 0 {
							records = append(records, mine.Uint64N(next))
						} else {
							records = append(records, next)
							next++
						}
					}
					s.mu.Unlock()
					for _, r := range records {
						contents = append(contents, mix(r)%40)
					}
					s.call(f, contents, records)
					time.Sleep(time.Duration(mine.IntN(700)) * time.Millisecond)
				}
			})
		}
	}
	all.Wait()
}

// check holds the answers against what must never be. Who comes again after the window may be called the twin of who was his: then a third has
// passed, as one record of every content always has.
func (s *story) check(window time.Duration) {
	for r, of := range s.by {
		if of[r] {
			s.t.Errorf("record %d is its own twin", r)
		}
		for o := range of {
			if window == time.Hour && s.by[o][r] {
				s.t.Errorf("records %d and %d are twins of each other", r, o)
			}
			if mix(r)%40 != mix(o)%40 {
				s.t.Errorf("record %d is called a twin of %d, which has another content", r, o)
			}
			if window == time.Hour && len(s.by[o]) > 0 {
				s.t.Errorf("record %d is called a twin of %d, which is a twin itself", r, o)
			}
		}
		if window == time.Hour && len(of) > 1 {
			s.t.Errorf("record %d is called a twin of %d others", r, len(of))
		}
	}
	for c, records := range s.asked {
		some := false
		for r := range records {
			some = some || s.passed[r]
		}
		if !some {
			s.t.Errorf("no record with content %d has passed", c)
		}
	}
}

// However attempts are lost, answers are lost, commands land late or twice: no record is its own twin, and of every content one record passes.
// While claims do not expire no two are twins of each other, and all twins of a content have the same holder.
func TestClaimsAreExact(t *testing.T) {
	for _, window := range []time.Duration{time.Hour, time.Second} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			twins := 0
			for seed := range uint64(40) {
				synctest.Test(t, func(t *testing.T) {
					s := &story{t: t, d: newDesk(), passed: map[uint64]bool{}, by: map[uint64]map[uint64]bool{}, asked: map[uint64]map[uint64]bool{}}
					s.play(seed, window)
					s.d.late.Wait()
					s.check(window)
					twins += len(s.by)
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if twins < 1000 {
				t.Fatalf("only %d twins were found: the test shows nothing", twins)
			}
		})
	}
}

// A claim that lands after its call has given up belongs to its records nevertheless: they are not told that they are twins when they come again,
// and others are.
func TestLateClaimsCount(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter()
		claim(t, f, "z0")
		d.does(fate{takes: 400 * time.Millisecond})
		if got, took := reason(t, f, "a1b2"); got != "timeout" || took != 250*time.Millisecond {
			t.Fatal(got, took)
		}
		time.Sleep(2 * time.Second)
		d.does(fate{})
		if got := claim(t, f, "a1b2a3"); got != "2:1" {
			t.Errorf("after it landed: %q", got)
		}
	})
}

// An answer that is lost is asked for again, and the claim that was carried out is no twin of itself.
func TestLostAnswersAreAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter()
		claim(t, f, "z0")
		n := 0
		d.fate = func() fate { n++; return fate{mute: n%3 != 0} }
		if got := claim(t, f, "a1b2a3"); got != "2:1" {
			t.Errorf("%q", got)
		}
		n = 0
		d.fate = func() fate {
			n++
			if n < 4 {
				return fate{err: errors.Join(ErrNoLeader)}
			}
			return fate{}
		}
		if got := claim(t, f, "a1b4"); got != "1:2" { // the leader changed
			t.Errorf("%q", got)
		}
	})
}
