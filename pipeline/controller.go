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
	"github.com/stream-arrow/twgd/sources"
)

// controller owns everything between the source and the lanes. Only its goroutine touches its fields, except those that say so.
type controller struct {
	opt    Options // Budget and Flush are those of now
	crew   *crew
	budget flow.Budget
	points *checkpoint.Checkpointer[record.Partition]
	parts  map[record.Partition]*part
	held   map[record.Partition]string
	ends   map[record.Partition]int64

	agenda    agenda                     // parts with something open and no commit under way
	busy      map[record.Partition]bool  // chains with an Append under way, perhaps of an assignment that is over
	mine      map[record.Partition]int64 // where what this process stored last ends
	releasing map[*part]bool             // revoked: the source waits for them
	parked    parked

	events     chan sources.Event
	written    chan written
	slots      chan struct{} // commits under way
	committed  chan committed
	committing bool
	commitAt   time.Time
	gone       chan struct{} // closed when nobody takes outcomes any more

	broken  error     // why the source delivers nothing any more
	leaving time.Time // when the end began, zero before: flush and go

	pace pace

	stage    *stage        // nil without screening
	screened chan screened // how its questions ended
	counted  DedupStatus   // what the metrics know of its counts
	unnoted  bool          // the last note failed

	configured Options         // Budget and Flush as they were at first
	resized    <-chan struct{} // says that newBudget has another answer
	newBudget  func() int64

	begins     turns    // safe for concurrent use
	gateFailed failures // safe for concurrent use
	genesis    sync.Map // record.Partition → int64, where raw's chain begins; safe for concurrent use
}

func newController(opt Options, crew *crew) *controller {
	c := &controller{
		opt: opt, configured: opt, crew: crew, budget: flow.Budget{Cap: opt.Budget},
		points: checkpoint.NewCheckpointer[record.Partition](),
		parts:  map[record.Partition]*part{}, held: map[record.Partition]string{}, ends: map[record.Partition]int64{},
		busy: map[record.Partition]bool{}, mine: map[record.Partition]int64{}, releasing: map[*part]bool{}, parked: newParked(),
		events: make(chan sources.Event), written: make(chan written), committed: make(chan committed, 1),
		slots: make(chan struct{}, opt.Writers), gone: make(chan struct{}), begins: make(turns, begins),
	}
	if opt.Screening != nil {
		c.stage, c.screened = newStage(opt.Screening.Drop), make(chan screened)
	}
	return c
}

// run is the one place that waits. soft ends when the process should go, hard when it must.
func (c *controller) run(soft, hard context.Context, ask <-chan func(*controller)) error {
	work, stop := context.WithCancel(hard)
	defer stop()
	ended := make(chan error, 1)
	c.crew.begin("reading the source", func() { ended <- c.read(work) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	softDone := soft.Done()
	for {
		now := time.Now()
		c.step(work, now)
		if c.finished(now) {
			break
		}
		timer.Reset(c.wake(now).Sub(now))
		select {
		case ev := <-c.events:
			c.handle(ev, time.Now())
		case w := <-c.written:
			c.settle(w, time.Now())
		case done := <-c.committed:
			c.noteCommitted(done, time.Now())
		case s := <-c.screened:
			c.noteScreened(s, time.Now())
		case f := <-ask:
			f(c)
		case <-c.resized:
			c.resize(c.newBudget())
		case err := <-ended:
			ended = nil
			c.readingEnded(err)
		case <-softDone:
			softDone = nil
			c.leave(time.Now())
		case <-timer.C:
		}
	}
	stop()
	return errors.Join(c.broken, c.goodbye(ended))
}

// rest is run where there is no source: it answers questions until ctx ends.
func (c *controller) rest(ctx context.Context, ask <-chan func(*controller)) error {
	for {
		select {
		case f := <-ask:
			f(c)
		case <-ctx.Done():
			c.leaving = time.Now()
			return nil
		}
	}
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

// readingEnded takes the end of the source: it has delivered all it has, or is broken for good. What was read is stored all the same.
func (c *controller) readingEnded(err error) {
	if err != nil {
		c.broken = fmt.Errorf("reading the source: %w", err)
	}
	c.leave(time.Now())
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
			if c.parts[p] != nil {
				c.ends[p] = end
			}
		}
	case sources.Notice:
		c.notice(ev)
	}
}

func (c *controller) hold(ev sources.Held) {
	what, log := "a partition", c.opt.Log.With("partition", ev.Partition.String())
	if ev.Partition.Topic == "" {
		what, log = "the stream", c.opt.Log
	}
	was := c.held[ev.Partition]
	switch {
	case ev.Reason == "":
		delete(c.held, ev.Partition)
		if was != "" {
			log.Info(what + " is read again")
		}
		return
	case ev.Reason != was:
		log.Error(what+" is held and not read", "reason", ev.Reason)
	}
	c.held[ev.Partition] = ev.Reason
}

// notice logs an event; one that is of no partition names none.
func (c *controller) notice(ev sources.Notice) {
	log := c.opt.Log
	if ev.Partition.Topic != "" {
		log = log.With("partition", ev.Partition.String())
	}
	log.Warn(ev.Text, "event", ev.Kind)
	c.opt.Metrics.notice(c.opt.Stream, ev.Kind)
}

// step begins whatever is due.
func (c *controller) step(work context.Context, now time.Time) {
	c.screen(work, now)
	c.unpark(now)
	c.flushLargestWhenTight()
	for p := c.agenda.next(); p != nil && !p.at.After(now); p = c.agenda.next() {
		c.write(work, p)
	}
	if !now.Before(c.commitAt) {
		c.commit(work, now)
	}
	for p := range c.releasing {
		if c.settled(p) || !now.Before(p.bound) {
			c.drop(p)
		}
	}
}

// plan enters a part into the agenda as it is now. Whoever changes a part calls it afterwards.
func (c *controller) plan(p *part) {
	at, ok := p.due(c.flush())
	c.agenda.put(p, at, ok && c.parts[p.id] == p && !c.busy[p.id])
}

// flushLargestWhenTight keeps many partitions on a slow store from holding the whole budget until their ages run out: once
// 70 % are taken, or somebody waits, the largest open segment is stored early, as long as not all writers are at work.
func (c *controller) flushLargestWhenTight() {
	if len(c.busy) >= c.opt.Writers || !c.tight() {
		return
	}
	var largest *part
	for _, p := range c.agenda {
		if p.failed == "" && !p.early && (largest == nil || p.bytes > largest.bytes) {
			largest = p
		}
	}
	if largest != nil {
		largest.early = true
		c.plan(largest)
	}
}

// tight reports whether the budget is short because of what is open. What is being screened is not open any more: to store small segments
// would not bring its bytes back.
func (c *controller) tight() bool {
	screening := c.stage.holding()
	return c.budget.InFlight()-screening >= c.budget.Cap/10*7 || !c.parked.empty() && screening < c.budget.Cap/2
}

// wake is when step has to look again though nothing happens.
func (c *controller) wake(now time.Time) time.Time {
	at := c.commitAt
	sooner := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if !c.leaving.IsZero() {
		sooner(c.deadline())
	}
	if p := c.agenda.next(); p != nil {
		sooner(p.at)
	}
	if t, ok := c.stage.wake(); ok {
		sooner(t)
	}
	for p := range c.releasing {
		sooner(p.bound)
	}
	return at
}

// leave begins the end: no more reading, everything open is stored.
func (c *controller) leave(now time.Time) {
	if !c.leaving.IsZero() {
		return
	}
	c.leaving = now
	c.opt.Source.Pause()
	c.dropParked()
	for _, p := range c.parts {
		p.urgent, p.told = true, -1
		c.plan(p)
	}
	c.commitAt = now
}

// deadline is when the gate gives up: the rest of the grace period is for the lanes and the source.
func (c *controller) deadline() time.Time { return c.leaving.Add(c.opt.Grace * 6 / 10) }

// finished reports whether shutdown has nothing to wait for any more, or no time.
func (c *controller) finished(now time.Time) bool {
	if c.leaving.IsZero() {
		return false
	}
	if !now.Before(c.deadline()) {
		return true
	}
	for _, p := range c.parts {
		if !c.settled(p) {
			return false
		}
	}
	return !c.committing && c.stage.empty()
}

// goodbye ends what the controller started, and says what was left.
func (c *controller) goodbye(ended chan error) error {
	patience := time.NewTimer(max(c.graceLeft(7), c.opt.Grace/10))
	defer patience.Stop()
	for ended != nil {
		select {
		case ev := <-c.events:
			release(ev)
		case <-ended:
			ended = nil
		case <-patience.C:
			ended = nil
		}
	}
	close(c.gone)
	c.letAllLeave()
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

// graceLeft is what remains until so many tenths of the grace period have passed, at least a hundredth of it.
func (c *controller) graceLeft(tenths int) time.Duration {
	if c.leaving.IsZero() {
		c.leaving = time.Now()
	}
	return max(time.Until(c.leaving.Add(c.opt.Grace*time.Duration(tenths)/10)), c.opt.Grace/100)
}

// jitter is the randomness of backoffs.
func jitter() float64 { return rand.Float64() }

// flush is when segments are stored, with the age that commits allow at present.
func (c *controller) flush() Flush {
	f := c.opt.Flush
	f.Age = c.pace.age(f.Age, c.agenda.Len()+len(c.busy), c.opt.Writers)
	if c.pace.tell(c.opt.Flush.Age, f.Age, time.Now()) {
		c.opt.Log.Warn("the age at which segments are stored follows the time that commits take", "configured", c.opt.Flush.Age, "now", f.Age)
	}
	return f
}
