package recovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
)

// LeaveOut is what one sink is not given when it is filled out of raw: exactly the records that notes name, but for a twin whose standing
// record this sink has rejected. Recovery never screens: what the set of claims says by then is of another time.
//
// Notes that are damaged name what can still be read of them, and with a damaged trail nothing is left out: then a duplicate passes, and
// no content is lost. Audit names the damage.
func LeaveOut(notes *duplicates.Reader, rejects *trail.Index, sink string, log *slog.Logger) pipeline.Duplicates {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return func(ctx context.Context, p record.Partition, s checkpoint.Span) (func(int64, record.ID) bool, error) {
		named, err := notes.Within(ctx, p, s)
		if err = tolerate(err, log, p, s); err != nil || len(named) == 0 {
			return nil, err
		}
		if err := rejects.Load(ctx); errors.Is(err, avrofile.ErrDamaged) {
			return nil, tolerate(err, log, p, s)
		} else if err != nil {
			return nil, err
		}
		return leaves(named, func(tail [8]byte) bool { return rejects.Misses(sink, tail) }), nil
	}
}

// tolerate lets damage pass, and says so.
func tolerate(err error, log *slog.Logger, p record.Partition, s checkpoint.Span) error {
	if !errors.Is(err, avrofile.ErrDamaged) {
		return err
	}
	log.Warn("what was dropped as a duplicate cannot all be read; the rest is written", "partition", p.String(), "span", s.String(), "error", err)
	return nil
}

// leaves decides for each record of what was named, ascending. A record for which any of those that stand for it is missing is written.
func leaves(named []duplicates.Dropped, missing func(tail [8]byte) bool) func(int64, record.ID) bool {
	return func(offset int64, id record.ID) bool {
		i, found := slices.BinarySearchFunc(named, offset, func(d duplicates.Dropped, o int64) int {
			return cmp.Compare(d.Offset, o)
		})
		leave := false
		for ; found && i < len(named) && named[i].Offset == offset; i++ {
			if named[i].ID != id {
				continue
			}
			if missing(named[i].Stands) {
				return false
			}
			leave = true
		}
		return leave
	}
}
