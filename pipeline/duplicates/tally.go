package duplicates

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/stream-arrow/twgd/record"
)

// tally is the running counts of a folder's partitions, which is one but for topics whose ids begin alike, as they were read last. The zero
// value has read nothing. It is not changed once it is made.
//
// Groups of batches are noted as they are screened, several at once, so that what was written last need not have the greatest name. It is
// among the last few, or the next note counts it.
type tally struct {
	last   int64    // the greatest name
	read   []object // the last names, as they were when they were read
	counts map[record.Partition]int64
}

const (
	lateNames   = 4
	lateOffsets = 1 << 17
)

// count reads what is new among the last names. Beside damage it counts what can be read.
func (f folder) count(ctx context.Context, was tally) (tally, error) {
	t := tally{last: was.last, counts: maps.Clone(was.counts)}
	if len(was.read) == 0 {
		last, found, err := f.log().Last(ctx, 0)
		if err != nil || !found {
			return was, err
		}
		t.last, t.counts = last, map[record.Partition]int64{}
	}
	names, err := f.lastNames(ctx, max(0, t.last-lateOffsets))
	if err != nil {
		return was, err
	}
	var faults error
	for _, o := range names {
		t.last = max(t.last, o.first)
		if !slices.Contains(was.read, o) {
			c, err := f.read(ctx, o)
			if err != nil && !damaged(err) {
				return was, err
			}
			t.add(c)
			if faults = errors.Join(faults, err); err != nil {
				continue // and read again
			}
		}
		t.read = append(t.read, o)
	}
	return t, faults
}

func (t *tally) add(c content) {
	for i := range c.entries {
		t.counts[c.partition] = max(t.counts[c.partition], c.entries[i].total)
	}
}

func (f folder) lastNames(ctx context.Context, from int64) (names []object, err error) {
	err = f.names(ctx, from, maxOffset, func(o object) error {
		names = append(names[max(0, len(names)-lateNames+1):], o)
		return nil
	})
	return names, err
}
