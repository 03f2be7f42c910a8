package recovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// found is what one look at raw and the sink has found.
type found struct {
	due      []window // missing and settled, in the order of work
	supposed []window // missing by the copies of coverage, where the sink itself has not answered yet: nobody works on these
	whole    bool     // nothing was left out because it is not known yet
}

// find lists the windows that are missing and settled: of each partition in the order of offsets, and of all partitions in turns, so
// that a long backlog of one does not keep another's gap waiting.
func (a *Agent) find(ctx context.Context) (f found, err error) {
	assigned := a.opt.Assigned(ctx)
	f.whole = assigned != nil && (a.opt.Whole == nil || a.opt.Whole())
	a.forget(assigned)
	a.hints.silent = false
	partitions := slices.SortedFunc(maps.Keys(assigned), compare)
	due, supposed := make([][]checkpoint.Span, len(partitions)), make([][]checkpoint.Span, len(partitions))
	for i, p := range partitions {
		m, merr := a.missing(ctx, p, assigned[p])
		if merr != nil {
			err = errors.Join(err, fmt.Errorf("finding gaps of %v: %w", p, merr))
		}
		due[i], supposed[i] = m.due, m.supposed
		f.whole = f.whole && !m.unknown
	}
	f.due, f.supposed = inTurns(partitions, due), inTurns(partitions, supposed)
	if a.opt.Shared {
		apartFrom(f.due, a.opt.Node, a.claimName)
	}
	return f, err
}

// inTurns takes the first of each, then the second of each, and so on.
func inTurns(partitions []record.Partition, spans [][]checkpoint.Span) (out []window) {
	longest := 0
	for _, s := range spans {
		longest = max(longest, len(s))
	}
	for n := range longest {
		for i, p := range partitions {
			if n < len(spans[i]) {
				out = append(out, window{p, spans[i][n]})
			}
		}
	}
	return out
}

func compare(p, q record.Partition) int {
	switch {
	case p.Less(q):
		return -1
	case q.Less(p):
		return 1
	}
	return 0
}

// forget drops what was noted of partitions that are not ours any more.
func (a *Agent) forget(assigned map[record.Partition]pipeline.Extent) {
	gone := func(p record.Partition) bool { _, ok := assigned[p]; return !ok }
	maps.DeleteFunc(a.begun, func(p record.Partition, _ pending) bool { return gone(p) })
	maps.DeleteFunc(a.aged, func(p record.Partition, _ aged) bool { return gone(p) })
	maps.DeleteFunc(a.views, func(p record.Partition, _ *view) bool { return gone(p) })
}

// missing is what is found of one partition.
type missing struct {
	due, supposed []checkpoint.Span
	unknown       bool
}

// missing lists the windows of one partition.
func (a *Agent) missing(ctx context.Context, p record.Partition, e pipeline.Extent) (m missing, err error) {
	v := a.look(p, e)
	gaps, known := a.opt.Lane.Gaps(p, checkpoint.Span{From: e.Genesis, To: e.Next})
	if !known {
		m.supposed, known, err = a.suppose(ctx, p, e, v)
		m.unknown = !known
		return m, err
	}
	m.due, err = a.settled(ctx, p, e, v, a.lessCopied(ctx, p, e, v, gaps))
	return m, err
}

// settled lists the windows in gaps that nobody else is about to fill.
func (a *Agent) settled(ctx context.Context, p record.Partition, e pipeline.Extent, v *view, gaps []checkpoint.Span) ([]checkpoint.Span, error) {
	if len(gaps) == 0 {
		return nil, nil
	}
	old, err := a.oldUpTo(ctx, p, e, v, gaps[0])
	if err != nil {
		return nil, err
	}
	if a.opt.Shared {
		if len(Settled(gaps, e.Begin, old)) == 0 {
			return nil, nil
		}
		if gaps, err = a.askAgain(ctx, p, e, v, gaps); len(gaps) == 0 {
			return nil, err
		}
	}
	if cuts := a.opt.Lane.Cuts(); cuts != nil {
		spans, cerr := a.missingCells(ctx, cuts, p, e, gaps, old)
		return spans, errors.Join(err, cerr)
	}
	return Settled(Windows(gaps, a.opt.Window), e.Begin, old), err
}

// margin is how long after it was stored a batch may still be written by the lane that was offered it, and somewhat more.
func (a *Agent) margin() time.Duration {
	return a.opt.Deadline + max(a.opt.Deadline/4, 10*time.Second)
}

// aged says up to where the segments of earlier owners are known to be old, and when to look again.
type aged struct {
	upTo, begin int64
	again       time.Time
}

// oldUpTo is the offset below which everything that others stored is old enough to be recovery's.
func (a *Agent) oldUpTo(ctx context.Context, p record.Partition, e pipeline.Extent, v *view, first checkpoint.Span) (int64, error) {
	if a.opt.Exclusive || first.From >= e.Begin {
		return e.Begin, nil
	}
	if a.opt.Shared && time.Since(v.born) >= a.margin() {
		return min(max(v.old, a.aged[p].upTo), e.Begin), nil
	}
	old, err := a.searchOld(ctx, p, e, first)
	return max(old, min(v.old, e.Begin)), err
}

// searchOld looks for it by the wall time of commits, as a process must that has not been there for long. Segments are in the order
// of time, so the search goes on from where it stood, and not before the next segment can have become old.
func (a *Agent) searchOld(ctx context.Context, p record.Partition, e pipeline.Extent, first checkpoint.Span) (int64, error) {
	known := a.aged[p]
	if (known.begin == e.Begin || a.opt.Shared) && time.Now().Before(known.again) {
		return known.upTo, nil
	}
	now := time.Now()
	next := now // when the segment in front of which the search stopped becomes old
	lo, hi := max(known.upTo, first.From), e.Begin
	for lo < hi { // the last offset that is old, by halving
		mid := lo + (hi-lo)/2
		at, stored, err := a.opt.Raw.Written(ctx, p, mid)
		if err != nil {
			return 0, err
		}
		if stored && !at.Add(a.margin()).After(now) {
			lo = mid + 1
			continue
		}
		hi, next = mid, at.Add(a.margin())
	}
	if a.opt.Shared && next.Before(now.Add(turn)) { // others go on writing there
		next = now.Add(turn)
	}
	a.aged[p] = aged{lo, e.Begin, next}
	return lo, nil
}

// missingCells lists cuts and cells without a file. What no cut covers is pinned as a hole first, once no lane is about to do so.
func (a *Agent) missingCells(ctx context.Context, cuts sinks.Cuts, p record.Partition, e pipeline.Extent, gaps []checkpoint.Span, old int64) ([]checkpoint.Span, error) {
	head, err := cuts.Head(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := a.pinHole(ctx, cuts, p, e, head, gaps, old); err != nil {
		return nil, err
	}
	have, _ := a.opt.Lane.Coverage(p)
	have.Union(a.copied(ctx, p, a.views[p]))
	for _, s := range a.opt.Lane.Holding(p) {
		have.Add(s)
	}
	cells, err := cuts.Cells(ctx, p, have)
	if err != nil {
		return nil, err
	}
	cells = slices.DeleteFunc(cells, func(c checkpoint.Span) bool { return c.To > e.Next }) // of another owner, ahead of us
	return WholeSettled(cells, e.Begin, old), nil
}

// pending is a hole in the chain of cuts that a lane may still pin itself.
type pending struct {
	head  int64
	since time.Time
}

// pinHole pins what lies between the last cut and what a lane holds, when it has lain there for as long as a lane keeps a file open:
// until then the lane will likely pin it itself, and more at once.
func (a *Agent) pinHole(ctx context.Context, cuts sinks.Cuts, p record.Partition, e pipeline.Extent, head int64, gaps []checkpoint.Span, old int64) error {
	i := slices.IndexFunc(gaps, func(g checkpoint.Span) bool { return g.From <= head && head < g.To })
	if i < 0 {
		delete(a.begun, p)
		return nil
	}
	if was, ok := a.begun[p]; !ok || was.head != head {
		a.begun[p] = pending{head, time.Now()}
		return nil
	}
	if time.Since(a.begun[p].since) < a.opt.Lane.Roll().Age {
		return nil
	}
	to := gaps[i].To
	if head < e.Begin && old < e.Begin { // what an earlier owner may still write stays open
		to = min(to, old)
	}
	delete(a.begun, p)
	if to <= head {
		return nil
	}
	return cuts.PinHole(ctx, p, to)
}
