package raw

import (
	"context"
	"fmt"
	"strings"

	"github.com/stream-arrow/twgd/record"
)

// Segment is one object, or one file, of a chain as a listing shows it.
type Segment struct {
	First int64  // its name: the first offset in it
	Key   string // in the bucket
	Size  int64
}

// Segments lists what a chain lies in, in order. Names of another form are passed over.
func (s *Store) Segments(ctx context.Context, p record.Partition) ([]Segment, error) {
	dir := s.id(p).dir + "/"
	entries, err := s.opt.Bucket.List(ctx, dir, "", 0)
	if err != nil {
		return nil, fmt.Errorf("listing the segments of %v: %w", p, err)
	}
	var out []Segment
	for _, e := range entries {
		if first, ok := fileOffset(strings.TrimPrefix(e.Key, dir)); ok {
			out = append(out, Segment{first, e.Key, e.Size})
		}
	}
	return out, nil
}
