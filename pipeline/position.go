package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// committed is how telling the source ended.
type committed struct {
	positions []sources.Position
	err       error
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
	c.crew.begin("telling the source its position", func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		c.committed <- committed{positions, c.opt.Source.Commit(ctx, positions)}
	})
}

// noteCommitted takes the source's answer, which may be another one for each partition. It is a hint to the source only, raw has
// the truth: so a revocation or the end waits for one answer, not for a good one.
func (c *controller) noteCommitted(done committed, now time.Time) {
	c.committing = false
	some, news := false, false
	for _, pos := range done.positions {
		taken := done.took(pos.Partition)
		some = some || taken
		news = c.notePosition(pos, taken) || news
	}
	if news {
		c.opt.Log.Warn("the source does not take the position; it is a hint only, raw has the truth", "error", done.err)
	}
	if some && (!c.leaving.IsZero() || len(c.releasing) > 0) { // what was stored meanwhile is waited for
		c.commitAt = now
	}
}

// took reports whether the source has the position of p now.
func (d committed) took(p record.Partition) bool {
	var each *sources.CommitError
	if errors.As(d.err, &each) {
		return each.Failed[p] == nil
	}
	return d.err == nil
}

// notePosition takes the answer for one partition, and reports whether it is refused and was not before.
func (c *controller) notePosition(pos sources.Position, taken bool) (news bool) {
	if taken {
		c.points.Committed(pos.Partition, pos.Next)
	}
	p := c.parts[pos.Partition]
	if p == nil {
		return false
	}
	p.told = max(p.told, pos.Next)
	news = !taken && !p.refused
	p.refused = !taken
	if taken {
		c.opt.Metrics.position(c.opt.Stream, pos)
	}
	return news
}
