package checkpoint

import (
	"fmt"
	"time"
)

// Tracker turns the acks of one partition under one assignment into its contiguous position: the offset up to which all is
// durable. Batches may become durable in any order; the position follows only without a hole. A failed batch stops it for
// good: nothing that succeeds later passes it. After Revoke it stands still whatever is resolved.
//
// It is a plain value of its owner's goroutine: no locks.
type Tracker struct {
	position int64
	open     []*Ack // in order of their spans; those in front are resolved first out
	failed   bool
	revoked  bool
}

// NewTracker begins at position.
func NewTracker(position int64) *Tracker { return &Tracker{position: position} }

// Begin registers the batch that follows the last one. Spans must be handed in without a hole: a batch that does not follow is
// a fault of the program, since everything between would be skipped, and panics.
func (t *Tracker) Begin(s Span, now time.Time) *Ack {
	if s.From != t.End() || s.Empty() {
		panic(fmt.Sprintf("checkpoint: batch %v does not follow %d", s, t.End()))
	}
	a := &Ack{Span: s, Since: now, parts: 1, owner: t}
	t.open = append(t.open, a)
	return a
}

// advance moves the position over the resolved batches in front.
func (t *Tracker) advance() {
	for !t.failed && !t.revoked && len(t.open) > 0 && t.open[0].done() {
		if t.open[0].worst != Durable {
			t.failed = true
			return
		}
		t.position = t.open[0].Span.To
		t.open = t.open[1:]
	}
}

// Position is the offset up to which everything is durable.
func (t *Tracker) Position() int64 { return t.position }

// End is the offset behind the last batch that was handed in.
func (t *Tracker) End() int64 {
	if n := len(t.open); n > 0 {
		return t.open[n-1].Span.To
	}
	return t.position
}

// Failed reports whether a batch failed, so that the position cannot move again under this assignment.
func (t *Tracker) Failed() bool { return t.failed }

// Revoke makes every ack that is still open void.
func (t *Tracker) Revoke() { t.revoked = true }

// Oldest is the age of the first batch that holds the position back, and false where none does.
func (t *Tracker) Oldest(now time.Time) (time.Duration, bool) {
	if len(t.open) == 0 {
		return 0, false
	}
	return now.Sub(t.open[0].Since), true
}
