package pipeline

import (
	"context"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Ask asks the sink anew what it holds of a partition: where others write it too, what the lane knows is never all. It is for
// partitions that are assigned or adopted, and waits for the answer.
func (l *Lane) Ask(ctx context.Context, p record.Partition) error {
	set, own, err := l.askOne(ctx, p)
	l.mu.Lock()
	c := l.mu.coverage[p]
	if c != nil {
		c.own = c.own || own
	}
	if c != nil && err == nil {
		c.set.Union(set)
		c.known = true
	}
	l.mu.Unlock()
	if err == nil {
		l.opt.Covered(p, set)
	}
	return err
}

// Holds reports whether the sink has all of s by now, asking it unless the lane knows that it has. For a sink with cuts s is a cut or a
// cell.
func (l *Lane) Holds(ctx context.Context, p record.Partition, s checkpoint.Span) (bool, error) {
	if set, _ := l.Coverage(p); set.Covers(s) {
		return true, nil
	}
	spot, ok := l.opt.Sink.(sinks.Spot)
	if !ok || l.opt.Cuts == nil {
		err := l.Ask(ctx, p)
		set, _ := l.Coverage(p)
		return set.Covers(s), err
	}
	there, err := spot.Holds(ctx, p, s)
	if err != nil {
		return false, err
	}
	set, err := l.opt.Cuts.Empties(ctx, p)
	if err != nil {
		return false, ofCuts(err)
	}
	if there {
		set.Add(s)
	}
	l.noteCovered(p, set)
	return set.Covers(s), nil
}

// noteCovered adds to what the lane knows to be in the sink.
func (l *Lane) noteCovered(p record.Partition, set checkpoint.SpanSet) {
	l.mu.Lock()
	c := l.mu.coverage[p]
	if c != nil {
		c.set.Union(set)
	}
	l.mu.Unlock()
	l.opt.Covered(p, set)
}
