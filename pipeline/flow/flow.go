package flow

import "time"

// Budget counts bytes in flight.
type Budget struct{ Cap, used int64 }

// TryTake takes n bytes; more than the whole budget passes alone.
func (b *Budget) TryTake(n int64) bool {
	if b.used > 0 && b.used+n > b.Cap {
		return false
	}
	b.used += n
	return true
}

// Give gives n bytes back.
func (b *Budget) Give(n int64) { b.used -= n }

// InFlight is what is taken.
func (b *Budget) InFlight() int64 { return b.used }

// Backoff grows.
type Backoff struct {
	Base, Max time.Duration
	n         int
}

// Next is the next delay; r is random in [0, 1).
func (b *Backoff) Next(r float64) time.Duration {
	d := min(b.Base<<min(b.n, 20), b.Max)
	b.n++
	return d/2 + time.Duration(r*float64(d)/2)
}

// Reset begins anew.
func (b *Backoff) Reset() { b.n = 0 }
