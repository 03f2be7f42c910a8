package duplicates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// Options of a Writer.
type Options struct {
	Bucket   store.Bucket // raw's
	Stream   string
	Node     string
	Instance string
	Local    bool     // a directory of this process alone: files grow by a block an append
	FS       store.FS // of a local directory; nil means the operating system's
	Log      *slog.Logger
}

// Writer notes what this process drops. It is safe for concurrent use; notes of different partitions are written side by side, those of
// one partition one after the other.
//
// The batches of one partition in one Append are those between which no other call brings any: what stands under one name then ends
// where the next name begins. The order in which calls come is free.
type Writer struct {
	opt  Options
	roll int64 // bytes from which on a local file takes no more blocks

	mu     sync.Mutex
	parts  map[record.Partition]*part
	closed bool
	files  openFiles
}

// NewWriter does no I/O.
func NewWriter(opt Options) *Writer {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Writer{opt: opt, roll: rollAt, parts: map[record.Partition]*part{}, files: openFiles{max: maxOpen}}
}

// atOnce is how many partitions of one Append are written side by side.
const atOnce = 32

// Append makes the notes durable: all of them when it returns nil. After an error some may be stored, or land later, and the caller has
// to let all of these batches pass whole. Batches of which nothing was dropped need no note, and get none. It does not keep noted.
func (w *Writer) Append(ctx context.Context, noted []Noted) error {
	byPartition := map[record.Partition][]Noted{}
	for i := range noted {
		n := &noted[i]
		if err := n.check(); err != nil {
			return fmt.Errorf("noting duplicates of %v: %w", n.Partition, err)
		}
		if len(n.Dropped) > 0 {
			byPartition[n.Partition] = append(byPartition[n.Partition], *n)
		}
	}
	var (
		writing sync.WaitGroup
		slots   = make(chan struct{}, atOnce)
		failed  = make(chan error, len(byPartition))
	)
	for p, list := range byPartition {
		slots <- struct{}{}
		writing.Go(func() {
			defer func() { <-slots }()
			if err := w.part(p).append(ctx, list); err != nil {
				failed <- fmt.Errorf("noting duplicates of %v: %w", p, err)
			}
		})
	}
	writing.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// part is what the writer knows of p.
func (w *Writer) part(p record.Partition) *part {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parts[p] == nil {
		w.parts[p] = &part{w: w, p: p, folder: newFolder(w.opt.Bucket, w.opt.Stream, p), turn: make(chan struct{}, 1)}
	}
	return w.parts[p]
}

// Forget lets the next append of p learn anew what was counted: the process was given p again, and others may have noted meanwhile. It does
// no I/O. A directory of this process alone has no others.
func (w *Writer) Forget(p record.Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if pt := w.parts[p]; pt != nil && !w.opt.Local {
		pt.stale.Store(true)
	}
}

// Close closes what is open. It waits for appends under way; later ones fail.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.closed = true
	parts := make([]*part, 0, len(w.parts))
	for _, pt := range w.parts {
		parts = append(parts, pt)
	}
	w.mu.Unlock()
	var err error
	for _, pt := range parts {
		pt.turn <- struct{}{}
		err = errors.Join(err, pt.leave())
		<-pt.turn
	}
	return err
}

func (w *Writer) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

var errClosed = errors.New("the writer is closed")

// part is one partition of a Writer. Whoever holds turn may use the rest.
type part struct {
	w      *Writer
	p      record.Partition
	folder folder
	turn   chan struct{}
	stale  atomic.Bool // others may have counted; set without the turn
	known  bool
	total  int64
	file   *growing // nil where the next block begins a file
	reach  int64    // how far this writer's files of the partition go
}

func (pt *part) append(ctx context.Context, noted []Noted) error {
	select {
	case pt.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-pt.turn }()
	if pt.w.isClosed() {
		return errClosed
	}
	if err := pt.learn(ctx); err != nil {
		return err
	}
	slices.SortFunc(noted, func(a, b Noted) int { return cmp.Compare(a.Span.From, b.Span.From) })
	total := pt.total
	var entries []byte
	for i := range noted {
		total += int64(len(noted[i].Dropped))
		entries = appendEntry(entries, &noted[i], total)
	}
	b := block{first: noted[0].Span.From, to: noted[len(noted)-1].Span.To, count: len(noted), entries: entries}
	var err error
	if pt.w.opt.Local {
		err = pt.grow(ctx, b)
	} else {
		err = pt.create(ctx, b, kindObject)
	}
	if err == nil {
		pt.total = total
	}
	return err
}

// learn finds what other writers have counted: once, and once each time that the partition may have been another's. Where that cannot be
// read for damage, which audit names, the count goes on from what is known.
func (pt *part) learn(ctx context.Context) error {
	if pt.stale.Swap(false) {
		pt.known = false
	}
	if pt.known {
		return nil
	}
	t, err := pt.folder.count(ctx, tally{})
	if err != nil && !damaged(err) {
		return err
	}
	if err != nil {
		pt.w.opt.Log.Warn("the notes of duplicates are damaged, their count is too low from here on", "partition", pt.p.String(), "error", err)
	}
	pt.total, pt.known = max(pt.total, t.counts[pt.p]), true
	return nil
}

// block is what one append adds to a partition.
type block struct {
	first, to int64
	count     int
	entries   []byte // encoded, not compressed
}
