package flow

import "time"

// Backoff says how long to pause before the next attempt: twice as long after each failure, up to Max, and of that a random part
// between a half and the whole, so that many who failed at the same moment do not come back at the same moment.
type Backoff struct {
	Base, Max time.Duration // 0 < Base ≤ Max
	failures  uint
}

// Next notes a failure and is the pause after it. r is a random number in [0, 1).
func (b *Backoff) Next(r float64) time.Duration {
	d := b.Max
	if b.failures < 63 && b.Base <= b.Max>>b.failures {
		d = b.Base << b.failures
		b.failures++
	}
	half := d / 2
	return half + time.Duration(r*float64(d-half))
}

// Reset notes a success: the next pause is a short one again.
func (b *Backoff) Reset() { b.failures = 0 }

// Failing reports whether the last attempt failed.
func (b *Backoff) Failing() bool { return b.failures > 0 }
