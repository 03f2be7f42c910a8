// Package churn takes a cluster through random steps, starts, ends, kills, lost disks, partitions, and holds what it does against what must
// be so at every moment.
package churn

import (
	"fmt"
	"slices"
	"time"
)

// world is what the test has done: who runs, by server id, and who hears whom.
type world struct {
	up     map[string]bool
	groups [][]string // of server ids; who is in none is with all others in none
}

// group is the number of a server's group.
func (w world) group(id string) int {
	return slices.IndexFunc(w.groups, func(g []string) bool { return slices.Contains(g, id) })
}

// serves finds the group in which each of the configurations has a majority up: there a leader must be. A configuration that was proposed
// may be in force or not, so all that may be have a say.
func (w world) serves(configurations [][]string) (group int, ok bool) {
	for g := -1; g < len(w.groups); g++ {
		if len(configurations) > 0 && !slices.ContainsFunc(configurations, func(c []string) bool { return !w.majority(c, g) }) {
			return g, true
		}
	}
	return 0, false
}

// majority reports whether more than half of a configuration is up in a group.
func (w world) majority(configuration []string, group int) bool {
	n := 0
	for _, id := range configuration {
		if w.up[id] && w.group(id) == group {
			n++
		}
	}
	return 2*n > len(configuration)
}

// rests reports whether seats are as they stay, where at most size may be: an odd number, all up, and as many as those who are up allow; or
// some are not up, and nobody is there to take their place.
func (w world) rests(seats []string, size int) bool {
	up, all := 0, 0
	for _, id := range seats {
		if w.up[id] {
			up++
		}
	}
	for _, ok := range w.up {
		if ok {
			all++
		}
	}
	if len(seats)%2 == 0 || len(seats) > size {
		return false
	}
	if up < len(seats) {
		return up == all
	}
	return len(seats) == min(size, (all+1)/2*2-1)
}

// Bounds of what must be.
const (
	leaderWithin = 5 * time.Second
	// Where a change of seats was under way, peers may refuse their votes to who has the newest log until one of them insists, after ten
	// seconds.
	leaderAfterChange = 20 * time.Second
	evenAtMost        = 30 * time.Second
)

// seating is a configuration as some leader told it, and from when to when that was so.
type seating struct {
	seats       []string
	first, last time.Duration
}

// record is what leaders told of the seats, in order. It is told the time.
type record struct {
	all   []seating
	found error // the first thing that must not be
}

// told takes a leader's word; one that has just taken office may not know the seats yet.
func (r *record) told(now time.Duration, seats []string) {
	if len(seats) == 0 {
		return
	}
	n := len(r.all)
	if n == 0 || !slices.Equal(r.all[n-1].seats, seats) {
		r.all = append(r.all, seating{seats, now, now})
		return
	}
	s := &r.all[n-1]
	if now-s.last > 2*time.Second {
		s.first = now // nobody led meanwhile: nothing was at rest
	}
	s.last = now
	if len(seats)%2 == 0 && s.last-s.first > evenAtMost && r.found == nil {
		r.found = fmt.Errorf("%d seats for %v, and nothing changes: %v", len(seats), s.last-s.first, seats)
	}
}

// possible are the configurations that may be in force at now: the last, and those that had just been in force or had just come when it was
// told.
func (r *record) possible() (out [][]string) {
	if len(r.all) == 0 {
		return nil
	}
	last := r.all[len(r.all)-1]
	for _, s := range r.all {
		if last.last-s.last < 3*time.Second {
			out = append(out, s.seats)
		}
	}
	return out
}

// steady reports whether there was no change under way when the last leader spoke.
func (r *record) steady() bool {
	if len(r.all) == 0 {
		return false
	}
	last := r.all[len(r.all)-1]
	return len(last.seats)%2 == 1 && last.last-last.first > 3*time.Second
}

// bound is how long it may take until there is a leader.
func (r *record) bound() time.Duration {
	if r.steady() {
		return leaderWithin
	}
	return leaderAfterChange
}
