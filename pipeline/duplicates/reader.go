package duplicates

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// Reader reads the notes of a stream. It keeps none of them: each call lists the names in the span that it is asked for and reads what
// overlaps it, so that it sees what neighbours have written meanwhile and takes no more memory as the history grows. All that it
// remembers is how far it has counted. It is safe for concurrent use.
type Reader struct {
	bucket store.Bucket
	stream string

	mu      sync.Mutex
	tallies map[string]tally // by folder
}

// NewReader does no I/O.
func NewReader(bucket store.Bucket, stream string) *Reader {
	return &Reader{bucket: bucket, stream: stream, tallies: map[string]tally{}}
}

// Within lists what was dropped of p in a span, ascending, each once. One offset stands there twice only where notes name two records
// for it, or two that stand for one. Beside an error for which errors.Is finds avrofile.ErrDamaged it lists what can be read: each of
// it was named for certain.
func (r *Reader) Within(ctx context.Context, p record.Partition, s checkpoint.Span) ([]Dropped, error) {
	var out []Dropped
	err := r.Each(ctx, p, s, func(some []Dropped) { out = append(out, some...) })
	if err != nil && !damaged(err) {
		return nil, err
	}
	return distinct(out), err
}

// Each calls f with what Within lists, a piece at a time, so that a span of any length can be read. A piece is ascending, and no offset
// is in two, but they come in no order. Damage is reported when all has been read.
func (r *Reader) Each(ctx context.Context, p record.Partition, s checkpoint.Span, f func([]Dropped)) error {
	if s.Empty() {
		return nil
	}
	w := &walk{folder: newFolder(r.bucket, r.stream, p), p: p, span: s, each: f}
	if err := w.run(ctx); err != nil {
		return err
	}
	return w.faults
}

// Verify reads all notes of p and reports the objects that are damaged. An error means that it could not look.
func (r *Reader) Verify(ctx context.Context, p record.Partition, report func(key string, fault error)) error {
	f := newFolder(r.bucket, r.stream, p)
	return f.names(ctx, 0, maxOffset, func(o object) error {
		_, err := f.read(ctx, o)
		if damaged(err) {
			report(o.key, err)
			return nil
		}
		return err
	})
}

// distinct sorts, and leaves each once.
func distinct(list []Dropped) []Dropped {
	slices.SortFunc(list, func(a, b Dropped) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), bytes.Compare(a.ID[:], b.ID[:]), bytes.Compare(a.Stands[:], b.Stands[:]))
	})
	return slices.Compact(list)
}

// walk reads what may overlap a span: what is named in it, and the last name in front of it, with the one in front of that where it is an
// aside.
type walk struct {
	folder folder
	p      record.Partition
	span   checkpoint.Span
	each   func([]Dropped)
	faults error

	// what stands under one first offset
	first  int64
	named  []Dropped
	goesOn bool // none of it ends what is in front
}

func (w *walk) run(ctx context.Context) error {
	for at := w.span.From; at >= 0; {
		first, found, err := w.folder.before(ctx, at)
		if err != nil {
			return fmt.Errorf("finding notes of duplicates: %w", err)
		}
		if !found {
			break
		}
		if err := w.read(ctx, first, first+1); err != nil {
			return err
		}
		if !w.goesOn {
			break
		}
		at = first - 1
	}
	if w.span.Len() < 2 {
		return nil
	}
	return w.read(ctx, w.span.From+1, w.span.To)
}

// read reads the objects named in [from, to).
func (w *walk) read(ctx context.Context, from, to int64) error {
	w.first, w.named, w.goesOn = from, nil, true
	err := w.folder.names(ctx, from, to, func(o object) error {
		if o.first != w.first {
			w.flush()
			w.first = o.first
		}
		c, err := w.folder.read(ctx, o)
		if err != nil && !damaged(err) {
			return err
		}
		w.faults = errors.Join(w.faults, err)
		if c.partition == w.p {
			w.goesOn = w.goesOn && c.kind == kindAside
			w.take(c.entries)
		}
		return nil
	})
	w.flush()
	return err
}

func (w *walk) take(entries []entry) {
	for i := range entries {
		if !entries[i].span.Overlaps(w.span) {
			continue
		}
		for _, d := range entries[i].dropped {
			if d.Offset >= w.span.From && d.Offset < w.span.To {
				w.named = append(w.named, d)
			}
		}
	}
}

func (w *walk) flush() {
	if len(w.named) > 0 {
		w.each(distinct(w.named))
	}
	w.named = nil
}

// Totals is how many records were dropped of each partition, as the last writers have counted: what was noted without its being known
// may be missing. It lists each partition once and reads those of its last few names that are new since the last call. Beside an error for which errors.Is finds avrofile.ErrDamaged it
// counts what can be read.
func (r *Reader) Totals(ctx context.Context) (map[record.Partition]int64, error) {
	topics, err := r.bucket.Dirs(ctx, root(r.stream))
	if err != nil {
		return nil, fmt.Errorf("listing notes of duplicates: %w", err)
	}
	out := map[record.Partition]int64{}
	var faults error
	for _, t := range topics {
		partitions, err := r.bucket.Dirs(ctx, root(r.stream)+t+"/")
		if err != nil {
			return nil, fmt.Errorf("listing notes of duplicates: %w", err)
		}
		for _, n := range partitions {
			counts, err := r.count(ctx, folder{r.bucket, r.stream, root(r.stream) + t + "/" + n})
			if err != nil && !damaged(err) {
				return nil, err
			}
			faults = errors.Join(faults, err)
			maps.Copy(out, counts)
		}
	}
	return out, faults
}

// count goes on from what was counted of a folder before.
func (r *Reader) count(ctx context.Context, f folder) (map[record.Partition]int64, error) {
	r.mu.Lock()
	was := r.tallies[f.dir]
	r.mu.Unlock()
	t, err := f.count(ctx, was)
	r.mu.Lock()
	r.tallies[f.dir] = t
	r.mu.Unlock()
	return t.counts, err
}
