package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Roll says when a load is closed and committed: at the first limit it reaches.
type Roll struct {
	Rows  int64
	Bytes int64 // of output, as far as the sink knows it
	Age   time.Duration
}

// LaneOptions of one sink of one stream.
type LaneOptions struct {
	Stream, Name string
	Sink         sinks.Sink
	Cuts         sinks.Cuts // for a sink with cuts, else nil
	Roll         Roll
	Deadline     time.Duration // from the gate's receipt; what is not written by then becomes a gap
	Queue        int64         // bytes that the lane may hold, open loads included
	MaxRecord    int64         // larger records are rejected as oversize; 0 means no limit
	Report       sinks.Report  // makes rejects durable
	Duplicates   Duplicates    // what Carry leaves out; nil: nothing
	Covered      func(record.Partition, checkpoint.SpanSet)
	Metrics      *Metrics
	Log          *slog.Logger
}

// Lane carries stored batches into one sink. It takes what it is offered while it has room, gathers loads, commits them, waits out
// failures, and gives up what it cannot write before the deadline: that is a gap, which recovery fills through Carry. A lane never
// makes anybody wait but itself.
//
// What the lane knows to be in the sink is its coverage; what it holds and may still write is its holding. A stored span that is
// in neither is a gap for certain, since only the process that stored a batch offers it, and only once. Where batches are screened on
// their way from the gate, holding has them from the moment they are stored.
type Lane struct {
	opt     LaneOptions
	wake    chan struct{}
	drained chan struct{}
	results chan outcome

	mu struct {
		sync.Mutex
		queue    []*Offered
		bytes    int64 // of what is queued and what loads hold
		holding  map[record.Partition]*checkpoint.SpanSet
		coverage map[record.Partition]*coverage
		offered  int64                      // how many batches were taken
		close    map[record.Partition]int64 // partitions whose load should be closed once so many offered batches are in loads
		again    bool                       // the destination answers, though the last try of the lane itself failed
		draining bool
		health   health
		counts   LaneCounts
	}

	// The rest belongs to the lane's goroutine.
	loads     map[record.Partition]*load // open, by partition; under the zero partition where a load takes all
	ready     []*load                    // closed, waiting for a commit
	gathered  int64                      // how many of the offered batches have left the queue
	inflight  int
	opened    bool
	opening   bool
	loading   bool
	backoff   flow.Backoff
	retryAt   time.Time
	asking    pause // between questions for coverage, which may fail while commits succeed
	beginning pause // between tries to begin a load
	stopped   bool  // the context has ended
	drainOver bool
}

// coverage of one partition.
type coverage struct {
	set   checkpoint.SpanSet
	own   bool // the sink holds no files that the cuts do not know
	known bool // the sink has been asked; before that, set holds only what was written since
	live  bool // the partition is assigned to us
}

// LaneCounts are totals since the process started.
type LaneCounts struct {
	Rows, Refused, Rejected, Retries, Dropped int64
}

// health is how the destination answers.
type health struct {
	state   string // live, retrying, blocked
	reason  string
	backoff time.Duration
	carried bool // recovery saw the fault, not the lane itself
}

// pause is a backoff with the moment it lasts until.
type pause struct {
	flow.Backoff
	until time.Time
}

func newPause() pause { return pause{Backoff: flow.Backoff{Base: laneBackoff, Max: laneBackoffMax}} }

func (p *pause) over(now time.Time) bool { return !now.Before(p.until) }
func (p *pause) failed(now time.Time)    { p.until = now.Add(p.Next(jitter())) }

// The pauses of a lane whose destination does not answer.
const (
	laneBackoff    = 200 * time.Millisecond
	laneBackoffMax = 15 * time.Second
)

// NewLane prepares a lane. It does nothing until its stream runs.
func NewLane(opt LaneOptions) *Lane {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Covered == nil {
		opt.Covered = func(record.Partition, checkpoint.SpanSet) {}
	}
	l := &Lane{opt: opt, wake: make(chan struct{}, 1), drained: make(chan struct{}), results: make(chan outcome),
		loads: map[record.Partition]*load{}, backoff: flow.Backoff{Base: laneBackoff, Max: laneBackoffMax}, asking: newPause(), beginning: newPause()}
	l.mu.holding = map[record.Partition]*checkpoint.SpanSet{}
	l.mu.coverage = map[record.Partition]*coverage{}
	l.mu.close = map[record.Partition]int64{}
	l.mu.health.state = "live"
	return l
}

// Name is the sink's name in the configuration.
func (l *Lane) Name() string { return l.opt.Name }

// Offer hands over a stored batch, which the lane may refuse: then its span is a gap. It never waits.
func (l *Lane) Offer(o *Offered) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.mu.bytes > 0 && l.mu.bytes+o.Batch.Bytes > l.opt.Queue
	if full || l.mu.draining {
		l.mu.counts.Refused++
		l.opt.Metrics.refused(l.opt.Stream, l.opt.Name)
		l.unhold(o.Batch.Partition, span(o.Batch)) // where it was expected
		return false
	}
	o.Batch.Retain()
	l.mu.queue = append(l.mu.queue, o)
	l.mu.bytes += o.Batch.Bytes
	l.mu.offered++
	l.hold(o.Batch.Partition, span(o.Batch))
	l.nudge()
	return true
}

// expect says that what is stored of p in s will be offered, but not yet. Until then it is no gap.
func (l *Lane) expect(p record.Partition, s checkpoint.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold(p, s)
}

// hold notes that the lane may write s. The mutex is held.
func (l *Lane) hold(p record.Partition, s checkpoint.Span) {
	set := l.mu.holding[p]
	if set == nil {
		set = &checkpoint.SpanSet{}
		l.mu.holding[p] = set
	}
	set.Add(s)
}

// unhold notes that the lane will not write s any more. The mutex is held.
func (l *Lane) unhold(p record.Partition, s checkpoint.Span) {
	if set := l.mu.holding[p]; set != nil {
		set.Remove(s)
		if set.Len() == 0 {
			delete(l.mu.holding, p)
		}
	}
}

func (l *Lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// assigned says that a partition is ours from now on, so that its coverage has to be known.
func (l *Lane) assigned(p record.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.mu.coverage[p]; c != nil {
		c.live = true
		c.known = false // another owner may have written meanwhile
	} else {
		l.mu.coverage[p] = &coverage{live: true}
	}
	l.nudge()
}

// Adopt says that a partition which nobody reads any more is in this process's care, so that its coverage has to be known.
func (l *Lane) Adopt(p record.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.mu.coverage[p]; c == nil {
		l.mu.coverage[p] = &coverage{live: true}
		l.nudge()
	} else if !c.live {
		c.live = true
		l.nudge()
	}
}

// revoked says that a partition is somebody else's: what is open of it is written now rather than later.
func (l *Lane) revoked(p record.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.mu.coverage[p]; c != nil {
		c.live = false
	}
	l.mu.close[p] = l.mu.offered
	l.nudge()
}

// drain makes the lane write what it holds and take nothing more.
func (l *Lane) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.draining = true
	l.nudge()
}

// run is the lane's goroutine. It returns when ctx has ended and no commit is under way.
func (l *Lane) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		l.stopped = ctx.Err() != nil
		l.expire(now)
		l.begin(ctx, now)
		if l.stopped && l.inflight == 0 && !l.opening && !l.loading {
			l.abandon()
			return
		}
		timer.Reset(l.next(now).Sub(now))
		select {
		case <-l.wake:
		case r := <-l.results:
			r.apply(l, time.Now())
		case <-timer.C:
		case <-l.done(ctx):
		}
	}
}

// done is ctx's end, once: after it the lane waits only for what is under way.
func (l *Lane) done(ctx context.Context) <-chan struct{} {
	if l.stopped {
		return nil
	}
	return ctx.Done()
}

// begin starts whatever can be started now.
func (l *Lane) begin(ctx context.Context, now time.Time) {
	if l.stopped {
		return
	}
	l.tryAgain()
	l.openSink(ctx, now)
	l.learnCoverage(ctx, now)
	l.gather(now)
	l.closeDue(now)
	l.commitReady(ctx, now)
	l.noteDrained()
}

// answerTime is what a destination has to open, or to say what it holds of one partition.
const answerTime = 30 * time.Second

// openSink makes the destination ready, in the background.
func (l *Lane) openSink(ctx context.Context, now time.Time) {
	if l.opened || l.opening || now.Before(l.retryAt) {
		return
	}
	l.opening = true
	go func() {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		l.results <- openOutcome{l.opt.Sink.Open(ctx)}
	}()
}

// learnCoverage asks the sink what it holds of partitions that are new to us.
func (l *Lane) learnCoverage(ctx context.Context, now time.Time) {
	if !l.opened || l.loading || now.Before(l.retryAt) || !l.asking.over(now) {
		return
	}
	unknown := l.unknown()
	if len(unknown) == 0 {
		return
	}
	l.loading = true
	go func() { l.results <- l.askCoverage(ctx, unknown) }()
}

func (l *Lane) unknown() (out []record.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, c := range l.mu.coverage {
		waits := func(ld *load) bool { return ld.key == p }
		if !c.known && (c.live || !c.own && slices.ContainsFunc(l.ready, waits)) {
			out = append(out, p)
		}
	}
	return out
}

func (l *Lane) askCoverage(ctx context.Context, partitions []record.Partition) coverageOutcome {
	out := coverageOutcome{sets: map[record.Partition]checkpoint.SpanSet{}, own: map[record.Partition]bool{}}
	for _, p := range partitions {
		set, own, err := l.askOne(ctx, p)
		out.own[p] = own
		switch {
		case err == nil:
			out.sets[p] = set
		case sinks.KindOf(err) == sinks.Blocked: // perhaps of this partition alone
			out.err = err
		default:
			out.err = err
			return out
		}
	}
	return out
}

// askOne asks about one partition; own says that the files there are ours, also where something else went wrong.
func (l *Lane) askOne(ctx context.Context, p record.Partition) (set checkpoint.SpanSet, own bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	set, err = l.opt.Sink.Coverage(ctx, p)
	if err != nil || l.opt.Cuts == nil {
		return set, err == nil, err
	}
	if err := l.ownFiles(ctx, p, set); err != nil {
		return set, false, err
	}
	empties, err := l.opt.Cuts.Empties(ctx, p)
	set.Union(empties)
	return set, true, ofCuts(err)
}

// ownFiles refuses a place that holds files beyond the last cut. A file is only ever written after its cut, so they are of another
// chain of cuts: of a sink of another name, or of a raw that was elsewhere. Writing beside them would double their rows.
func (l *Lane) ownFiles(ctx context.Context, p record.Partition, files checkpoint.SpanSet) error {
	head, err := l.opt.Cuts.Head(ctx, p)
	if err != nil {
		return ofCuts(err)
	}
	beyond := files.Within(checkpoint.Span{From: head, To: math.MaxInt64}).Spans()
	if len(beyond) == 0 {
		return nil
	}
	return &sinks.Error{Kind: sinks.Blocked, Reason: fmt.Sprintf("%s holds files of %v for offsets %v which this sink has not written, "+
		"and would be doubled: give the sink another place, or its former name and raw location back", l.opt.Sink.Traits().Target, p, beyond[0])}
}

// abandon gives up everything: the context has ended.
func (l *Lane) abandon() {
	for _, ld := range l.loads {
		l.discard(ld)
	}
	for _, ld := range l.ready {
		l.discard(ld)
	}
	l.loads, l.ready = map[record.Partition]*load{}, nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.draining = true
	for len(l.mu.queue) > 0 {
		o := l.dequeue()
		l.unhold(o.Batch.Partition, span(o.Batch))
		o.Batch.Release()
	}
	l.noteDrainedLocked(true)
}

// noteDrained tells who waits that nothing is left.
func (l *Lane) noteDrained() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteDrainedLocked(l.mu.draining && len(l.mu.queue) == 0 && len(l.loads) == 0 && len(l.ready) == 0 && l.inflight == 0)
}

func (l *Lane) noteDrainedLocked(empty bool) {
	if empty && !l.drainOver {
		l.drainOver = true
		close(l.drained)
	}
}
