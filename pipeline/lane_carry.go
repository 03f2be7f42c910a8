package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
)

// Read reads stored batches back, in order; it is sinks.Raw's.
type Read func(ctx context.Context, p record.Partition, s checkpoint.Span, f func(*record.Batch) error) error

// Duplicates says which records of a span were dropped before the lanes saw them, and are left out by whoever brings the span out of raw. A
// record is left out if leave says so of its offset and its id.
type Duplicates func(ctx context.Context, p record.Partition, s checkpoint.Span) (leave func(offset int64, id record.ID) bool, err error)

// Carry is the lane's second door: it brings one span out of raw into the sink and waits until it is there. It uses the same code
// as what is offered, with loads of its own. With cuts the span must be a cut or a cell, and becomes one file.
func (l *Lane) Carry(ctx context.Context, p record.Partition, s checkpoint.Span, read Read) error {
	c := &carrier{l: l, p: p, maker: newIDMaker(p), at: s.From}
	defer c.discard()
	if l.opt.Duplicates != nil {
		leave, err := l.opt.Duplicates(ctx, p, s)
		if err != nil {
			return fmt.Errorf("asking what was dropped in %v of %v: %w", s, p, err)
		}
		c.leave = leave
	}
	if err := read(ctx, p, s, func(b *record.Batch) error { return c.add(ctx, b) }); err != nil {
		return c.failed(ctx, err)
	}
	if c.at != s.To {
		return fmt.Errorf("raw ends at %d inside of the window %v of %v", c.at, s, p)
	}
	if err := c.commit(ctx); err != nil {
		return c.failed(ctx, err)
	}
	return nil
}

// carrier is one Carry.
type carrier struct {
	l     *Lane
	p     record.Partition
	maker *idMaker
	open  *load
	at    int64
	leave func(offset int64, id record.ID) bool // nil: nothing is left out
}

func (c *carrier) add(ctx context.Context, b *record.Batch) error {
	if b.First != c.at {
		return fmt.Errorf("raw goes on at %d where %d was expected", b.First, c.at)
	}
	if c.open == nil {
		sink, err := c.l.opt.Sink.Begin()
		if err != nil {
			return err
		}
		c.open = &load{sink: sink, key: c.p, begun: time.Now()}
	}
	rejects, err := c.l.fill(c.open.sink, c.rows(newOffered(b, c.open.begun, c.maker).Rows()))
	if err != nil {
		return err
	}
	c.open.reject(rejects)
	c.at = b.Next
	if c.l.opt.Cuts == nil && c.enough() {
		return c.commit(ctx)
	}
	return nil
}

// rows are those of a batch that were not dropped. Its span stays: without any row it is covered all the same.
func (c *carrier) rows(all *row.Batch) *row.Batch {
	if c.leave == nil {
		return all
	}
	var dropped []int
	for i := range all.Records {
		if c.leave(all.Records[i].Offset, all.IDs[i]) {
			dropped = append(dropped, i)
		}
	}
	return all.Without(dropped)
}

// enough reports whether what is open should be committed. Memory counts as well as output: a window may hold anything, and the lane
// beside needs its share.
func (c *carrier) enough() bool {
	return full(c.open, c.l.opt.Roll) || c.open.sink.Size().Held+c.open.extra >= max(c.l.opt.Queue/2, 1<<20)
}

func (c *carrier) commit(ctx context.Context) error {
	if c.open == nil {
		return nil
	}
	begin := time.Now()
	receipt, err := c.l.finishLoad(ctx, c.open)
	if err != nil {
		return err
	}
	c.l.covered(receipt, time.Since(begin))
	c.discard()
	return nil
}

func (c *carrier) discard() {
	if c.open != nil {
		c.open.sink.Discard()
		c.open = nil
	}
}

// failed shows a fault of the destination in the lane's health. That the caller gave up is none.
func (c *carrier) failed(ctx context.Context, err error) error {
	if !errors.Is(ctx.Err(), context.Canceled) {
		c.l.carryFailed(err)
	}
	return err
}

// Gaps lists the parts of within that the sink has not got and that nobody in this process is about to write. ok is false while
// the lane does not know yet what the sink holds.
func (l *Lane) Gaps(p record.Partition, within checkpoint.Span) (gaps []checkpoint.Span, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.coverage[p]
	if c == nil || !c.known {
		return nil, false
	}
	have := c.set.Clone()
	if held := l.mu.holding[p]; held != nil {
		have.Union(*held)
	}
	return have.Missing(within), true
}

// Coverage is what the lane knows to be in the sink. ok is false while the sink has not been asked.
func (l *Lane) Coverage(p record.Partition) (set checkpoint.SpanSet, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.coverage[p]
	if c == nil {
		return set, false
	}
	return c.set.Clone(), c.known
}

// Cuts is the chain of cuts, nil where the sink has none.
func (l *Lane) Cuts() sinks.Cuts { return l.opt.Cuts }

// Roll is when loads are closed.
func (l *Lane) Roll() Roll { return l.opt.Roll }

// Holding is what the lane may still write of p, ascending.
func (l *Lane) Holding(p record.Partition) []checkpoint.Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	if set := l.mu.holding[p]; set != nil {
		return set.Clone().Spans()
	}
	return nil
}

// cut copies a record for a reject, with no more of its value than a preview.
func cut(r record.Record) *record.Record {
	c := r
	c.Key = clip(r.Key)
	c.Value = clip(r.Value)
	c.Headers = nil
	return &c
}

func clip(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b[:min(len(b), preview)]...)
}

func sizeDetail(size, limit int64) string {
	return fmt.Sprintf("the record has %d bytes, the sink takes %d", size, limit)
}
