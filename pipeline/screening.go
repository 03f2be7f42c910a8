package pipeline

import (
	"context"
	"maps"
	"time"

	"github.com/stream-arrow/twgd/pipeline/content"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
)

// Screening is how a stream finds records whose content another record has claimed already, between the gate and the lanes. Whatever goes
// wrong, the records pass.
type Screening struct {
	Contents interface {
		// Screen names the twins among the records of batches. An error says that nothing is known of any of them. It is called from several
		// goroutines and bounded in time by itself.
		Screen(ctx context.Context, batches []content.Batch) (content.Verdict, error)
	}
	Drop bool // twins do not reach the lanes; otherwise they are only counted

	// Begin is told of each assignment of a partition before anything of it is noted: another process may have had the partition, and noted,
	// since this one did. It does not wait. nil: nobody needs to know.
	Begin func(p record.Partition)

	// Note makes durable what is about to be dropped: all of it when it returns nil. Used with Drop only, and called from several goroutines.
	Note func(ctx context.Context, noted []duplicates.Noted) error
}

// DedupStatus is what screening found, in records, since the process began.
type DedupStatus struct {
	Checked     int64            // whose content was compared
	Duplicates  int64            // of these, whose content another record held
	Dropped     int64            // of these, that no sink was given
	Unavailable map[string]int64 // that passed unscreened, or undropped, by reason
	Unkeyed     map[string]int64 // that have no content to compare, by reason
	Waiting     int64            // bytes that are stored and not yet screened
}

// screened is how a question of the stage ended.
type screened struct {
	group   *group
	noted   bool // it was a note
	verdict content.Verdict
	err     error
}

// enter puts a stored batch into the stage, with its bytes: what waits there counts against the budget, so that claims which are slower than
// the source slow reading down, instead of filling memory. Its position has moved already. Until it leaves, lanes hold its span, so that
// recovery does not take it for a gap.
func (c *controller) enter(p *part, a admitted, stored time.Time) {
	o := newOffered(a.batch.Retain(), stored, p.ids)
	for _, l := range c.opt.Lanes {
		l.expect(p.id, span(a.batch))
	}
	c.stage.put(o, a.taken)
}

// screen begins what the stage has to ask, and lets leave what may.
func (c *controller) screen(ctx context.Context, now time.Time) {
	if c.stage == nil {
		return
	}
	c.stage.expire(now)
	for g := c.stage.ask(now); g != nil; g = c.stage.ask(now) {
		c.ask(ctx, g)
	}
	for g := c.stage.note(now); g != nil; g = c.stage.note(now) {
		c.note(ctx, g)
	}
	c.letLeave(now)
}

// ask asks about a group. The batches are held meanwhile, since they may leave before there is an answer.
func (c *controller) ask(ctx context.Context, g *group) {
	offered := make([]*Offered, len(g.batches))
	for i, b := range g.batches {
		offered[i] = b.offered
		offered[i].Batch.Retain()
	}
	ctx, cancel := context.WithDeadline(ctx, g.bound)
	c.crew.begin("asking for duplicates", func() {
		defer cancel()
		batches := make([]content.Batch, len(offered))
		for i, o := range offered {
			batches[i] = content.Batch{Records: o.Batch.Records, IDs: o.IDs()}
		}
		verdict, err := c.opt.Screening.Contents.Screen(ctx, batches)
		for _, o := range offered {
			o.Batch.Release()
		}
		c.tell(screened{group: g, verdict: verdict, err: err})
	})
}

// note makes durable what is about to be dropped of a group, in one call.
func (c *controller) note(ctx context.Context, g *group) {
	noted := make([]duplicates.Noted, len(g.twins))
	for i, t := range g.twins {
		noted[i] = t.noted
	}
	ctx, cancel := context.WithDeadline(ctx, g.bound)
	c.crew.begin("noting duplicates", func() {
		defer cancel()
		c.tell(screened{group: g, noted: true, err: c.opt.Screening.Note(ctx, noted)})
	})
}

// tell hands an outcome to the controller, unless that has ended.
func (c *controller) tell(s screened) {
	select {
	case c.screened <- s:
	case <-c.gone:
	}
}

// noteScreened takes an outcome.
func (c *controller) noteScreened(s screened, now time.Time) {
	c.sayScreened(s)
	if s.noted {
		c.stage.noted(s.group, s.err, now)
	} else {
		c.stage.answered(s.group, s.verdict, s.err, now)
	}
}

// sayScreened logs when notes begin to fail, and when they are taken again. Why claims are not answered is said by who makes them.
func (c *controller) sayScreened(s screened) {
	switch {
	case !s.noted:
	case s.err != nil && !c.unnoted:
		c.opt.Log.Error("duplicates cannot be made durable, and are not dropped", "error", s.err)
	case s.err == nil && c.unnoted:
		c.opt.Log.Info("duplicates are made durable and dropped again")
	}
	if s.noted {
		c.unnoted = s.err != nil
	}
}

// letLeave offers what may leave to the lanes, and gives its bytes back.
func (c *controller) letLeave(now time.Time) {
	all := c.stage.leave()
	for _, b := range all {
		for _, l := range c.opt.Lanes {
			l.Offer(b.offered)
		}
		c.opt.Metrics.screened(c.opt.Stream, now.Sub(b.offered.Stored))
		c.left(b.offered.Batch.Partition)
		c.budget.Give(b.taken)
		b.offered.Batch.Release()
	}
	if len(all) > 0 {
		c.opt.Metrics.deduped(c.opt.Stream, &c.counted, c.stage.counts)
	}
}

// left closes the loads of a partition that was revoked while its last batch was in the stage.
func (c *controller) left(p record.Partition) {
	if c.parts[p] != nil || c.stage.holds(p) {
		return
	}
	for _, l := range c.opt.Lanes {
		l.revoked(p)
	}
}

// letAllLeave is the end: what has no answer by now goes to the lanes whole.
func (c *controller) letAllLeave() {
	if c.stage != nil {
		c.stage.end()
		c.letLeave(time.Now())
	}
}

// dedup is what the stage has counted; nil without screening.
func (c *controller) dedup() *DedupStatus {
	if c.stage == nil {
		return nil
	}
	st := c.stage.counts
	st.Unavailable, st.Unkeyed = maps.Clone(st.Unavailable), maps.Clone(st.Unkeyed)
	st.Waiting = c.stage.bytes
	return &st
}
