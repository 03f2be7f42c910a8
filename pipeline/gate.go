package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/store"
)

// write begins a commit of what is open. The batches are held by the writer too, since the partition may be revoked, and what it
// had be given up, while the store still reads them.
func (c *controller) write(ctx context.Context, p *part, now time.Time) {
	batches := p.take(c.opt.Flush, now)
	for _, b := range batches {
		b.Retain()
	}
	go func() {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			c.report(written{part: p, batches: batches, err: ctx.Err(), at: time.Now()})
			return
		}
		begin := time.Now()
		stored, err := c.opt.Raw.Append(ctx, p.id, batches)
		<-c.slots
		c.report(written{part: p, batches: batches, stored: stored, err: err, took: time.Since(begin), at: time.Now()})
	}()
}

// report hands the outcome to the controller, unless that has ended.
func (c *controller) report(w written) {
	select {
	case c.written <- w:
	case <-c.gone:
		for _, b := range w.batches {
			b.Release()
		}
	}
}

// settle takes the outcome of a commit.
func (c *controller) settle(w written) {
	p, now := w.part, time.Now()
	defer func() {
		for _, b := range w.batches {
			b.Release()
		}
	}()
	if c.parts[p.id] != p { // revoked meanwhile: the next owner finds in raw what is there
		c.end(p.id)
		return
	}
	if w.err != nil {
		c.unstored(p, w, now)
		return
	}
	p.head = w.stored.Head
	if !w.stored.Ours {
		c.fenced(p, now)
		return
	}
	done := p.stored(w.stored.Next, now)
	c.opt.Metrics.stored(c.opt.Stream, w.stored.Bytes, w.took, done)
	for _, a := range done {
		c.offer(p, a.batch, w.at)
		c.finish(a, checkpoint.Durable)
	}
	if p.urgent && p.idle() {
		c.commitAt = now
	}
}

// offer shows a stored batch to every lane. A lane that refuses has a gap, which recovery fills.
func (c *controller) offer(p *part, b *record.Batch, stored time.Time) {
	if b.Gap != "" {
		c.opt.Log.Error("records are lost: the source no longer had them", "partition", p.id.String(), "from", b.First, "to", b.Next, "records", b.Next-b.First, "reason", b.Gap)
		c.opt.Metrics.gap(c.opt.Stream, b)
	}
	o := newOffered(b, stored, p.ids)
	for _, l := range c.opt.Lanes {
		l.Offer(o)
	}
}

// unstored keeps everything for another try.
func (c *controller) unstored(p *part, w written, now time.Time) {
	if p.failed == "" {
		c.opt.Log.Error("raw does not take a commit; no position moves, trying again", "partition", p.id.String(), "error", w.err)
	}
	c.opt.Metrics.gateFailed(c.opt.Stream)
	p.unstored(store.Describe(w.err), now.Add(p.backoff.Next(jitter())), now)
}

// fenced handles a commit whose place another writer took. What lies below its end is stored already, by the other, who also
// offers it to lanes; what is left becomes the next segment. Where nothing is left we are not the owner any more.
func (c *controller) fenced(p *part, now time.Time) {
	next := p.head.Next
	for _, a := range p.dropBelow(next, now) {
		c.finish(a, checkpoint.Durable)
	}
	if !p.idle() {
		c.opt.Log.Warn("another writer stored a part of what was open; going on behind it", "partition", p.id.String(), "next", next)
		return
	}
	c.opt.Log.Warn("fenced: another writer owns the chain now; rejoining", "partition", p.id.String(), "next", next)
	p.fenced = true
	c.opt.Metrics.fenced(c.opt.Stream)
	c.opt.Source.Seek(p.id, next)
	c.opt.Source.Rejoin()
}

// commit tells the source how far raw is: at most one call at a time, for what has moved since the last.
func (c *controller) commit(ctx context.Context, now time.Time) {
	c.commitAt = now.Add(c.opt.Commit)
	if c.committing {
		return
	}
	due := c.points.Due()
	if len(due) == 0 {
		return
	}
	positions := make([]sources.Position, 0, len(due))
	for id, next := range due {
		head := c.parts[id].head
		positions = append(positions, sources.Position{Partition: id, Next: next, First: head.Last, LeaderEpoch: head.LeaderEpoch})
	}
	c.committing = true
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		c.committed <- committed{positions, c.opt.Source.Commit(ctx, positions)}
	}()
}

func (c *controller) noteCommitted(done committed) {
	c.committing = false
	if done.err != nil {
		if c.commitError == nil {
			c.opt.Log.Warn("the source does not take the position; it is a hint only, raw has the truth", "error", done.err)
		}
		c.commitError = fmt.Errorf("committing positions: %w", done.err)
		return
	}
	c.commitError = nil
	for _, pos := range done.positions {
		c.points.Committed(pos.Partition, pos.Next)
		c.opt.Metrics.position(c.opt.Stream, pos)
	}
}

// commitFailed reports whether the last try to tell the source failed: shutdown does not wait for another.
func (c *controller) commitFailed() bool { return c.commitError != nil }

// failures notes, from any goroutine, for which partitions raw did not answer.
type failures struct {
	mu sync.Mutex
	m  map[record.Partition]string
}

// set reports whether the failure is new.
func (f *failures) set(p record.Partition, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = map[record.Partition]string{}
	}
	_, known := f.m[p]
	f.m[p] = store.Describe(err)
	return !known
}

func (f *failures) clear(p record.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m, p)
}

// any is one of them, empty where there is none.
func (f *failures) any() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, reason := range f.m {
		return p.String() + ": " + reason
	}
	return ""
}
