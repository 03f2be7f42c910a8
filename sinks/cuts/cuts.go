// Package cuts keeps the chains of cuts of one file sink as small create-only objects beside raw. It implements sinks.Cuts.
//
// For each partition there is one chain, made by the rule of package chain: a cut is named by its first offset, says inside where
// the next one begins, and whoever creates the object has made the cut. What this process remembers of a chain only saves
// requests; every decision is the store's, so that a lane, its zombie, the next owner and recovery may all ask at once.
package cuts

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// Options of the cuts of one sink.
type Options struct {
	Bucket store.Bucket // raw's
	Stream string
	Sink   string
	Cell   int64 // offsets a cell, of the holes that are pinned from now on

	// Genesis is the first offset of the partition's chain in raw, where its cuts begin too; sinks.ErrNoChain where raw has none.
	Genesis func(context.Context, record.Partition) (int64, error)

	Now func() time.Time // nil means time.Now
}

// Chains are the chains of cuts of one sink, one a partition. It is safe for concurrent use; calls for one partition take turns.
type Chains struct {
	opt Options
	mu  struct {
		sync.Mutex
		ledgers map[record.Partition]*ledger
	}
}

var _ sinks.Cuts = (*Chains)(nil)

// New does no I/O.
func New(opt Options) *Chains {
	if opt.Cell <= 0 {
		panic(fmt.Sprintf("cuts: cells of %d offsets", opt.Cell))
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	c := &Chains{opt: opt}
	c.mu.ledgers = map[record.Partition]*ledger{}
	return c
}

func (c *Chains) dir(p record.Partition) string {
	return c.opt.Stream + "/_cuts/" + c.opt.Sink + "/" + p.Path()
}

// enter takes the partition's ledger for one call, with the head loaded. The caller must leave it.
func (c *Chains) enter(ctx context.Context, p record.Partition) (*ledger, error) {
	c.mu.Lock()
	l := c.mu.ledgers[p]
	if l == nil {
		dir := c.dir(p)
		l = &ledger{turn: make(chan struct{}, 1), empty: empties{bucket: c.opt.Bucket, dir: dir + "/_empty/"},
			log: chain.Log{Bucket: c.opt.Bucket, Dir: dir, Parse: parseLink}}
		c.mu.ledgers[p] = l
	}
	c.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the cuts of %v: %w", p, ctx.Err())
	}
	if err := c.load(ctx, p, l); err != nil {
		l.leave()
		return nil, err
	}
	return l, nil
}

// load finds the chain's head, once.
func (c *Chains) load(ctx context.Context, p record.Partition, l *ledger) error {
	if l.writer != nil {
		return nil
	}
	genesis, err := c.opt.Genesis(ctx, p)
	if err != nil {
		return fmt.Errorf("finding where the cuts of %v begin: %w", p, err)
	}
	l.genesis, l.empty.listed, l.empty.complete = genesis, genesis, genesis
	if err := l.jump(ctx, genesis); err != nil {
		return fmt.Errorf("finding the head of the cuts of %v: %w", p, err)
	}
	return nil
}

// Head implements sinks.Cuts.
func (c *Chains) Head(ctx context.Context, p record.Partition) (int64, error) {
	l, err := c.enter(ctx, p)
	if err != nil {
		return 0, err
	}
	defer l.leave()
	if err := l.refresh(ctx); err != nil {
		return 0, fmt.Errorf("reading the cuts of %v: %w", p, err)
	}
	return l.writer.Head(), nil
}

// Pin implements sinks.Cuts.
func (c *Chains) Pin(ctx context.Context, p record.Partition, s checkpoint.Span) (bool, error) {
	if s.Empty() {
		return false, fmt.Errorf("pinning %v of %v: it covers nothing", s, p)
	}
	l, err := c.enter(ctx, p)
	if err != nil {
		return false, err
	}
	defer l.leave()
	if err := c.extend(ctx, l, s); err != nil {
		return false, fmt.Errorf("pinning %v of %v: %w", s, p, err)
	}
	pinned, found, err := l.cut(ctx, s.From)
	if err != nil {
		return false, fmt.Errorf("pinning %v of %v: %w", s, p, err)
	}
	return found && pinned.alike(s), nil
}

// PinHole implements sinks.Cuts.
func (c *Chains) PinHole(ctx context.Context, p record.Partition, to int64) error {
	l, err := c.enter(ctx, p)
	if err != nil {
		return err
	}
	defer l.leave()
	if err := c.extend(ctx, l, checkpoint.Span{From: to, To: to}); err != nil {
		return fmt.Errorf("pinning a hole of %v up to %d: %w", p, to, err)
	}
	return nil
}

// extend writes what plan asks for until nothing is left. A place that is taken is read and passed by; where one was, there may be
// many.
func (c *Chains) extend(ctx context.Context, l *ledger, s checkpoint.Span) error {
	for {
		want, more := plan(l.writer.Head(), s, c.opt.Cell)
		if !more {
			return nil
		}
		var attempt chain.Nonce
		link, ours, err := l.log.Commit(ctx, l.writer, want.next, func(a chain.Link) ([]byte, error) {
			attempt = a.Nonce
			return encode(want, a.Nonce, c.opt.Now())
		})
		if err != nil {
			return err
		}
		got := cut{link.First, link.Next, unread}
		if link.Nonce == attempt {
			got = want
		}
		l.append(got)
		if !ours {
			if err := l.refresh(ctx); err != nil {
				return err
			}
		}
	}
}

// Cells implements sinks.Cuts. Its price is one read, of the place behind the head, where covered reaches the head; else also one
// read of each cut that has something missing and was not read before. Names are listed only at first, and when coverage has
// shrunk because somebody took files away.
func (c *Chains) Cells(ctx context.Context, p record.Partition, covered checkpoint.SpanSet) ([]checkpoint.Span, error) {
	l, err := c.enter(ctx, p)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	cells, err := l.cells(ctx, covered)
	if err != nil {
		return nil, fmt.Errorf("listing the cells of %v: %w", p, err)
	}
	return cells, nil
}

// MarkEmpty implements sinks.Cuts.
func (c *Chains) MarkEmpty(ctx context.Context, p record.Partition, s checkpoint.Span) error {
	l, err := c.enter(ctx, p)
	if err != nil {
		return err
	}
	defer l.leave()
	if err := l.empty.mark(ctx, s, c.opt.Now()); err != nil {
		return fmt.Errorf("marking %v of %v as empty: %w", s, p, err)
	}
	return nil
}

// Empties implements sinks.Cuts.
func (c *Chains) Empties(ctx context.Context, p record.Partition) (checkpoint.SpanSet, error) {
	l, err := c.enter(ctx, p)
	if err != nil {
		return checkpoint.SpanSet{}, err
	}
	defer l.leave()
	set, err := l.empty.list(ctx)
	if err != nil {
		return checkpoint.SpanSet{}, fmt.Errorf("listing what is empty of %v: %w", p, err)
	}
	return set, nil
}
