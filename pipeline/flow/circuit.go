package flow

import "time"

// Circuit keeps others from waiting for what hangs. While it is closed everything is tried. Something that hung opens it: for a pause nothing
// is tried, then one attempt at a time is a probe, which closes it, or makes the next pause twice as long.
//
// What was under way beside the attempt that opened it neither closes it nor makes the pause longer: only a probe tells how it is now. It
// looks for no failures that come at once, since nobody waits for those.
//
// Invariants: probing only while open; pause is between First and Longest while open, and zero while closed.
type Circuit struct {
	First, Longest time.Duration // of the pauses, 0 < First ≤ Longest
	pause          time.Duration
	until          time.Time
	probing        bool
}

// Closed reports whether everything may be tried.
func (c *Circuit) Closed() bool { return c.pause == 0 }

// Probe reports whether, with the circuit open, one attempt may be made. If so that is under way until Hung or Answered tells how it ended.
func (c *Circuit) Probe(now time.Time) bool {
	if c.Closed() || c.probing || now.Before(c.until) {
		return false
	}
	c.probing = true
	return true
}

// Hung notes that an attempt got no answer in time. It reports whether that opened the circuit.
func (c *Circuit) Hung(now time.Time, probe bool) (opened bool) {
	opened = c.Closed()
	if !opened && !probe {
		return false
	}
	c.pause = min(max(2*c.pause, c.First), c.Longest)
	c.until, c.probing = now.Add(c.pause), false
	return opened
}

// Answered notes that an attempt ended in time, whatever the answer was.
func (c *Circuit) Answered(probe bool) {
	if probe {
		c.pause, c.until, c.probing = 0, time.Time{}, false
	}
}
