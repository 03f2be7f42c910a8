package dedupset

import "time"

// circuit decides whether a call is worth its wait. While it is closed every call goes out. A call that fails opens it: for a pause
// nobody is asked, so that a stream whose quorum is away waits once and not with every batch. After the pause one call at a time is a
// probe: if it succeeds the circuit is closed, if it fails the next pause is twice as long. It is told the time, and is guarded by who
// holds it.
//
// What a call says counts only in the epoch in which it was let in. So of many calls that were under way when the first of them failed
// the others neither close the circuit behind its back nor make the pause longer.
type circuit struct {
	open    bool
	probing bool          // one call is under way to find out
	epoch   uint64        // grows each time the circuit opens, closes or probes
	until   time.Duration // nobody is asked before; of the clock that it is told
	pause   time.Duration // the last one, without its jitter; zero while closed
	since   time.Duration // when it was opened
	reason  string        // why it is open: of the last failure
}

// Pauses of an open circuit. What is really waited is up to a fifth less, by chance, so that nodes do not ask in step.
const (
	firstPause = time.Second
	longPause  = 10 * time.Second
)

// ticket is what a call was let in with.
type ticket struct{ epoch uint64 }

// admit lets a call in, or not.
func (c *circuit) admit(now time.Duration) (ticket, bool) {
	if c.shut(now) {
		return ticket{}, false
	}
	if c.open {
		c.probing = true
		c.epoch++
	}
	return ticket{c.epoch}, true
}

// shut says whether a call would be turned away at this moment.
func (c *circuit) shut(now time.Duration) bool { return c.open && (c.probing || now < c.until) }

// succeed takes in that a call was answered. It reports whether that closed the circuit.
func (c *circuit) succeed(t ticket) (closed bool) {
	if t.epoch != c.epoch || !c.open {
		return false
	}
	*c = circuit{epoch: c.epoch + 1}
	return true
}

// fail takes in that a call was not answered. chance is in [0, 1). It reports whether that opened the circuit.
func (c *circuit) fail(now time.Duration, t ticket, reason string, chance float64) (opened bool) {
	if t.epoch != c.epoch {
		return false
	}
	opened = !c.open
	if opened {
		c.since = now
	}
	c.open, c.probing, c.reason = true, false, reason
	c.epoch++
	c.pause = min(max(2*c.pause, firstPause), longPause)
	c.until = now + c.pause - time.Duration(chance*float64(c.pause/5))
	return opened
}

// withdraw takes in that a call ended without telling anything. If it was the probe the next call is.
func (c *circuit) withdraw(t ticket) {
	if t.epoch == c.epoch {
		c.probing = false
	}
}

func (c *circuit) text() string {
	switch {
	case c.probing:
		return "probing"
	case c.open:
		return "open"
	}
	return "closed"
}
