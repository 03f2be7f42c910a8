package fsm

import (
	"sync/atomic"
	"time"
)

// Clock is the cluster's time as a leader tells it: what the tables' time was when it took office, and what its own monotonic clock
// has gone since. It never goes back and is never faster than real time; without a leader it stands still. It is safe for
// concurrent use.
//
// A leader makes one each time it takes office, once it has applied all that it held: base is the time of its tables then.
type Clock struct {
	base  time.Duration
	now   func() time.Duration
	start time.Duration
	last  atomic.Int64
}

// NewClock starts a clock at base. now is a monotonic clock, wherever it began.
func NewClock(base time.Duration, now func() time.Duration) *Clock {
	c := &Clock{base: base, now: now, start: now()}
	c.last.Store(int64(base))
	return c
}

// Now is the cluster's time. Two calls, one after the other, never see it go back.
func (c *Clock) Now() time.Duration {
	t := int64(c.base + c.now() - c.start)
	for {
		last := c.last.Load()
		if t <= last {
			return time.Duration(last)
		}
		if c.last.CompareAndSwap(last, t) {
			return time.Duration(t)
		}
	}
}
