package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sources"
)

// controller owns everything between the source and the lanes. Only its goroutine touches its fields, except those that say so.
type controller struct {
	opt    Options
	budget flow.Budget
	points *checkpoint.Checkpointer[record.Partition]
	parts  map[record.Partition]*part
	held   map[record.Partition]string
	ends   map[record.Partition]int64

	parked      []*record.Batch // polled, but the budget was full: the source is paused while there are any
	parkedAt    time.Time
	events      chan sources.Event
	written     chan written
	slots       chan struct{} // commits under way
	committed   chan committed
	committing  bool
	commitAt    time.Time
	commitError error
	gone        chan struct{} // closed when nobody takes outcomes any more

	leaving  bool      // ctx has ended: flush and go
	deadline time.Time // of the grace period, once leaving

	gateFailed failures // safe for concurrent use
	genesis    sync.Map // record.Partition → int64, where raw's chain begins; safe for concurrent use
}

// written is how a commit to raw ended.
type written struct {
	part    *part
	batches []*record.Batch
	stored  sinks.Stored
	err     error
	took    time.Duration
	at      time.Time
}

// committed is how telling the source ended.
type committed struct {
	positions []sources.Position
	err       error
}

func newController(opt Options) *controller {
	return &controller{
		opt: opt, budget: flow.Budget{Cap: opt.Budget},
		points: checkpoint.NewCheckpointer[record.Partition](),
		parts:  map[record.Partition]*part{}, held: map[record.Partition]string{}, ends: map[record.Partition]int64{},
		events: make(chan sources.Event), written: make(chan written), committed: make(chan committed, 1),
		slots: make(chan struct{}, opt.Writers), gone: make(chan struct{}),
	}
}

// run is the one place that waits. soft ends when the process should go, hard when it must.
func (c *controller) run(soft, hard context.Context, ask <-chan func(*controller)) error {
	reading, stopReading := context.WithCancel(hard)
	defer stopReading()
	ended := make(chan error, 1)
	go func() { ended <- c.read(reading) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	softDone := soft.Done()
	for {
		now := time.Now()
		c.step(hard, now)
		if c.leaving && c.finished(now) {
			break
		}
		timer.Reset(c.wake(now).Sub(now))
		select {
		case ev := <-c.events:
			c.handle(ev, time.Now())
		case w := <-c.written:
			c.settle(w)
		case done := <-c.committed:
			c.noteCommitted(done)
		case f := <-ask:
			f(c)
		case err := <-ended:
			ended = nil
			if err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("reading the source: %w", err)
			}
			c.leave(time.Now())
		case <-softDone:
			softDone = nil
			c.leave(time.Now())
		case <-timer.C:
		}
	}
	return c.goodbye(hard, stopReading, ended)
}

// read hands the source's events over, one by one, until it ends.
func (c *controller) read(ctx context.Context) error {
	for {
		ev, err := c.opt.Source.Next(ctx)
		if err != nil {
			return err
		}
		if _, ok := ev.(sources.Exhausted); ok {
			return nil
		}
		select {
		case c.events <- ev:
		case <-ctx.Done():
			release(ev)
			return ctx.Err()
		}
	}
}

// release lets go of an event that nobody will handle.
func release(ev sources.Event) {
	switch ev := ev.(type) {
	case sources.Polled:
		for _, b := range ev.Batches {
			b.Release()
		}
	case sources.Revoked:
		if ev.Done != nil {
			ev.Done()
		}
	}
}

// handle takes one event of the source.
func (c *controller) handle(ev sources.Event, now time.Time) {
	switch ev := ev.(type) {
	case sources.Assigned:
		for _, a := range ev.Partitions {
			c.assign(a)
		}
	case sources.Revoked:
		c.revoke(ev, now)
	case sources.Polled:
		for _, b := range ev.Batches {
			c.polled(b, now)
		}
	case sources.Held:
		c.hold(ev)
	case sources.Ends:
		for p, end := range ev.Ends {
			c.ends[p] = end
		}
	case sources.Notice:
		c.opt.Log.Warn(ev.Text, "event", ev.Kind, "partition", ev.Partition.String())
		c.opt.Metrics.notice(c.opt.Stream, ev.Kind)
	}
}

func (c *controller) assign(a sources.Assignment) {
	if old := c.parts[a.Partition]; old != nil {
		c.drop(old)
	}
	t := c.points.Assign(a.Partition, a.Epoch, a.Next)
	genesis, _ := c.genesis.LoadOrStore(a.Partition, a.Next)
	c.parts[a.Partition] = &part{
		id: a.Partition, epoch: a.Epoch, tracker: t, begin: a.Next, ids: newIDMaker(a.Partition),
		head:    sinks.Head{Genesis: genesis.(int64), Next: a.Next, Last: -1, LeaderEpoch: -1},
		backoff: flow.Backoff{Base: 100 * time.Millisecond, Max: 10 * time.Second},
		urgent:  c.leaving,
	}
	for _, l := range c.opt.Lanes {
		l.assigned(a.Partition, a.Next)
	}
	c.opt.Log.Info("reading a partition", "partition", a.Partition.String(), "from", a.Next)
}

// revoke flushes what is open for the partitions and lets the source go on when that is stored and committed.
func (c *controller) revoke(ev sources.Revoked, now time.Time) {
	waiting := 0
	done := func() {
		if waiting--; waiting == 0 && ev.Done != nil {
			ev.Done()
		}
	}
	waiting++ // held until all partitions are looked at
	for _, id := range ev.Partitions {
		p := c.parts[id]
		if p == nil {
			continue
		}
		c.unpark(func(b *record.Batch) bool { return b.Partition == id })
		if ev.Lost || p.idle() && c.settledPosition(p) {
			c.drop(p)
			continue
		}
		waiting++
		p.urgent, p.released = true, done
		c.commitAt = now
	}
	done()
}

// settledPosition reports whether the source knows the position already.
func (c *controller) settledPosition(p *part) bool {
	last, ok := c.points.LastCommitted(p.id)
	return ok && last >= p.tracker.Position() || p.tracker.Position() == p.head.Next && p.head.Last < 0
}

// drop ends an assignment: what is open becomes void, and goes back to the source's log, where it still is.
func (c *controller) drop(p *part) {
	if c.parts[p.id] == p {
		delete(c.parts, p.id)
		delete(c.ends, p.id)
		delete(c.held, p.id)
		c.points.Revoke(p.id)
	}
	p.tracker.Revoke()
	flying := len(p.flying) > 0
	for _, a := range p.abandon() {
		c.finish(a, checkpoint.Failed)
	}
	if !flying {
		c.end(p.id)
	}
	for _, l := range c.opt.Lanes {
		l.revoked(p.id)
	}
	c.opt.Metrics.forget(c.opt.Stream, p.id)
	if p.released != nil {
		p.released()
	}
}

// end closes the chain, unless a new assignment uses it by now.
func (c *controller) end(id record.Partition) {
	if c.parts[id] == nil {
		c.opt.Raw.End(id)
	}
}

// finish ends a batch's way through the gate.
func (c *controller) finish(a admitted, st checkpoint.Status) {
	a.ack.Resolve(st)
	c.budget.Give(a.taken)
	a.batch.Release()
}

// polled takes a batch of the source: under the right assignment, and following what was read before.
func (c *controller) polled(b *record.Batch, now time.Time) {
	if c.leaving || len(c.parked) > 0 {
		c.park(b, now)
		return
	}
	p := c.parts[b.Partition]
	if p == nil || p.epoch != b.Epoch || p.released != nil || p.fenced {
		b.Release() // of an assignment that is over: its next owner reads it again
		return
	}
	switch end := p.tracker.End(); {
	case b.Next <= end:
		b.Release()
		return
	case b.First > end:
		c.opt.Log.Error("the source left out offsets; reading again from where it was", "partition", p.id.String(), "from", end, "got", b.First)
		c.opt.Source.Seek(p.id, end)
		b.Release()
		return
	default:
		b = b.From(end)
	}
	if !c.budget.TryTake(b.Bytes) {
		c.park(b, now)
		return
	}
	ack := p.tracker.Begin(span(b), now)
	p.admit(admitted{batch: b, ack: ack, taken: b.Bytes}, now)
	c.opt.Metrics.read(c.opt.Stream, b)
}

// park keeps a batch that the budget has no room for, and pauses the source. What arrives behind it parks too, to stay in order.
func (c *controller) park(b *record.Batch, now time.Time) {
	if c.leaving {
		b.Release()
		return
	}
	if len(c.parked) == 0 {
		c.parkedAt = now
		c.opt.Source.Pause()
		c.opt.Metrics.paused(c.opt.Stream, true)
	}
	c.parked = append(c.parked, b)
}

// unparkAll admits what was parked, as far as the budget goes.
func (c *controller) unparkAll(now time.Time) {
	if len(c.parked) == 0 {
		return
	}
	waiting := c.parked
	c.parked = nil
	for i, b := range waiting {
		before := len(c.parked)
		c.polledQuiet(b, now)
		if len(c.parked) > before {
			c.parked = append(c.parked, waiting[i+1:]...)
			return
		}
	}
	c.opt.Metrics.waited(c.opt.Stream, now.Sub(c.parkedAt))
	c.opt.Metrics.paused(c.opt.Stream, false)
	c.opt.Source.Resume()
}

// polledQuiet is polled for a batch that was parked before: the source is paused already.
func (c *controller) polledQuiet(b *record.Batch, now time.Time) {
	at := c.parkedAt
	c.polled(b, now)
	c.parkedAt = at
}

// unpark lets go of parked batches.
func (c *controller) unpark(which func(*record.Batch) bool) {
	kept := c.parked[:0]
	for _, b := range c.parked {
		if which(b) {
			b.Release()
		} else {
			kept = append(kept, b)
		}
	}
	c.parked = kept
}

func (c *controller) hold(ev sources.Held) {
	if ev.Reason == "" {
		delete(c.held, ev.Partition)
		c.opt.Log.Info("a partition is read again", "partition", ev.Partition.String())
		return
	}
	if c.held[ev.Partition] != ev.Reason {
		c.opt.Log.Error("a partition is held and not read", "partition", ev.Partition.String(), "reason", ev.Reason)
	}
	c.held[ev.Partition] = ev.Reason
}

// step begins whatever is due.
func (c *controller) step(hard context.Context, now time.Time) {
	c.unparkAll(now)
	c.flushLargestWhenTight()
	for _, p := range c.parts {
		if ok, _ := p.due(now, c.opt.Flush); ok {
			c.write(hard, p, now)
		}
	}
	if !now.Before(c.commitAt) {
		c.commit(hard, now)
	}
	c.releaseDrained()
}

// flushLargestWhenTight keeps many partitions on a slow store from holding the whole budget until their ages run out: once
// 70 % are taken, the largest open segment is stored early.
func (c *controller) flushLargestWhenTight() {
	if c.budget.InFlight() < c.opt.Budget/10*7 {
		return
	}
	var largest *part
	for _, p := range c.parts {
		if len(p.flying) == 0 && len(p.open) > 0 && p.failed == "" && (largest == nil || p.bytes > largest.bytes) {
			largest = p
		}
	}
	if largest != nil {
		largest.since = time.Time{} // as old as can be
	}
}

// wake is when step has to look again though nothing happens.
func (c *controller) wake(now time.Time) time.Time {
	at := c.commitAt
	if c.leaving && c.deadline.Before(at) {
		at = c.deadline
	}
	for _, p := range c.parts {
		if _, w := p.due(now, c.opt.Flush); !w.IsZero() && w.Before(at) {
			at = w
		}
	}
	return at
}

// releaseDrained lets the source go on with partitions whose last commit is stored and told.
func (c *controller) releaseDrained() {
	for _, p := range c.parts {
		if p.released != nil && p.idle() && c.settledPosition(p) {
			c.drop(p)
		}
	}
}

// leave begins the end: no more reading, everything open is stored.
func (c *controller) leave(now time.Time) {
	if c.leaving {
		return
	}
	c.leaving = true
	c.deadline = now.Add(c.opt.Grace * 6 / 10) // the rest is for the lanes and the source
	c.opt.Source.Pause()
	c.unpark(func(*record.Batch) bool { return true })
	for _, p := range c.parts {
		p.urgent = true
	}
	c.commitAt = now
}

// finished reports whether shutdown has nothing to wait for any more, or no time.
func (c *controller) finished(now time.Time) bool {
	if !now.Before(c.deadline) {
		return true
	}
	for _, p := range c.parts {
		if !p.idle() {
			return false
		}
	}
	if c.committing {
		return false
	}
	return len(c.points.Due()) == 0 || c.commitFailed()
}

// goodbye ends what the controller started, and says what was left.
func (c *controller) goodbye(hard context.Context, stopReading func(), ended chan error) error {
	stopReading()
	for ended != nil {
		select {
		case ev := <-c.events:
			release(ev)
		case <-ended:
			ended = nil
		}
	}
	close(c.gone)
	left := false
	for _, p := range c.parts {
		left = left || !p.idle()
		c.drop(p)
	}
	if left {
		return ErrUnfinished
	}
	return nil
}

// graceLeft is what remains of the grace period for those behind the gate.
func (c *controller) graceLeft() time.Duration {
	if !c.leaving {
		return c.opt.Grace
	}
	whole := c.deadline.Add(c.opt.Grace * 3 / 10)
	return max(time.Until(whole), c.opt.Grace/10)
}

// jitter is the randomness of backoffs.
func jitter() float64 { return rand.Float64() }
