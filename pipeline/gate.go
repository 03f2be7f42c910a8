package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// written is how a commit to raw ended.
type written struct {
	part    *part
	batches []*record.Batch
	stored  sinks.Stored
	err     error
	took    time.Duration
	at      time.Time
	ended   bool // it was no commit: the chain was closed
}

// write begins a commit of what is open. The batches are held by the writer too, since the partition may be revoked, and what it
// had be given up, while the store still reads them.
func (c *controller) write(ctx context.Context, p *part) {
	w := written{part: p, batches: p.take(c.opt.Flush)}
	for _, b := range w.batches {
		b.Retain()
	}
	c.busy[p.id] = true
	c.plan(p)
	c.crew.begin("storing "+p.id.String(), func() {
		select {
		case c.slots <- struct{}{}:
			begin := time.Now()
			w.stored, w.err = c.append(ctx, p.id, w.batches)
			<-c.slots
			w.at = time.Now()
			w.took = w.at.Sub(begin)
		case <-ctx.Done():
			w.err = ctx.Err()
		}
		c.report(w)
	})
}

// errNoGenesis is never seen where the source asked the gate first, as it must.
var errNoGenesis = errors.New("a partition is written whose chain was never begun")

// append stores one commit. The chain may have been closed by the end of an earlier assignment after the source had asked where it
// ends; to begin it once more costs nothing where it is open.
func (c *controller) append(ctx context.Context, p record.Partition, batches []*record.Batch) (sinks.Stored, error) {
	_, err := c.opt.Raw.Begin(ctx, p, func(context.Context) (int64, error) { return 0, errNoGenesis })
	if err != nil {
		return sinks.Stored{}, err
	}
	return c.opt.Raw.Append(ctx, p, batches)
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

// settle takes the outcome of a commit. Where the partition was revoked meanwhile it changes nothing: the next owner finds in raw
// what is there.
func (c *controller) settle(w written, now time.Time) {
	p := w.part
	delete(c.busy, p.id)
	if w.err == nil {
		c.pace.observe(w.took)
	}
	if w.stored.Ours {
		c.mine[p.id] = w.stored.Next
	}
	switch {
	case c.parts[p.id] != p:
		if !w.ended {
			c.endChain(p)
		}
	case w.ended:
	case w.err != nil:
		c.unstored(p, w.err, now)
	default:
		c.stored(p, w)
	}
	for _, b := range w.batches {
		b.Release()
	}
	if p := c.parts[p.id]; p != nil {
		c.plan(p)
		if p.urgent && p.idle() {
			c.commitAt = now
		}
	}
}

// stored takes a commit that raw has answered. Only what we stored ourselves is offered to lanes.
func (c *controller) stored(p *part, w written) {
	p.head = w.stored.Head
	done := p.stored(p.head.Next)
	if w.stored.Ours {
		c.opt.Metrics.stored(c.opt.Stream, w.stored.Bytes, w.took, done)
	}
	for _, a := range done {
		if w.stored.Ours {
			a = c.onward(p, a, w.at)
		}
		c.finish(a, checkpoint.Durable)
	}
	if !w.stored.Ours {
		c.fenced(p)
	}
}

// onward sends a stored batch on its way to the lanes. What is returned has the bytes that may go back to the budget now.
func (c *controller) onward(p *part, a admitted, stored time.Time) admitted {
	c.sayGap(p, a.batch)
	if c.stage == nil {
		c.offer(p, a.batch, stored)
		return a
	}
	c.enter(p, a, stored)
	a.taken = 0
	return a
}

func (c *controller) sayGap(p *part, b *record.Batch) {
	if b.Gap != "" {
		c.opt.Log.Error("records are lost: the source no longer had them", "partition", p.id.String(), "from", b.First, "to", b.Next, "records", b.Next-b.First, "reason", b.Gap)
		c.opt.Metrics.gap(c.opt.Stream, b)
	}
}

// offer shows a stored batch to every lane. A lane that refuses has a gap, which recovery fills.
func (c *controller) offer(p *part, b *record.Batch, stored time.Time) {
	if len(c.opt.Lanes) == 0 {
		return
	}
	o := newOffered(b, stored, p.ids)
	for _, l := range c.opt.Lanes {
		l.Offer(o)
	}
}

// unstored keeps everything for another try.
func (c *controller) unstored(p *part, err error, now time.Time) {
	if p.failed == "" {
		c.opt.Log.Error("raw does not take a commit; no position moves, trying again", "partition", p.id.String(), "error", err)
	}
	c.opt.Metrics.gateFailed(c.opt.Stream)
	p.unstored(store.Describe(err), now.Add(p.backoff.Next(jitter())))
}

// fenced handles a commit whose place another writer took. What lay below its end is stored already, by the other, who also
// offers it to lanes; what is left becomes the next segment. Where nothing is left we are not the owner any more, unless the other was
// an earlier assignment of our own. A partition that is being revoked asks for nothing: its next owner has shown up early.
func (c *controller) fenced(p *part) {
	next := p.head.Next
	p.begin = next
	c.opt.Metrics.fenced(c.opt.Stream)
	switch {
	case !p.idle():
		c.opt.Log.Warn("another writer stored a part of what was open; going on behind it", "partition", p.id.String(), "next", next)
	case len(p.released) > 0:
	case c.mine[p.id] == next:
		p.closed = true
		c.opt.Source.Seek(p.id, next)
	default:
		c.opt.Log.Warn("fenced: another writer owns the chain now; rejoining", "partition", p.id.String(), "next", next)
		p.closed = true
		c.opt.Source.Seek(p.id, next)
		c.opt.Source.Rejoin()
	}
}

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
