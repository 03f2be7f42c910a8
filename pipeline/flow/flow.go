// Package flow is the arithmetic of holding back: a budget of bytes, the order in which partitions wait for it, the pauses
// between attempts, and when none is worth its wait. It has no goroutine, no clock and no randomness of its own, and is not safe for concurrent use: one goroutine
// owns a value and is told what happens.
package flow

import "fmt"

// Budget is how many bytes may be in flight between two points. What is larger than the whole budget is not refused for ever:
// it passes alone, when nothing else is in flight, because waiting longer could not help it.
//
// Invariant: inFlight ≤ Cap, except while one piece that is larger than Cap is all there is in flight.
type Budget struct {
	Cap      int64 // bytes; may be changed at any time, what is in flight stays so
	inFlight int64
}

// TryTake takes n bytes, or nothing. Taking nothing of the budget always succeeds.
func (b *Budget) TryTake(n int64) bool {
	if n < 0 {
		panic(fmt.Sprintf("flow: %d bytes are taken", n))
	}
	if n > 0 && b.inFlight > 0 && n > b.Cap-b.inFlight {
		return false
	}
	b.inFlight += n
	return true
}

// Give returns n bytes that were taken. Returning more than was taken is a fault of the program and panics.
func (b *Budget) Give(n int64) {
	if n < 0 || n > b.inFlight {
		panic(fmt.Sprintf("flow: %d bytes come back, %d were taken", n, b.inFlight))
	}
	b.inFlight -= n
}

// InFlight is how many bytes are taken now.
func (b *Budget) InFlight() int64 { return b.inFlight }
