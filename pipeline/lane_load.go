package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
)

// load is a sink's load with what the lane knows about it.
type load struct {
	sink    sinks.Load
	key     record.Partition // the partition, or zero where it takes all
	begun   time.Time        // when its first batch was added
	oldest  time.Time        // when raw had its first batch: the deadline counts from here
	next    int64            // with cuts: the offset that must follow
	held    int64            // bytes counted against the lane's queue
	rejects []sinks.Reject   // found by the lane, not yet reported
}

// outcome is something that a goroutine of the lane has finished.
type outcome interface{ apply(*Lane, time.Time) }

type openOutcome struct{ err error }

type coverageOutcome struct {
	sets map[record.Partition]checkpoint.SpanSet
	err  error
}

type commitOutcome struct {
	load    *load
	receipt sinks.Receipt
	err     error
	took    time.Duration
}

// gather moves queued batches into loads.
func (l *Lane) gather(now time.Time) {
	for l.opened {
		l.mu.Lock()
		if len(l.mu.queue) == 0 || len(l.ready) > 2 {
			l.mu.Unlock()
			return
		}
		o := l.mu.queue[0]
		l.mu.queue[0] = nil
		l.mu.queue = l.mu.queue[1:]
		l.dequeued(o)
		l.mu.Unlock()
		l.add(o, now)
		o.Batch.Release()
	}
}

// add puts one batch into the load it belongs to.
func (l *Lane) add(o *Offered, now time.Time) {
	ld, err := l.loadFor(o, now)
	if err == nil {
		var rejects []sinks.Reject
		rejects, err = l.fill(ld.sink, o)
		ld.rejects = append(ld.rejects, rejects...)
		ld.next = o.Batch.Next
		l.reweigh(ld)
		if full(ld.sink.Size(), l.opt.Roll) {
			l.closeLoad(ld)
		}
	}
	if err != nil { // the sink cannot even gather: its span is a gap
		l.fail(err, now)
		l.mu.Lock()
		l.unhold(o.Batch.Partition, span(o.Batch))
		l.mu.Unlock()
	}
}

// loadFor is the open load that the batch goes into. A file's rows follow each other: where the batch does not follow, what is
// open is closed first.
func (l *Lane) loadFor(o *Offered, now time.Time) (*load, error) {
	var key record.Partition
	if l.opt.Cuts != nil {
		key = o.Batch.Partition
	}
	ld := l.loads[key]
	if ld != nil && l.opt.Cuts != nil && ld.next != o.Batch.First {
		l.closeLoad(ld)
		ld = nil
	}
	if ld != nil {
		return ld, nil
	}
	sink, err := l.opt.Sink.Begin()
	if err != nil {
		return nil, err
	}
	ld = &load{sink: sink, key: key, begun: now, oldest: o.Stored, next: o.Batch.First}
	l.loads[key] = ld
	return ld, nil
}

// fill turns a batch into rows, sets aside what this sink does not take, and adds the rest to a load. It is the same for what is
// offered and for what recovery carries.
func (l *Lane) fill(to sinks.Load, o *Offered) ([]sinks.Reject, error) {
	rows, oversize := o.Rows().Filter(func(r *record.Record) bool { return l.opt.MaxRecord > 0 && payload(r) > l.opt.MaxRecord })
	var rejects []sinks.Reject
	if len(oversize) > 0 {
		rejects = oversized(o.Rows(), oversize, l.opt.MaxRecord)
	}
	return rejects, to.Add(rows)
}

// payload is the size of a record as its producer sees it.
func payload(r *record.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// preview is how much of a value a reject keeps: raw has the whole.
const preview = 4 << 10

func oversized(rows *row.Batch, which []int, limit int64) []sinks.Reject {
	out := make([]sinks.Reject, 0, len(which))
	for _, i := range which {
		r := rows.Records[i]
		out = append(out, sinks.Reject{Partition: rows.Partition, Offset: r.Offset, ID: rows.IDs[i], Reason: sinks.ReasonOversize,
			Detail: sizeDetail(payload(&r), limit), Record: cut(r)})
	}
	return out
}

// full reports whether a load has reached a limit of size.
func full(s sinks.Size, roll Roll) bool {
	return roll.Rows > 0 && s.Rows >= roll.Rows || roll.Bytes > 0 && s.Out >= roll.Bytes
}

// reweigh counts what a load holds now.
func (l *Lane) reweigh(ld *load) {
	held := ld.sink.Size().Held
	l.mu.Lock()
	l.mu.bytes += held - ld.held
	l.mu.Unlock()
	ld.held = held
}

// closeDue closes loads whose time has come, and the largest while the lane is nearly full.
func (l *Lane) closeDue(now time.Time) {
	l.mu.Lock()
	asked, draining := l.mu.close, l.mu.draining && len(l.mu.queue) == 0
	l.mu.close = map[record.Partition]bool{}
	tight := l.mu.bytes > l.opt.Queue/10*7
	l.mu.Unlock()
	var largest *load
	for key, ld := range l.loads {
		if draining || asked[key] || !now.Before(ld.begun.Add(l.opt.Roll.Age)) {
			l.closeLoad(ld)
		} else if largest == nil || ld.held > largest.held {
			largest = ld
		}
	}
	if tight && largest != nil && len(l.ready) == 0 && l.inflight == 0 {
		l.closeLoad(largest)
	}
}

func (l *Lane) closeLoad(ld *load) {
	delete(l.loads, ld.key)
	l.ready = append(l.ready, ld)
}

// commitReady commits closed loads, one at a time: a second would only contend with the first for the same destination, and
// gathering goes on meanwhile.
func (l *Lane) commitReady(ctx context.Context, now time.Time) {
	if !l.opened || l.inflight > 0 || len(l.ready) == 0 || now.Before(l.retryAt) {
		return
	}
	ld := l.ready[0]
	l.ready = l.ready[1:]
	l.inflight++
	go func() {
		ctx, cancel := context.WithDeadline(ctx, ld.oldest.Add(l.opt.Deadline))
		defer cancel()
		begin := time.Now()
		receipt, err := l.store(ctx, ld)
		l.results <- commitOutcome{ld, receipt, err, time.Since(begin)}
	}()
}

// store makes a load durable: first its cut, then the trail of what it leaves out, then its rows.
func (l *Lane) store(ctx context.Context, ld *load) (sinks.Receipt, error) {
	if l.opt.Cuts != nil {
		ours, err := l.opt.Cuts.Pin(ctx, ld.key, onlySpan(ld))
		if err != nil {
			return sinks.Receipt{}, err
		}
		if !ours {
			return sinks.Receipt{}, &sinks.Error{Kind: sinks.Fenced, Reason: "another writer has cut this span otherwise"}
		}
	}
	return l.finishLoad(ctx, ld)
}

// finishLoad reports and commits; the cut, where the sink has cuts, is pinned.
func (l *Lane) finishLoad(ctx context.Context, ld *load) (sinks.Receipt, error) {
	if len(ld.rejects) > 0 {
		if err := l.opt.Report(ctx, ld.rejects); err != nil {
			return sinks.Receipt{}, err
		}
	}
	if l.opt.Cuts != nil && ld.sink.Size().Rows == 0 {
		if err := l.opt.Cuts.MarkEmpty(ctx, ld.key, onlySpan(ld)); err != nil {
			return sinks.Receipt{}, err
		}
		return sinks.Receipt{Spans: ld.sink.Spans(), Rejected: int64(len(ld.rejects))}, nil
	}
	receipt, err := ld.sink.Commit(ctx, l.opt.Report)
	receipt.Rejected += int64(len(ld.rejects))
	return receipt, err
}

// onlySpan is the span of a file's load.
func onlySpan(ld *load) checkpoint.Span {
	set := ld.sink.Spans()[ld.key]
	spans := set.Spans()
	return checkpoint.Span{From: spans[0].From, To: spans[len(spans)-1].To}
}

func (r openOutcome) apply(l *Lane, now time.Time) {
	l.opening = false
	if r.err != nil {
		l.fail(r.err, now)
		return
	}
	l.opened = true
	if len(l.ready) == 0 {
		l.healthy()
	}
}

func (r coverageOutcome) apply(l *Lane, now time.Time) {
	l.loading = false
	l.mu.Lock()
	for p, set := range r.sets {
		if c := l.mu.coverage[p]; c != nil {
			c.set.Union(set)
			c.known = true
		}
	}
	l.mu.Unlock()
	for p, set := range r.sets {
		l.opt.Covered(p, set)
	}
	if r.err != nil {
		l.fail(r.err, now)
	}
}

func (r commitOutcome) apply(l *Lane, now time.Time) {
	l.inflight--
	switch late := !now.Before(r.load.oldest.Add(l.opt.Deadline)); {
	case r.err == nil:
		l.covered(r.receipt, r.took)
		l.discard(r.load)
		l.healthy()
	case sinks.KindOf(r.err) == sinks.Fenced:
		l.opt.Log.Info("a load is left to recovery", "sink", l.opt.Name, "reason", r.err)
		l.discard(r.load)
	default:
		l.fail(r.err, now)
		if late || l.isDraining() {
			l.giveUp(r.load)
		} else {
			l.ready = append([]*load{r.load}, l.ready...)
		}
	}
}

func (l *Lane) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.draining
}

// covered notes what became durable.
func (l *Lane) covered(r sinks.Receipt, took time.Duration) {
	l.mu.Lock()
	l.mu.counts.Rows += r.Rows
	l.mu.counts.Rejected += r.Rejected
	for p, set := range r.Spans {
		c := l.mu.coverage[p]
		if c == nil {
			c = &coverage{}
			l.mu.coverage[p] = c
		}
		c.set.Union(set)
	}
	l.mu.Unlock()
	l.opt.Metrics.committed(l.opt.Stream, l.opt.Name, r, took)
	for p, set := range r.Spans {
		l.opt.Covered(p, set)
	}
}

// discard frees a load; what of it is not covered is a gap.
func (l *Lane) discard(ld *load) {
	spans := ld.sink.Spans()
	ld.sink.Discard()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.bytes -= ld.held
	for p, set := range spans {
		for _, s := range set.Spans() {
			l.unhold(p, s)
		}
	}
}

// giveUp leaves a load to recovery.
func (l *Lane) giveUp(ld *load) {
	l.mu.Lock()
	l.mu.counts.Dropped += ld.sink.Size().Rows
	l.mu.Unlock()
	l.opt.Log.Warn("the deadline has passed; leaving the span to recovery", "sink", l.opt.Name, "rows", ld.sink.Size().Rows)
	l.discard(ld)
}

// expire gives up what is older than the deadline and not under way.
func (l *Lane) expire(now time.Time) {
	l.mu.Lock()
	hopeless := l.mu.draining && l.mu.health.state != "live" // the process ends, and the destination is away
	l.mu.Unlock()
	old := func(stored time.Time) bool { return hopeless || !now.Before(stored.Add(l.opt.Deadline)) }
	for _, ld := range l.loads {
		if old(ld.oldest) {
			delete(l.loads, ld.key)
			l.giveUp(ld)
		}
	}
	kept := l.ready[:0]
	for _, ld := range l.ready {
		if old(ld.oldest) {
			l.giveUp(ld)
		} else {
			kept = append(kept, ld)
		}
	}
	l.ready = kept
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.queue) > 0 && old(l.mu.queue[0].Stored) {
		o := l.mu.queue[0]
		l.mu.queue = l.mu.queue[1:]
		l.dequeued(o)
		l.unhold(o.Batch.Partition, span(o.Batch))
		l.mu.counts.Dropped += int64(len(o.Batch.Records))
		o.Batch.Release()
	}
}

// fail notes what the destination said, and when to ask it again.
func (l *Lane) fail(err error, now time.Time) {
	if errors.Is(err, context.Canceled) {
		return
	}
	wait := l.backoff.Next(jitter())
	state := "retrying"
	if sinks.KindOf(err) == sinks.Blocked {
		state = "blocked"
		l.opened = false
	}
	l.retryAt = now.Add(wait)
	reason := reasonOf(err)
	l.mu.Lock()
	changed := l.mu.health.state != state || l.mu.health.reason != reason
	l.mu.health = health{state: state, reason: reason, backoff: wait, since: now}
	l.mu.counts.Retries++
	l.mu.Unlock()
	if changed {
		l.opt.Log.Warn("the sink does not take rows", "sink", l.opt.Name, "state", state, "reason", reason)
	}
	l.opt.Metrics.sinkFailed(l.opt.Stream, l.opt.Name, state, wait)
}

func (l *Lane) healthy() {
	l.backoff.Reset()
	l.retryAt = time.Time{}
	l.mu.Lock()
	was := l.mu.health
	l.mu.health = health{state: "live"}
	l.mu.Unlock()
	if was.state != "live" {
		l.opt.Log.Info("the sink takes rows again", "sink", l.opt.Name)
	}
	l.opt.Metrics.sinkLive(l.opt.Stream, l.opt.Name)
}

// next is when the lane has to look again though nothing happens.
func (l *Lane) next(now time.Time) time.Time {
	at := now.Add(time.Minute)
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(at) {
			at = t
		}
	}
	sooner(l.retryAt)
	for _, ld := range l.loads {
		sooner(ld.begun.Add(l.opt.Roll.Age))
		sooner(ld.oldest.Add(l.opt.Deadline))
	}
	for _, ld := range l.ready {
		sooner(ld.oldest.Add(l.opt.Deadline))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.queue) > 0 {
		sooner(l.mu.queue[0].Stored.Add(l.opt.Deadline))
	}
	return at
}
