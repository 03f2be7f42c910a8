package pipeline

import (
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sources"
)

// assign begins an assignment. What an older one of the same partition has left open becomes void.
func (c *controller) assign(a sources.Assignment) {
	if old := c.parts[a.Partition]; old != nil {
		c.drop(old)
	}
	genesis, _ := c.genesis.LoadOrStore(a.Partition, a.Next)
	c.parts[a.Partition] = &part{
		id: a.Partition, epoch: a.Epoch, begin: a.Next, ids: newIDMaker(a.Partition),
		tracker: c.points.Assign(a.Partition, a.Epoch, a.Next),
		head:    sinks.Head{Genesis: genesis.(int64), Next: a.Next, Last: -1, LeaderEpoch: -1},
		backoff: flow.Backoff{Base: 100 * time.Millisecond, Max: 10 * time.Second},
		urgent:  !c.leaving.IsZero(), told: -1, place: -1,
	}
	if s := c.opt.Screening; s != nil && s.Begin != nil {
		s.Begin(a.Partition)
	}
	for _, l := range c.opt.Lanes {
		l.assigned(a.Partition)
	}
	c.opt.Log.Info("reading a partition", "partition", a.Partition.String(), "from", a.Next)
}

// revoke flushes what is open for the partitions and lets the source go on when that is stored and told, or when a bound has passed.
func (c *controller) revoke(ev sources.Revoked, now time.Time) {
	waiting := 1 // held until all partitions are looked at
	done := func() {
		if waiting--; waiting == 0 && ev.Done != nil {
			ev.Done()
		}
	}
	defer done()
	for _, id := range ev.Partitions {
		p := c.parts[id]
		if p == nil {
			delete(c.held, id)
			continue
		}
		c.dropParkedOf(id)
		if !c.releasing[p] {
			p.told, p.bound = -1, now.Add(c.opt.Release)
		}
		if ev.Lost || c.settled(p) {
			c.drop(p)
			continue
		}
		waiting++
		p.urgent, p.closed, p.released = true, true, append(p.released, done)
		c.releasing[p] = true
		c.plan(p)
		c.commitAt = now
	}
}

// settled reports whether nothing of p is open, and the source knows the position or does not take it.
func (c *controller) settled(p *part) bool {
	position := p.tracker.Position()
	last, known := c.points.LastCommitted(p.id)
	return p.idle() && (known && last >= position || p.told >= position || p.head.Last < 0)
}

// drop ends an assignment: what is open becomes void, and goes back to the source's log, where it still is.
func (c *controller) drop(p *part) {
	delete(c.parts, p.id)
	delete(c.ends, p.id)
	delete(c.held, p.id)
	delete(c.releasing, p)
	c.points.Revoke(p.id)
	c.dropParkedOf(p.id)
	for _, a := range p.abandon() {
		c.finish(a, checkpoint.Failed)
	}
	c.plan(p)
	c.endChain(p)
	for _, l := range c.opt.Lanes {
		l.revoked(p.id)
	}
	c.opt.Metrics.forget(c.opt.Stream, p.id)
	for _, released := range p.released {
		released()
	}
}

// endChain closes the chain of a partition that is not ours. While an Append is under way it stays open: settle asks again. The source
// may be about to assign the partition anew and have asked raw for its head already; then the next write opens the chain again.
// It is a call of its own, since raw may be busy beginning the chain.
func (c *controller) endChain(p *part) {
	if c.parts[p.id] != nil || c.busy[p.id] {
		return
	}
	c.busy[p.id] = true
	c.crew.begin("closing the chain of "+p.id.String(), func() {
		c.opt.Raw.End(p.id)
		c.report(written{part: p, ended: true})
	})
}

// finish ends a batch's way through the gate.
func (c *controller) finish(a admitted, st checkpoint.Status) {
	a.ack.Resolve(st)
	c.budget.Give(a.taken)
	a.batch.Release()
}
