package sinks

import (
	"context"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Cuts is the chain of cuts of one file sink: create-only marks beside raw which fix the spans that files may have. Files have
// no key, so two writers of overlapping spans would double rows for ever; since every writer asks here first, they can only
// write the same file with the same rows.
//
// A cut covers [First, Next). One made by Pin covers what a lane had open, and its file carries exactly this span. One made by
// PinHole covers what no lane wrote; its files carry the cells [k·rows, (k+1)·rows) of it.
type Cuts interface {
	// Head is the Next of the last cut; the chain's genesis in raw where there is none.
	Head(ctx context.Context, p record.Partition) (int64, error)

	// Pin makes [s.From, s.To) a cut, after pinning what lies between the head and s.From as a hole. It returns false where
	// another writer's cut lies across the span: then the load must be discarded. Pinning what is pinned alike already is true.
	Pin(ctx context.Context, p record.Partition, s checkpoint.Span) (bool, error)

	// PinHole pins [head, to) as one hole. It does nothing where the head is there already.
	PinHole(ctx context.Context, p record.Partition, to int64) error

	// MarkEmpty notes durably that a cut or cell holds no rows, so that no file will come.
	MarkEmpty(ctx context.Context, p record.Partition, s checkpoint.Span) error

	// Empties lists what MarkEmpty noted.
	Empties(ctx context.Context, p record.Partition) (checkpoint.SpanSet, error)

	// Cells lists the spans that files must have, cuts and the cells of holes, in order, up to the head, leaving out those that
	// covered covers.
	Cells(ctx context.Context, p record.Partition, covered checkpoint.SpanSet) ([]checkpoint.Span, error)
}
