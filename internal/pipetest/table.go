package pipetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
)

// Table is a destination in memory. With files it is one of files, each of one span, create-only, rows without a key; else it is a
// table whose rows have their id as key, and which holds its coverage.
type Table struct {
	Files  bool
	Reject func(*record.Record) bool // rows that the destination refuses for good; set before use

	mu       sync.Mutex
	fault    func(ctx context.Context, op string) error
	rows     map[record.Partition]map[int64]int // how often each offset is there
	ids      map[record.ID]bool
	coverage map[record.Partition]*checkpoint.SpanSet
	files    map[record.Partition]map[checkpoint.Span]map[int64]bool
	calls    map[string]int
	loads    int // that are not discarded
	peak     int64
	wrong    []string
}

// NewTable is empty.
func NewTable(files bool) *Table {
	return &Table{Files: files, rows: map[record.Partition]map[int64]int{}, ids: map[record.ID]bool{},
		coverage: map[record.Partition]*checkpoint.SpanSet{}, files: map[record.Partition]map[checkpoint.Span]map[int64]bool{}, calls: map[string]int{}}
}

// Fault runs in front of every call, by name: open, begin, add, coverage, commit, and "landed" behind a commit whose reply may be lost.
func (t *Table) Fault(f func(ctx context.Context, op string) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = f
}

func (t *Table) call(ctx context.Context, op string) error {
	t.mu.Lock()
	t.calls[op]++
	f := t.fault
	t.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, op)
}

// Calls counts the calls of op.
func (t *Table) Calls(op string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls[op]
}

// Traits implements sinks.Sink.
func (t *Table) Traits() sinks.Traits { return sinks.Traits{Kind: "table", Cuts: t.Files} }

// Open implements sinks.Sink.
func (t *Table) Open(ctx context.Context) error { return t.call(ctx, "open") }

// Begin implements sinks.Sink.
func (t *Table) Begin() (sinks.Load, error) {
	if err := t.call(context.Background(), "begin"); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loads++
	return &load{t: t, spans: map[record.Partition]checkpoint.SpanSet{}}, nil
}

// Coverage implements sinks.Sink.
func (t *Table) Coverage(ctx context.Context, p record.Partition) (checkpoint.SpanSet, error) {
	if err := t.call(ctx, "coverage"); err != nil {
		return checkpoint.SpanSet{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.coverage[p]; c != nil {
		return c.Clone(), nil
	}
	return checkpoint.SpanSet{}, nil
}

// Count implements sinks.Sink.
func (t *Table) Count(ctx context.Context, p record.Partition, spans []checkpoint.Span) ([]int64, error) {
	if err := t.call(ctx, "count"); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make([]int64, len(spans))
	for i, s := range spans {
		for o, n := range t.rows[p] {
			if o >= s.From && o < s.To {
				counts[i] += int64(n)
			}
		}
	}
	return counts, nil
}

// Close implements sinks.Sink.
func (t *Table) Close() error { return nil }

// Rows are the offsets of p that are there, each with how often.
func (t *Table) Rows(p record.Partition) map[int64]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.rows[p])
}

// Names are the files of p.
func (t *Table) Names(p record.Partition) []checkpoint.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.files[p]), func(a, b checkpoint.Span) int { return int(a.From - b.From) })
}

// Place puts a file there that nobody wrote through this table.
func (t *Table) Place(p record.Partition, s checkpoint.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files[p] == nil {
		t.files[p] = map[checkpoint.Span]map[int64]bool{}
	}
	t.files[p][s] = map[int64]bool{}
	if t.coverage[p] == nil {
		t.coverage[p] = &checkpoint.SpanSet{}
	}
	t.coverage[p].Add(s)
}

// Lose takes a file away.
func (t *Table) Lose(p record.Partition, s checkpoint.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for o := range t.files[p][s] {
		delete(t.rows[p], o)
	}
	delete(t.files[p], s)
	t.coverage[p].Remove(s)
}

// Wrong lists what callers did that they must not do; open is how many loads were never discarded, peak the most bytes of one load.
func (t *Table) Wrong() (wrong []string, open int, peak int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wrong, t.loads, t.peak
}

type held struct {
	p      record.Partition
	offset int64
	id     record.ID
	reject bool
}

type load struct {
	t         *Table
	rows      []held
	bytes     int64
	spans     map[record.Partition]checkpoint.SpanSet
	discarded bool
}

func (l *load) wrong(format string, args ...any) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	l.t.wrong = append(l.t.wrong, fmt.Sprintf(format, args...))
}

// Add implements sinks.Load. It reads every byte of what it is given, and keeps none.
func (l *load) Add(b *row.Batch) error {
	if err := l.t.call(context.Background(), "add"); err != nil {
		return err
	}
	set := l.spans[b.Partition]
	if l.t.Files && len(l.spans) > 0 && (set.Len() == 0 || set.Spans()[0].To != b.Span.From) {
		l.wrong("%v does not follow %v in one file", b.Span, set)
	}
	h := record.NewHasher(b.Partition)
	for i := range b.Records {
		r := &b.Records[i]
		if err := Check(r); err != nil {
			l.wrong("%v", err)
		}
		if ids := h.IDs(nil, b.Records[i:i+1]); ids[0] != b.IDs[i] {
			l.wrong("offset %d has a wrong id", r.Offset)
		}
		l.rows = append(l.rows, held{b.Partition, r.Offset, b.IDs[i], l.t.Reject != nil && l.t.Reject(r)})
	}
	set.Add(b.Span)
	l.spans[b.Partition] = set
	l.bytes += b.Bytes
	l.t.mu.Lock()
	l.t.peak = max(l.t.peak, l.bytes)
	l.t.mu.Unlock()
	return nil
}

// Size implements sinks.Load.
func (l *load) Size() sinks.Size {
	n := int64(0)
	for _, r := range l.rows {
		if !r.reject {
			n++
		}
	}
	return sinks.Size{Rows: n, Held: l.bytes, Out: l.bytes}
}

// Spans implements sinks.Load.
func (l *load) Spans() map[record.Partition]checkpoint.SpanSet { return l.spans }

// Discard implements sinks.Load.
func (l *load) Discard() {
	if l.discarded {
		l.wrong("a load is discarded twice")
	}
	l.discarded = true
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	l.t.loads--
}

// Commit implements sinks.Load.
func (l *load) Commit(ctx context.Context, report sinks.Report) (sinks.Receipt, error) {
	if l.discarded {
		l.wrong("a load is committed after it was discarded")
	}
	if err := l.t.call(ctx, "commit"); err != nil {
		return sinks.Receipt{}, err
	}
	receipt := sinks.Receipt{Spans: l.spans}
	var rejects []sinks.Reject
	for _, r := range l.rows {
		if r.reject {
			rejects = append(rejects, sinks.Reject{Partition: r.p, Offset: r.offset, ID: r.id, Reason: sinks.ReasonSink, Record: &record.Record{Offset: r.offset}})
		}
	}
	if len(rejects) > 0 {
		if err := report(ctx, rejects); err != nil {
			return sinks.Receipt{}, &sinks.Error{Kind: sinks.Retry, Reason: "the trail does not answer", Err: err}
		}
	}
	receipt.Rejected = int64(len(rejects))
	if err := l.land(&receipt); err != nil {
		return sinks.Receipt{}, err
	}
	return receipt, l.t.call(ctx, "landed")
}

// land makes the rows durable.
func (l *load) land(receipt *sinks.Receipt) error {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if l.t.Files && l.Size().Rows == 0 {
		return nil // no file
	}
	if l.t.Files {
		if done, err := l.file(); done || err != nil {
			return err
		}
	}
	for _, r := range l.rows {
		if r.reject || !l.t.Files && l.t.ids[r.id] {
			continue
		}
		if l.t.rows[r.p] == nil {
			l.t.rows[r.p] = map[int64]int{}
		}
		l.t.rows[r.p][r.offset]++
		l.t.ids[r.id] = true
		receipt.Rows++
	}
	for p, set := range l.spans {
		if l.t.coverage[p] == nil {
			l.t.coverage[p] = &checkpoint.SpanSet{}
		}
		l.t.coverage[p].Union(set)
	}
	return nil
}

// file makes the file's name, once.
func (l *load) file() (done bool, err error) {
	for p, set := range l.spans {
		if len(l.spans) != 1 || len(set.Spans()) != 1 {
			l.t.wrong = append(l.t.wrong, fmt.Sprintf("a file of %v", l.spans))
		}
		s, offsets := set.Spans()[0], map[int64]bool{}
		for _, r := range l.rows {
			offsets[r.offset] = true
		}
		if l.t.files[p] == nil {
			l.t.files[p] = map[checkpoint.Span]map[int64]bool{}
		}
		if have, taken := l.t.files[p][s]; taken {
			if !maps.Equal(have, offsets) {
				l.t.wrong = append(l.t.wrong, fmt.Sprintf("the file %v is written with other rows", s))
			}
			return true, nil
		}
		l.t.files[p][s] = offsets
	}
	return false, nil
}
