package recovery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Agents that see other gaps of one window claim it under one name; neighbours have other names.
func TestClaimNames(t *testing.T) {
	p := record.Partition{Topic: "o", Number: 3}
	f := func(from, to, grid int64, want string) {
		t.Helper()
		if got := (window{p, checkpoint.Span{From: from, To: to}}).claim("s", "k", grid); got != "recovery/s/k/"+p.Path()+"/"+want {
			t.Errorf("[%d, %d) of %d: %s", from, to, grid, got)
		}
	}
	f(0, 50, 50, "00000000000000000000")
	f(17, 50, 50, "00000000000000000000")
	f(17, 18, 50, "00000000000000000000")
	f(50, 100, 50, "00000000000000000050")
	f(17, 50, 0, "00000000000000000017")
}

// Two agents begin with other windows, the order of urgency stays in steps, and nobody's order changes because another comes.
func TestAgentsBeginApart(t *testing.T) {
	p := record.Partition{Topic: "o"}
	name := func(w window) string { return w.claim("s", "k", 0) }
	all := func() (due []window) {
		for i := range int64(3 * apart) {
			due = append(due, window{p, checkpoint.Span{From: i, To: i + 1}})
		}
		return due
	}
	met, firsts := 0, map[window]int{}
	for i := range 20 {
		due := all()
		apartFrom(due, fmt.Sprintf("node-%d~x", i), name)
		firsts[due[0]]++
		for n, w := range due {
			if w.s.From/apart != int64(n/apart) {
				t.Fatalf("%v is taken as number %d", w.s, n)
			}
		}
		again := all()
		slices.Reverse(again[:apart])
		apartFrom(again, fmt.Sprintf("node-%d~x", i), name)
		if !slices.Equal(due, again) {
			t.Error("the order depends on how windows were found")
		}
	}
	for _, n := range firsts {
		met += n - 1
	}
	if met > 6 { // of 20 that choose among 64, three meet by chance
		t.Errorf("%d of 20 agents begin where another does", met)
	}
}

// What was seen long ago is old; eight sightings tell it to an eighth of the margin.
func TestSightings(t *testing.T) {
	var s sightings
	start := time.Unix(0, 0)
	margin := 80 * time.Second
	f := func(at time.Duration, next, want int64) {
		t.Helper()
		if got := s.see(next, start.Add(at), margin); got != want {
			t.Errorf("after %v: old is %d, want %d", at, got, want)
		}
	}
	f(0, 100, 0)
	f(79*time.Second, 100, 0)
	f(80*time.Second, 100, 100)
	f(81*time.Second, 200, 100)
	f(85*time.Second, 300, 100) // within an eighth of the last: seen with the next one
	f(91*time.Second, 300, 100)
	f(161*time.Second, 300, 200)
	f(170*time.Second, 300, 200)
	f(171*time.Second, 300, 300)
	for i := range int64(1000) {
		s.see(300+i, start.Add(200*time.Second+time.Duration(i)*time.Second), margin)
		if len(s.seen) > 9 {
			t.Fatalf("%d sightings are kept", len(s.seen))
		}
	}
}
