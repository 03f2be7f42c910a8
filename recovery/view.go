package recovery

import (
	"context"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/record"
)

// view is what an agent notes of a partition that others may write as well.
type view struct {
	born time.Time // when the partition was seen first
	sightings
	asked bool      // the sink has answered
	upTo  int64     // where raw ended when it was asked last: below, only its own answer counts
	again time.Time // when it may be asked again
}

// look notes where raw ends.
func (a *Agent) look(p record.Partition, e pipeline.Extent) *view {
	v, now := a.views[p], time.Now()
	if v == nil {
		v = &view{born: now}
		a.views[p] = v
	}
	v.see(e.Next, now, a.margin())
	return v
}

// hints are the copies of coverage as they were read last.
type hints struct {
	set    coverage.Set // nil where they could not be read; changed under the mutex, for others look at it
	again  time.Time
	silent bool // the sink has failed to answer in this look: it is not asked about every partition in turn
}

// readCopies returns the copies, read anew from time to time. They only spare questions, so that not having them is no fault.
func (a *Agent) readCopies(ctx context.Context) coverage.Set {
	if a.opt.Copies == nil || time.Now().Before(a.hints.again) {
		return a.hints.set
	}
	set, err := a.opt.Copies(ctx)
	if err != nil {
		a.opt.Log.Debug("the copies of coverage cannot be read", "error", err)
	} else {
		a.mu.Lock()
		a.hints.set = set
		a.mu.Unlock()
	}
	a.hints.again = time.Now().Add(turn)
	return a.hints.set
}

// copied is what the copies of others add to the sink's own answer: only what came to raw after that. Below it the sink's word counts
// alone, so that a table which was emptied is filled again after a restart, whatever copies say.
func (a *Agent) copied(ctx context.Context, p record.Partition, v *view) checkpoint.SpanSet {
	if !a.opt.Shared {
		return checkpoint.SpanSet{}
	}
	return a.readCopies(ctx)[p].Within(checkpoint.Span{From: v.upTo, To: 1<<63 - 1})
}

// lessCopied takes out of gaps what the copies of others know to be covered.
func (a *Agent) lessCopied(ctx context.Context, p record.Partition, e pipeline.Extent, v *view, gaps []checkpoint.Span) []checkpoint.Span {
	if !v.asked {
		v.asked, v.upTo = true, e.Next
	}
	if !a.opt.Shared || len(gaps) == 0 {
		return gaps
	}
	return less(gaps, a.copied(ctx, p, v))
}

// less is gaps without the offsets of set.
func less(gaps []checkpoint.Span, set checkpoint.SpanSet) (out []checkpoint.Span) {
	for _, g := range gaps {
		out = append(out, set.Missing(g)...)
	}
	return out
}

// askAgain asks the sink whether the gaps are still there, since others fill them too: not more often than turn, and for no more than a
// twentieth of the time. Where it does not answer the gaps stay as they are.
func (a *Agent) askAgain(ctx context.Context, p record.Partition, e pipeline.Extent, v *view, gaps []checkpoint.Span) ([]checkpoint.Span, error) {
	begin := time.Now()
	if begin.Before(v.again) || a.hints.silent {
		return gaps, nil
	}
	err := a.opt.Lane.Ask(ctx, p)
	v.again = time.Now().Add(max(turn, 20*time.Since(begin)))
	if err != nil {
		a.hints.silent = destination(err)
		return gaps, err
	}
	v.upTo = e.Next
	gaps, _ = a.opt.Lane.Gaps(p, checkpoint.Span{From: e.Genesis, To: e.Next})
	return gaps, nil
}

// suppose lists the windows that are missing by the copies, while the sink says nothing: a store inside a sink cannot say that the sink
// is down. Copies lag, so these may be more than there are, and never fewer. known is false where there are no copies either.
func (a *Agent) suppose(ctx context.Context, p record.Partition, e pipeline.Extent, v *view) (spans []checkpoint.Span, known bool, err error) {
	set := a.readCopies(ctx)
	if set == nil {
		return nil, false, nil
	}
	have := set[p].Clone()
	for _, s := range a.opt.Lane.Holding(p) {
		have.Add(s)
	}
	gaps := have.Missing(checkpoint.Span{From: e.Genesis, To: e.Next})
	if len(gaps) == 0 {
		return nil, true, nil
	}
	old, err := a.oldUpTo(ctx, p, e, v, gaps[0])
	return Settled(Windows(gaps, a.opt.Window), e.Begin, old), err == nil, err
}
