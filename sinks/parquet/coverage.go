package parquet

import (
	"context"
	"fmt"
	"strings"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// Entry is one file of a partition as the listing shows it.
type Entry struct {
	Key  string
	Span checkpoint.Span
	Size int64
}

const suffix = ".parquet"

func (s *Sink) folder(p record.Partition) string { return s.options.Stream + "/" + p.Path() + "/" }

func (s *Sink) key(p record.Partition, span checkpoint.Span) string {
	return s.folder(p) + record.OffsetName(span.From) + "-" + record.OffsetName(span.To) + suffix
}

// parseName reads the span from a file's name; false where the file is none of ours.
func parseName(name string) (checkpoint.Span, bool) {
	first, next, ok := strings.Cut(strings.TrimSuffix(name, suffix), "-")
	if !ok || !strings.HasSuffix(name, suffix) {
		return checkpoint.Span{}, false
	}
	from, err1 := record.ParseOffset(first)
	to, err2 := record.ParseOffset(next)
	span := checkpoint.Span{From: from, To: to}
	return span, err1 == nil && err2 == nil && !span.Empty()
}

// Files lists the files of p in the order of their first offsets. Names of another form are passed over.
func (s *Sink) Files(ctx context.Context, p record.Partition) ([]Entry, error) {
	folder := s.folder(p)
	listed, err := s.options.Bucket.List(ctx, folder, "", 0)
	if err != nil {
		return nil, classify("list "+folder, err)
	}
	var files []Entry
	for _, e := range listed {
		if span, ok := parseName(strings.TrimPrefix(e.Key, folder)); ok {
			files = append(files, Entry{e.Key, span, e.Size})
		}
	}
	return files, nil
}

// Coverage is the union of the files' spans, by their names.
func (s *Sink) Coverage(ctx context.Context, p record.Partition) (set checkpoint.SpanSet, err error) {
	files, err := s.Files(ctx, p)
	if err != nil {
		return set, err
	}
	for _, f := range files {
		set.Add(f.Span)
	}
	return set, nil
}

var _ sinks.Spot = (*Sink)(nil)

// Holds implements sinks.Spot.
func (s *Sink) Holds(ctx context.Context, p record.Partition, span checkpoint.Span) (bool, error) {
	key := s.key(p, span)
	listed, err := s.options.Bucket.List(ctx, key, "", 1)
	if err != nil {
		return false, classify("look for "+key, err)
	}
	return len(listed) > 0 && listed[0].Key == key, nil
}

// Count counts rows by the footers of the files, and by the offset column of a file that lies across the edge of a span.
func (s *Sink) Count(ctx context.Context, p record.Partition, spans []checkpoint.Span) ([]int64, error) {
	counts := make([]int64, len(spans))
	files, err := s.Files(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := s.countFile(ctx, f, spans, counts); err != nil {
			return nil, classify("count "+f.Key, err)
		}
	}
	return counts, nil
}

// countFile adds the rows of f to the counts of the spans that touch it. The file is opened once, and only if one does.
func (s *Sink) countFile(ctx context.Context, f Entry, spans []checkpoint.Span, counts []int64) error {
	var r *reader
	var offsets []int64
	for i, span := range spans {
		if !span.Overlaps(f.Span) {
			continue
		}
		if r == nil {
			var err error
			if r, err = openFile(ctx, s.options.Bucket, f); err != nil {
				return err
			}
		}
		if span.Intersect(f.Span) == f.Span {
			counts[i] += r.footer.Rows
			continue
		}
		if offsets == nil {
			var err error
			if offsets, err = r.offsets(); err != nil {
				return err
			}
		}
		counts[i] += within(offsets, span)
	}
	return nil
}

func within(offsets []int64, span checkpoint.Span) (n int64) {
	for _, o := range offsets {
		if o >= span.From && o < span.To {
			n++
		}
	}
	return n
}

// check is for a key that exists already: a zombie, recovery or our own request, whose reply was lost, wrote the file of this
// cut, with the same rows. Anything else in its place is a matter for a person. It returns the file's size.
func (s *Sink) check(ctx context.Context, key string, want Footer) (int64, error) {
	listed, err := s.options.Bucket.List(ctx, key, "", 1)
	if err != nil {
		return 0, classify("look at "+key, err)
	}
	if len(listed) == 0 || listed[0].Key != key {
		return 0, classify("look at "+key, fmt.Errorf("the store said that %s exists and does not list it", key))
	}
	r, err := openFile(ctx, s.options.Bucket, Entry{Key: key, Span: want.Span, Size: listed[0].Size})
	if err != nil {
		return 0, classify("read the footer of "+key, err)
	}
	if r.footer != want {
		return 0, blocked(fmt.Sprintf("%s exists with other content: it has %s, this load has %s", key, r.footer, want))
	}
	return listed[0].Size, nil
}

// ranger is the part of a bucket that a reader needs.
type ranger interface {
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)
}

var _ ranger = store.Bucket(nil)
