package pipeline

import (
	"time"

	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
)

// parked holds what was polled while the budget was full. The source is paused while there is anything; partitions take turns, and
// within one the order stays.
type parked struct {
	line    flow.Line[record.Partition]
	batches map[record.Partition][]*record.Batch
	since   time.Time
	paused  bool // the source was told so
}

func newParked() parked { return parked{batches: map[record.Partition][]*record.Batch{}} }

func (p *parked) empty() bool { return p.line.Empty() }

func (p *parked) add(b *record.Batch) {
	p.line.Wait(b.Partition, b.Bytes)
	p.batches[b.Partition] = append(p.batches[b.Partition], b)
}

// next takes the batch whose turn it is, with its bytes, out of the budget.
func (p *parked) next(budget *flow.Budget) (*record.Batch, bool) {
	id, _, ok := p.line.Next(budget)
	if !ok {
		return nil, false
	}
	q := p.batches[id]
	b := q[0]
	q[0] = nil
	if p.batches[id] = q[1:]; len(q) == 1 {
		delete(p.batches, id)
	}
	return b, true
}

// polled takes a batch of the source.
func (c *controller) polled(b *record.Batch, now time.Time) {
	if !c.leaving.IsZero() {
		b.Release()
		return
	}
	if !c.parked.empty() { // to stay in order, and because nobody overtakes
		c.park(b, now)
		return
	}
	if b = c.fresh(b); b == nil {
		return
	}
	if !c.budget.TryTake(b.Bytes) {
		c.park(b, now)
		return
	}
	c.admit(b, now)
}

// fresh is the part of b that is new under the assignment of now; nil, and b released, where nothing is.
func (c *controller) fresh(b *record.Batch) *record.Batch {
	p := c.parts[b.Partition]
	if p == nil || p.epoch != b.Epoch || p.closed || b.Next <= p.tracker.End() {
		b.Release() // of an assignment that is over, whose next owner reads it again, or read twice
		return nil
	}
	if end := p.tracker.End(); b.First > end {
		c.opt.Log.Error("the source left out offsets; reading again from where it was", "partition", p.id.String(), "from", end, "got", b.First)
		p.closed = true
		c.opt.Source.Seek(p.id, end)
		b.Release()
		return nil
	}
	return b.From(p.tracker.End())
}

// admit puts a batch whose bytes are taken into its partition's open segment.
func (c *controller) admit(b *record.Batch, now time.Time) {
	p := c.parts[b.Partition]
	c.opt.Metrics.read(c.opt.Stream, b)
	pieces(b, c.opt.Flush, func(b *record.Batch) {
		p.admit(admitted{batch: b, ack: p.tracker.Begin(span(b), now), taken: b.Bytes})
	})
	c.plan(p)
}

// park keeps a batch that the budget has no room for, and pauses the source.
func (c *controller) park(b *record.Batch, now time.Time) {
	c.parked.add(b)
	if c.parked.paused {
		return
	}
	c.parked.paused, c.parked.since = true, now
	c.opt.Source.Pause()
	c.opt.Metrics.paused(c.opt.Stream, true)
}

// unpark admits what was parked, as far as the budget goes, and lets the source go on when nothing is left.
func (c *controller) unpark(now time.Time) {
	for b, ok := c.parked.next(&c.budget); ok; b, ok = c.parked.next(&c.budget) {
		took := b.Bytes
		if b = c.fresh(b); b == nil {
			c.budget.Give(took)
			continue
		}
		c.budget.Give(took - b.Bytes)
		c.admit(b, now)
	}
	if c.parked.paused && c.parked.empty() && c.leaving.IsZero() {
		c.parked.paused = false
		c.opt.Metrics.waited(c.opt.Stream, now.Sub(c.parked.since))
		c.opt.Metrics.paused(c.opt.Stream, false)
		c.opt.Source.Resume()
	}
}

// dropParkedOf lets go of what was parked of a partition.
func (c *controller) dropParkedOf(id record.Partition) {
	c.parked.line.Drop(id)
	for _, b := range c.parked.batches[id] {
		b.Release()
	}
	delete(c.parked.batches, id)
}

func (c *controller) dropParked() {
	for id := range c.parked.batches {
		c.dropParkedOf(id)
	}
}
