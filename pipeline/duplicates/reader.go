package duplicates

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// Reader reads the notes of a stream. It keeps none of them: each call lists the names in the span that it is asked for and reads what
// overlaps it, so that it sees what neighbours have written meanwhile and takes no more memory as the history grows. It is safe for
// concurrent use.
type Reader struct {
	bucket store.Bucket
	stream string
}

// NewReader does no I/O.
func NewReader(bucket store.Bucket, stream string) *Reader { return &Reader{bucket, stream} }

// Within lists what was dropped of p in a span, ascending, each once. One offset stands there twice only where notes name two records
// for it, or two that stand for one. Beside an error for which errors.Is finds avrofile.ErrDamaged it lists what can be read: each of
// it was named for certain.
func (r *Reader) Within(ctx context.Context, p record.Partition, s checkpoint.Span) ([]Dropped, error) {
	if s.Empty() {
		return nil, nil
	}
	w := &within{folder: newFolder(r.bucket, r.stream, p), p: p, span: s}
	if err := w.collect(ctx); err != nil {
		return nil, err
	}
	slices.SortFunc(w.out, func(a, b Dropped) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), bytes.Compare(a.ID[:], b.ID[:]), bytes.Compare(a.Stands[:], b.Stands[:]))
	})
	return slices.Compact(w.out), w.faults
}

// within is one Within.
type within struct {
	folder folder
	p      record.Partition
	span   checkpoint.Span
	out    []Dropped
	faults error
}

// collect reads what may overlap the span: what is named in it, and the last in front of it, with that in front where it is an aside.
func (w *within) collect(ctx context.Context) error {
	if _, err := w.take(ctx, w.span.From+1, w.span.To); err != nil {
		return err
	}
	for at := w.span.From; at >= 0; {
		first, found, err := w.folder.before(ctx, at)
		if err != nil {
			return fmt.Errorf("finding notes of duplicates: %w", err)
		}
		if !found {
			return nil
		}
		goesOn, err := w.take(ctx, first, first+1)
		if err != nil || !goesOn {
			return err
		}
		at = first - 1
	}
	return nil
}

// take reads the objects named in [from, to). goesOn says that none of them ends what is in front of them.
func (w *within) take(ctx context.Context, from, to int64) (goesOn bool, err error) {
	if from >= to {
		return false, nil
	}
	names, err := w.folder.list(ctx, from, to)
	if err != nil {
		return false, err
	}
	goesOn = true
	for _, o := range names {
		c, err := w.folder.read(ctx, o)
		if err != nil && !damaged(err) {
			return false, err
		}
		w.faults = errors.Join(w.faults, err)
		if c.kind == kindObject || c.kind == kindFile {
			goesOn = goesOn && c.partition != w.p
		}
		if c.partition == w.p {
			w.add(c.entries)
		}
	}
	return goesOn, nil
}

func (w *within) add(entries []entry) {
	for i := range entries {
		if !entries[i].span.Overlaps(w.span) {
			continue
		}
		for _, d := range entries[i].dropped {
			if d.Offset >= w.span.From && d.Offset < w.span.To {
				w.out = append(w.out, d)
			}
		}
	}
}

// Totals is how many records were dropped of each partition, as the last writers have counted: what was noted without its being known
// may be missing. It reads the last few names of each partition. Beside an error for which errors.Is finds avrofile.ErrDamaged it
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
			totals, err := folder{r.bucket, r.stream, root(r.stream) + t + "/" + n}.totals(ctx)
			if err != nil && !damaged(err) {
				return nil, err
			}
			faults = errors.Join(faults, err)
			for p, total := range totals {
				out[p] = max(out[p], total)
			}
		}
	}
	return out, faults
}
