package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// outcome is something that a goroutine of the lane has finished.
type outcome interface{ apply(*Lane, time.Time) }

type openOutcome struct{ err error }

type coverageOutcome struct {
	sets map[record.Partition]checkpoint.SpanSet
	own  map[record.Partition]bool
	err  error
}

type commitOutcome struct {
	load    *load
	receipt sinks.Receipt
	err     error
	took    time.Duration
}

// commitReady commits closed loads, one at a time: a second would only contend with the first for the same destination, and
// gathering goes on meanwhile.
func (l *Lane) commitReady(ctx context.Context, now time.Time) {
	if !l.opened || l.inflight > 0 || len(l.ready) == 0 || now.Before(l.retryAt) {
		return
	}
	i := slices.IndexFunc(l.ready, l.mayCommit)
	if i < 0 {
		return
	}
	ld := l.ready[i]
	l.ready = slices.Delete(l.ready, i, i+1)
	l.inflight++
	go func() {
		ctx, cancel := context.WithDeadline(ctx, ld.oldest.Add(l.opt.Deadline))
		defer cancel()
		begin := time.Now()
		receipt, err := l.store(ctx, ld)
		l.results <- commitOutcome{ld, receipt, err, time.Since(begin)}
	}()
}

// mayCommit reports whether a load may be written: a file only where the lane knows that the files beside it are ours.
func (l *Lane) mayCommit(ld *load) bool {
	if l.opt.Cuts == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.coverage[ld.key]
	return c != nil && c.own
}

// store makes a load durable: first its cut, then the trail of what it leaves out, then its rows.
func (l *Lane) store(ctx context.Context, ld *load) (sinks.Receipt, error) {
	if l.opt.Cuts != nil {
		ours, err := l.opt.Cuts.Pin(ctx, ld.key, onlySpan(ld))
		if err != nil {
			return sinks.Receipt{}, ofCuts(err)
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
	receipt, err := ld.sink.Commit(ctx, l.opt.Report)
	if err == nil && l.opt.Cuts != nil && ld.sink.Size().Rows == 0 {
		err = ofCuts(l.opt.Cuts.MarkEmpty(ctx, ld.key, onlySpan(ld)))
	}
	receipt.Rejected += int64(len(ld.rejects))
	return receipt, err
}

// ofCuts is an error of the chain of cuts as a lane takes it: damage is no outage, a person has to look at it.
func ofCuts(err error) error {
	if !errors.Is(err, avrofile.ErrDamaged) {
		return err
	}
	return &sinks.Error{Kind: sinks.Blocked, Reason: err.Error(), Err: err}
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
	l.retryAt = time.Time{}
	if len(l.ready) == 0 && len(l.unknown()) == 0 { // else what follows shows whether all is well
		l.healthy()
	}
}

func (r coverageOutcome) apply(l *Lane, now time.Time) {
	l.loading = false
	l.mu.Lock()
	for p, own := range r.own {
		if c := l.mu.coverage[p]; c != nil {
			c.own = c.own || own
		}
	}
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
	switch {
	case r.err == nil:
		l.asking = newPause()
		if len(l.ready) == 0 && l.inflight == 0 {
			l.healthy()
		}
	case sinks.KindOf(r.err) == sinks.Blocked && !errors.Is(r.err, avrofile.ErrDamaged):
		l.asking.failed(now)
		l.fail(r.err, now)
	default: // of one partition perhaps: commits go on
		l.asking.failed(now)
		l.show(r.err, l.asking.until.Sub(now))
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
		switch {
		case late:
			l.giveUp(r.load, tooLate)
		case l.isDraining():
			l.giveUp(r.load, ending)
		default:
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
func (l *Lane) giveUp(ld *load, why string) {
	rows := ld.sink.Size().Rows
	l.mu.Lock()
	l.mu.counts.Dropped += rows
	l.mu.Unlock()
	l.opt.Log.Warn(why+"; leaving the span to recovery", "sink", l.opt.Name, "rows", rows)
	l.discard(ld)
}
