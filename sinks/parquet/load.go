package parquet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// load gathers the rows of one span of one partition. Whole row groups go to a staged file as they fill up; what is open is in
// memory, by columns.
//
// Invariant: the rows of span that the sink accepts are in the writer's row groups and in group, each once and in order; the
// others are in rejects.
type load struct {
	sink      *Sink
	partition record.Partition
	span      checkpoint.Span // empty before the first Add
	group     *group
	spool     spool
	writer    *fileWriter // nil until the first row group is full, or Commit
	rejects   []sinks.Reject
	rejected  int64 // bytes that rejects hold
	reported  bool
	finished  bool // the footer is in the spool
	fault     error
	receipt   *sinks.Receipt // of the commit that succeeded
}

// Add takes the rows over. It fails only where b does not belong here; what goes wrong with the disk shows at Commit.
func (l *load) Add(b *row.Batch) error {
	if err := l.admit(b); err != nil {
		return err
	}
	for i := range b.Records {
		if bad := unreadable(b.Records[i].Headers); bad >= 0 {
			l.reject(b, i, bad)
			continue
		}
		l.group.add(&b.IDs[i], &b.Records[i])
		// Memory is summed up only now and then, and after each record that is large.
		if l.group.rows%blockRows == 0 || b.Records[i].Size() > chunkSize {
			l.roll()
		}
	}
	return nil
}

// admit moves the span over b, if b continues it.
func (l *load) admit(b *row.Batch) error {
	switch {
	case l.finished:
		return fmt.Errorf("add %v of %v: the load is closed: Commit was called", b.Span, b.Partition)
	case b.Span.Empty():
		return fmt.Errorf("add %v of %v: the span is empty", b.Span, b.Partition)
	case l.span.Empty():
		l.partition, l.span = b.Partition, b.Span
	case b.Partition != l.partition:
		return fmt.Errorf("add %v of %v: the load is one of %v", b.Span, b.Partition, l.partition)
	case b.Span.From != l.span.To:
		return fmt.Errorf("add %v of %v: the load ends at %d", b.Span, b.Partition, l.span.To)
	default:
		l.span.To = b.Span.To
	}
	return nil
}

// unreadable is the index of the first header whose name is not UTF-8, -1 where there is none. Parquet has no other type for
// names, and one such name makes a whole file unreadable for most tools.
func unreadable(headers []record.Header) int {
	return slices.IndexFunc(headers, func(h record.Header) bool { return !utf8.ValidString(h.Key) })
}

func (l *load) reject(b *row.Batch, i, header int) {
	r := clone(&b.Records[i])
	l.rejects = append(l.rejects, sinks.Reject{Partition: b.Partition, Offset: r.Offset, ID: b.IDs[i], Reason: sinks.ReasonSink,
		Detail: fmt.Sprintf("the name of header %d is not UTF-8", header), Record: r})
	l.rejected += r.Size()
}

// clone is a copy that shares no memory.
func clone(r *record.Record) *record.Record {
	c := *r
	c.Key, c.Value, c.Headers = slices.Clone(r.Key), slices.Clone(r.Value), slices.Clone(r.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = slices.Clone(c.Headers[i].Value)
	}
	return &c
}

// roll writes a row group when the open one has reached its size.
func (l *load) roll() {
	if l.group.memory() >= l.sink.options.RowGroup {
		l.flush()
	}
}

// flush writes the open rows as a row group.
func (l *load) flush() {
	if l.fault != nil || l.group.rows == 0 {
		return
	}
	if l.writer == nil {
		l.writer = newFileWriter(&l.sink.layout, &l.spool, l.partition)
	}
	raw, before := l.group.raw(), l.spool.total
	l.fault = l.writer.write(l.group)
	l.sink.ratio.observe(raw, l.spool.total-before)
	l.group.reset()
}

// Size of the load. Out is exact for what is written and an estimate for what is not.
func (l *load) Size() sinks.Size {
	return sinks.Size{Rows: l.rows(), Held: l.group.memory() + l.spool.memory() + l.rejected,
		Out: l.spool.total + l.sink.ratio.of(l.group.raw())}
}

func (l *load) rows() int64 {
	if l.writer != nil {
		return l.writer.rows + l.group.rows
	}
	return l.group.rows
}

// Spans is the one span, once it is known.
func (l *load) Spans() map[record.Partition]checkpoint.SpanSet {
	if l.span.Empty() {
		return map[record.Partition]checkpoint.SpanSet{}
	}
	return map[record.Partition]checkpoint.SpanSet{l.partition: checkpoint.NewSpanSet(l.span)}
}

// Commit publishes the file. A load without rows reports what was rejected and writes no file: the lane marks the span empty.
func (l *load) Commit(ctx context.Context, report sinks.Report) (sinks.Receipt, error) {
	if l.receipt != nil {
		return *l.receipt, nil
	}
	if err := l.report(ctx, report); err != nil {
		return sinks.Receipt{}, err
	}
	bytes, err := l.publish(ctx)
	if err != nil {
		if sinks.KindOf(err) == sinks.Blocked {
			l.sink.block()
		}
		return sinks.Receipt{}, err
	}
	l.receipt = &sinks.Receipt{Spans: l.Spans(), Rows: l.rows(), Bytes: bytes, Rejected: int64(len(l.rejects))}
	return *l.receipt, nil
}

// report hands the rejects on, until that has succeeded once.
func (l *load) report(ctx context.Context, report sinks.Report) error {
	if l.reported || len(l.rejects) == 0 {
		return nil
	}
	if err := report(ctx, l.rejects); err != nil {
		return &sinks.Error{Kind: sinks.KindOf(err), Reason: "report rejects: " + err.Error(), Err: err}
	}
	l.reported = true
	return nil
}

// publish finishes the file, if there is a row, and makes it visible. It returns the file's size.
func (l *load) publish(ctx context.Context) (int64, error) {
	if err := l.finish(); err != nil {
		return 0, &sinks.Error{Kind: sinks.Blocked, Reason: "encode the file: " + err.Error(), Err: err}
	}
	if l.rows() == 0 {
		return 0, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, classify("publish", context.Cause(ctx))
	}
	if l.spool.err = l.spool.drain(ctx); l.spool.err != nil {
		return 0, classify("stage the file", l.spool.err)
	}
	key := l.sink.key(l.partition, l.span)
	switch err := l.spool.stage.Publish(ctx, key); {
	case errors.Is(err, store.ErrExists):
		return l.sink.check(ctx, key, Footer{Stream: l.sink.options.Stream, Partition: l.partition, Span: l.span, Rows: l.rows()})
	case err != nil:
		return 0, classify("publish "+key, err)
	}
	return l.spool.total, nil
}

// finish writes the last row group and the footer, once.
func (l *load) finish() error {
	if l.finished || l.rows() == 0 {
		return l.fault
	}
	l.flush()
	if l.fault == nil {
		l.fault = l.writer.finish(l.span)
	}
	l.finished = true
	return l.fault
}

// Discard frees the memory and the staged file.
func (l *load) Discard() {
	l.group.reset()
	l.rejects, l.rejected, l.writer = nil, 0, nil
	// A staged file that cannot be removed is not visible, and whoever opens the store next clears it.
	_ = l.spool.discard()
}
