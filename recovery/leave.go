package recovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
)

// Rows tells how many rows a sink holds of a partition within spans; it is a sink's Count.
type Rows func(ctx context.Context, p record.Partition, spans []checkpoint.Span) ([]int64, error)

// LeaveOut is what one sink is not given when it is filled out of raw: exactly the records that notes name, but for a twin whose standing
// record this sink has rejected, and has not got. Recovery never screens: what the set of claims says by then is of another time.
//
// What was rejected may have been taken at a later attempt, once the table was mended. Only the sink knows; rows asks it, of rejected records
// alone, and where it does not answer they count as missing. rows is nil for a sink of files, which take nothing later.
//
// Notes that are damaged name what can still be read of them, and with a damaged trail nothing is left out: then a duplicate passes, and
// no content is lost. Audit names the damage.
func LeaveOut(notes *duplicates.Reader, rejects *trail.Index, sink string, rows Rows, log *slog.Logger) pipeline.Duplicates {
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
		return leaves(named, lacking(ctx, named, func(tail [8]byte) (trail.Rejected, bool) { return rejects.Rejected(sink, tail) }, rows, log)), nil
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

// spansAtOnce bounds how many spans a sink is asked about at once.
const spansAtOnce = 1000

// lacking says of the records that stand for what was named which ones the sink has rejected and has not got.
func lacking(ctx context.Context, named []duplicates.Dropped, rejected func(tail [8]byte) (trail.Rejected, bool), rows Rows, log *slog.Logger) func(tail [8]byte) bool {
	lacks, places := map[[8]byte]bool{}, map[record.Partition]map[int64][8]byte{}
	for i := range named {
		tail := named[i].Stands
		at, ok := rejected(tail)
		if !ok || lacks[tail] {
			continue
		}
		lacks[tail] = true
		if rows == nil || at == (trail.Rejected{}) {
			continue
		}
		if places[at.Partition] == nil {
			places[at.Partition] = map[int64][8]byte{}
		}
		places[at.Partition][at.Offset] = tail
	}
	for p, tails := range places {
		if err := there(ctx, p, slices.Sorted(maps.Keys(tails)), rows, func(offset int64) { delete(lacks, tails[offset]) }); err != nil {
			log.Warn("the sink does not say whether it has rejected records by now; the records that they stand for are written", "partition", p.String(), "error", err)
		}
	}
	return func(tail [8]byte) bool { return lacks[tail] }
}

// there calls has with each of the offsets that the sink has.
func there(ctx context.Context, p record.Partition, offsets []int64, rows Rows, has func(offset int64)) error {
	for some := range slices.Chunk(offsets, spansAtOnce) {
		spans := make([]checkpoint.Span, len(some))
		for i, o := range some {
			spans[i] = checkpoint.Span{From: o, To: o + 1}
		}
		counts, err := rows(ctx, p, spans)
		if err != nil {
			return err
		}
		for i, o := range some {
			if counts[i] > 0 {
				has(o)
			}
		}
	}
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
