package checkpoint

import (
	"fmt"
	"time"
)

// Status is how the work on a batch ended. The worse of two is the greater.
type Status uint8

// The ends that a part of a batch can come to.
const (
	Durable Status = iota + 1 // stored; the position may pass it
	Failed                    // not stored, or not by us; the position stops in front of it
)

func (s Status) String() string {
	switch s {
	case Durable:
		return "durable"
	case Failed:
		return "failed"
	}
	return "pending"
}

// Ack stands for one polled batch that is on its way to durability. A batch may be stored in parts; each part resolves the ack
// once, and the worst status of all parts is the batch's. Resolving more often than there are parts panics: it would mean that
// somebody acknowledged what he did not hold. An ack that nobody resolves stalls its partition, which Tracker.Oldest shows.
type Ack struct {
	Span  Span
	Since time.Time // when the batch was handed over, for the age of a stall
	parts int
	worst Status
	owner *Tracker
}

// Split says that n parts more will resolve the ack.
func (a *Ack) Split(n int) {
	if a.parts == 0 {
		panic(fmt.Sprintf("checkpoint: ack %v is split after it was resolved", a.Span))
	}
	a.parts += n
}

// Resolve ends one part with st. It never blocks.
func (a *Ack) Resolve(st Status) {
	if a.parts == 0 {
		panic(fmt.Sprintf("checkpoint: ack %v is resolved twice", a.Span))
	}
	a.parts--
	a.worst = max(a.worst, st)
	if a.parts == 0 {
		a.owner.advance()
	}
}

func (a *Ack) done() bool { return a.parts == 0 }
