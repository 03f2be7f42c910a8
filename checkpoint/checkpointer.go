package checkpoint

import "time"

// Checkpointer holds the trackers of all partitions that are assigned now, and says which positions the source should be told.
// Keys are assignments, so that an ack of a revoked one finds nothing to move. K is the partition's type.
//
// Invariant: for one key the positions that Due returns never go back, also across assignments, unless Forget is called for an
// operator's reset.
type Checkpointer[K comparable] struct {
	trackers  map[K]*assigned
	committed map[K]int64
}

type assigned struct {
	*Tracker
	epoch uint64
}

// NewCheckpointer holds nothing yet.
func NewCheckpointer[K comparable]() *Checkpointer[K] {
	return &Checkpointer[K]{trackers: map[K]*assigned{}, committed: map[K]int64{}}
}

// Assign begins an assignment at position. What was open under an older one becomes void.
func (c *Checkpointer[K]) Assign(k K, epoch uint64, position int64) *Tracker {
	if old := c.trackers[k]; old != nil {
		old.Revoke()
	}
	t := NewTracker(position)
	c.trackers[k] = &assigned{t, epoch}
	return t
}

// Revoke ends the assignment.
func (c *Checkpointer[K]) Revoke(k K) {
	if t := c.trackers[k]; t != nil {
		t.Revoke()
		delete(c.trackers, k)
	}
}

// Tracker is the one of the assignment with that epoch, nil where it is over.
func (c *Checkpointer[K]) Tracker(k K, epoch uint64) *Tracker {
	if t := c.trackers[k]; t != nil && t.epoch == epoch {
		return t.Tracker
	}
	return nil
}

// Due lists the positions of assigned partitions that lie ahead of what was last committed.
func (c *Checkpointer[K]) Due() map[K]int64 {
	due := map[K]int64{}
	for k, t := range c.trackers {
		if last, ok := c.committed[k]; !ok || t.Position() > last {
			due[k] = t.Position()
		}
	}
	return due
}

// Committed notes that the source has position. A position behind the one noted before changes nothing.
func (c *Checkpointer[K]) Committed(k K, position int64) {
	if last, ok := c.committed[k]; !ok || position > last {
		c.committed[k] = position
	}
}

// LastCommitted is what Committed noted, and false where nothing was.
func (c *Checkpointer[K]) LastCommitted(k K) (int64, bool) {
	p, ok := c.committed[k]
	return p, ok
}

// Forget drops what was noted for k: an operator has set the position anew.
func (c *Checkpointer[K]) Forget(k K) { delete(c.committed, k) }

// Stalled is the partition whose oldest open batch has waited longest, with that age; false where nothing is open.
func (c *Checkpointer[K]) Stalled(now time.Time) (k K, age time.Duration, ok bool) {
	for key, t := range c.trackers {
		if a, open := t.Oldest(now); open && (!ok || a > age) {
			k, age, ok = key, a, true
		}
	}
	return k, age, ok
}
