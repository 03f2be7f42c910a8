package trail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// Writer appends to the trail of one process. Lanes call Append at once; while one object is on its way to the store, what
// others bring gathers in the next one, so that many small rejects cost as many objects as the store takes one after the other.
//
// Objects are named by a sequence without holes. The next number is taken only when something is stored under the last one: so
// whoever has seen a number has seen all below it, and may go on reading from there.
type Writer struct {
	bucket store.Bucket
	dir    string
	meta   map[string]string
	turn   chan struct{} // held by whoever writes; guards next and found
	next   int64
	found  bool

	mu struct {
		sync.Mutex
		open *group // what the next object will hold; nil where nothing waits
	}
}

// group is one object in the making.
type group struct {
	entries []byte
	count   int
	done    chan struct{} // closed when err is settled
	err     error
	gaveUp  bool // err is only that the context of whoever wrote it ended
}

// Options of a Writer.
type Options struct {
	Bucket   store.Bucket // raw's
	Stream   string
	Node     string
	Instance string // random in the data directory, which a lock keeps to one process
}

func dir(stream string) string { return stream + "/_trail/" }

// NewWriter does no I/O.
func NewWriter(opt Options) *Writer {
	return &Writer{
		bucket: opt.Bucket,
		dir:    dir(opt.Stream) + opt.Node + "~" + opt.Instance,
		meta:   map[string]string{"twgd.version": "1", "twgd.stream": opt.Stream, "twgd.node": opt.Node, "twgd.instance": opt.Instance},
		turn:   make(chan struct{}, 1),
	}
}

// Append stores the entries; they are durable when it returns nil. After an error, or when ctx ends, they may be stored or not:
// the caller appends them again, and readers count what is there twice once. It does not keep entries.
func (w *Writer) Append(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := check(entries); err != nil {
		return err
	}
	for {
		g := w.join(entries)
		err := w.wait(ctx, g)
		if err == nil || ctx.Err() != nil || !g.gaveUp {
			return err
		}
	}
}

func check(entries []Entry) error {
	for i := range entries {
		if e := &entries[i]; e.Span.From < 0 || e.Span.Empty() || e.Reason == "" {
			return fmt.Errorf("the trail takes no entry of %v %v with reason %q", e.Partition, e.Span, e.Reason)
		}
	}
	return nil
}

// join adds the entries to what the next object will hold.
func (w *Writer) join(entries []Entry) *group {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.mu.open
	if g == nil {
		g = &group{done: make(chan struct{})}
		w.mu.open = g
	}
	for i := range entries {
		g.entries = appendEntry(g.entries, &entries[i])
	}
	g.count += len(entries)
	return g
}

// wait returns when g is settled. Whoever of the waiting gets the turn first writes for all.
func (w *Writer) wait(ctx context.Context, g *group) error {
	select {
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the trail: %w", ctx.Err())
	case w.turn <- struct{}{}:
	}
	defer func() { <-w.turn }()
	select {
	case <-g.done: // somebody had the turn before
		return g.err
	default:
	}
	w.mu.Lock()
	w.mu.open = nil // nobody joins any more
	w.mu.Unlock()
	g.err = w.write(ctx, g)
	g.gaveUp = g.err != nil && ctx.Err() != nil
	close(g.done)
	return g.err
}

// write stores a group under the next free number.
func (w *Writer) write(ctx context.Context, g *group) error {
	if err := w.find(ctx); err != nil {
		return err
	}
	c, err := avrofile.NewCodec(codec)
	if err != nil {
		return err
	}
	for {
		key := w.dir + "/" + record.OffsetName(w.next) + suffix
		w.meta["twgd.sequence"] = strconv.FormatInt(w.next, 10)
		body, err := avrofile.Seal(schema, c, w.meta, avrofile.Block{Count: g.count, Entries: g.entries})
		if err != nil {
			return err
		}
		stored, err := w.create(ctx, key, body)
		if err != nil {
			return fmt.Errorf("writing the trail: %w", err)
		}
		w.next++
		if bytes.Equal(stored, body) {
			return nil
		}
	}
}

// create makes sure that something is stored under key and returns it. A lost attempt that is not there is made again: should both
// land, one of them wins, and they are the same.
func (w *Writer) create(ctx context.Context, key string, body []byte) ([]byte, error) {
	for range attempts - 1 {
		stored, _, err := chain.Once(ctx, w.bucket, key, body)
		if err == nil || !errors.Is(err, store.ErrUnknown) || !errors.Is(err, store.ErrNotFound) {
			return stored, err
		}
	}
	stored, _, err := chain.Once(ctx, w.bucket, key, body)
	return stored, err
}

// attempts is how often a write whose reply was lost and that has not landed is made before the caller hears of it.
const attempts = 3

// find looks once for the last number that is taken.
func (w *Writer) find(ctx context.Context) error {
	if w.found {
		return nil
	}
	l := chain.Log{Bucket: w.bucket, Dir: w.dir, Suffix: suffix}
	last, found, err := l.Last(ctx, 0)
	if err != nil {
		return fmt.Errorf("finding the end of the trail: %w", err)
	}
	if found {
		w.next = last + 1
	}
	w.found = true
	return nil
}

const suffix = ".avro"
