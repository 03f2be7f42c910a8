package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// ErrNothing says that a forced range has nothing to replay.
var ErrNothing = errors.New("raw has nothing in this range")

// Force replays a range whatever coverage says: rows that are missing are written, rows that are there stay. For a file sink these are
// the cuts and cells in the range whose file is gone. progress is told the windows done and the windows in all.
func (a *Agent) Force(ctx context.Context, p record.Partition, s checkpoint.Span, progress func(done, all int)) error {
	head, err := a.opt.Raw.Head(ctx, p)
	if err != nil {
		return err
	}
	s = s.Intersect(checkpoint.Span{From: head.Genesis, To: head.Next})
	if s.Empty() {
		return ErrNothing
	}
	windows := Windows([]checkpoint.Span{s}, a.opt.Window)
	if cuts := a.opt.Lane.Cuts(); cuts != nil {
		if windows, err = a.lostCells(ctx, cuts, p, s); err != nil {
			return err
		}
	}
	for i, w := range windows {
		progress(i, len(windows))
		if err := a.insist(ctx, window{p, w}); err != nil {
			return fmt.Errorf("window %v of %v: %w", w, p, err)
		}
	}
	progress(len(windows), len(windows))
	return nil
}

// insist is fill for a window that somebody may be working on now: it waits until he has ended, and does it again.
func (a *Agent) insist(ctx context.Context, w window) error {
	for {
		ok, err := a.fill(ctx, w, true)
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(a.opt.Every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lostCells lists the cuts and cells in s whose file is not there, asking the sink anew.
func (a *Agent) lostCells(ctx context.Context, cuts sinks.Cuts, p record.Partition, s checkpoint.Span) ([]checkpoint.Span, error) {
	have, err := a.opt.Sink.Coverage(ctx, p)
	if err != nil {
		return nil, err
	}
	empties, err := cuts.Empties(ctx, p)
	if err != nil {
		return nil, err
	}
	have.Union(empties)
	for _, held := range a.opt.Lane.Holding(p) {
		have.Add(held)
	}
	cells, err := cuts.Cells(ctx, p, have)
	return slices.DeleteFunc(cells, func(c checkpoint.Span) bool { return !c.Overlaps(s) }), err
}
