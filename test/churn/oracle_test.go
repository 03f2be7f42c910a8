package churn

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestServes(t *testing.T) {
	f := func(configurations, up string, groups string, want int, wantOK bool) {
		t.Helper()
		w := world{up: map[string]bool{}}
		for _, id := range strings.Split(up, "") {
			w.up[id] = true
		}
		if groups != "" {
			for _, g := range strings.Fields(groups) {
				w.groups = append(w.groups, strings.Split(g, ""))
			}
		}
		var all [][]string
		for _, c := range strings.Fields(configurations) {
			all = append(all, strings.Split(c, ""))
		}
		if got, ok := w.serves(all); got != want && ok || ok != wantOK {
			t.Errorf("%q with %q up and %q apart: group %d (%v), want %d (%v)", configurations, up, groups, got, ok, want, wantOK)
		}
	}
	f("abc", "abc", "", -1, true)
	f("abc", "ab", "", -1, true)
	f("abc", "a", "", 0, false)
	f("abc", "abc", "a", -1, true)
	f("abc", "abc", "ab", 0, true)
	f("abc", "abc", "a b", 0, false)
	f("abc", "abc", "a b c", 0, false)
	f("a", "a", "a", 0, true)
	f("ab", "a", "", 0, false)
	f("abc abcd", "ab", "", 0, false)
	f("abc abcd", "abd", "", -1, true)
	f("abc ab", "ab", "", -1, true)
	f("abc cde", "abcde", "ab", 0, false)
	f("", "abc", "", 0, false)
}

func TestRests(t *testing.T) {
	f := func(seats, up string, want bool) {
		t.Helper()
		w := world{up: map[string]bool{}}
		for _, id := range strings.Split(up, "") {
			w.up[id] = true
		}
		if got := w.rests(strings.Split(seats, ""), 3); got != want {
			t.Errorf("seats %q while %q are up rest: %v", seats, up, got)
		}
	}
	f("abc", "abc", true)
	f("abc", "abcde", true)
	f("abc", "ab", true)
	f("abc", "abd", false)
	f("ab", "ab", false)
	f("a", "a", true)
	f("a", "ab", true)
	f("a", "abc", false)
	f("abcd", "abcd", false)
	f("abcde", "abcde", false)
}

func TestRecord(t *testing.T) {
	const s = time.Second
	var r record
	if r.steady() || len(r.possible()) != 0 {
		t.Error("without a word of a leader something is steady, or possible")
	}
	say := func(from, to time.Duration, seats string) {
		for now := from; now <= to; now += s / 2 {
			r.told(now, strings.Split(seats, ""))
		}
	}
	expect := func(steady bool, possible ...string) {
		t.Helper()
		var got []string
		for _, c := range r.possible() {
			got = append(got, strings.Join(c, ""))
		}
		if r.steady() != steady || !slices.Equal(got, possible) {
			t.Errorf("steady %v, possible %q; want %v, %q", r.steady(), got, steady, possible)
		}
	}
	say(0, 2*s, "a")
	expect(false, "a")
	say(2*s, 10*s, "a")
	expect(true, "a")
	r.told(10*s, nil)
	expect(true, "a")
	if r.bound() != leaderWithin {
		t.Errorf("while nothing changes, a leader may take %v", r.bound())
	}
	say(11*s, 12*s, "ab")
	expect(false, "a", "ab")
	if r.bound() != leaderAfterChange {
		t.Errorf("in the middle of a change, a leader may take %v", r.bound())
	}
	say(12*s+s/2, 40*s, "ab")
	expect(false, "ab")
	if r.found != nil {
		t.Errorf("two seats for less than %v: %v", evenAtMost, r.found)
	}
	say(60*s, 80*s, "ab") // in between nobody led
	if r.found != nil {
		t.Errorf("nobody led in between: %v", r.found)
	}
	say(80*s, 91*s, "ab")
	if r.found == nil {
		t.Error("two seats for more than half a minute are not found")
	}
	say(92*s, 99*s, "abc")
	expect(true, "abc")
}
