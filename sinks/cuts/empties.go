package cuts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// empties are the cuts and cells that hold no rows. Each is one create-only object whose name says all; what stands inside is for
// people.
//
// A mark may come long after cuts behind it, so listing cannot simply go on where it ended. But what lies below complete is
// covered, and a mark is durable before it covers: whoever lists after complete was told has seen all marks below it, and the
// next listing may begin there.
type empties struct {
	bucket   store.Bucket
	dir      string // with a slash at its end
	known    checkpoint.SpanSet
	listed   int64 // no mark below this is unknown
	complete int64 // everything below is covered, as the last call of Cells was told
}

const emptySuffix = ".empty"

type emptyObject struct {
	Version int    `json:"version"`
	First   int64  `json:"first"`
	Next    int64  `json:"next"`
	Created string `json:"created"`
}

func (e *empties) key(s checkpoint.Span) string {
	return e.dir + record.OffsetName(s.From) + "-" + record.OffsetName(s.To) + emptySuffix
}

func (e *empties) mark(ctx context.Context, s checkpoint.Span, now time.Time) error {
	if s.Empty() {
		return fmt.Errorf("%v covers nothing", s)
	}
	body, err := json.Marshal(emptyObject{1, s.From, s.To, now.UTC().Format(time.RFC3339Nano)})
	if err != nil {
		return err
	}
	if _, _, err := chain.Once(ctx, e.bucket, e.key(s), body); err != nil {
		return err
	}
	e.known.Add(s)
	return nil
}

func (e *empties) list(ctx context.Context) (checkpoint.SpanSet, error) {
	after := ""
	if e.listed > 0 {
		after = e.dir + record.OffsetName(e.listed)
	}
	entries, err := e.bucket.List(ctx, e.dir, after, 0)
	if err != nil {
		return checkpoint.SpanSet{}, err
	}
	for _, o := range entries {
		s, err := e.parse(o.Key)
		if err != nil {
			return checkpoint.SpanSet{}, err
		}
		e.known.Add(s)
	}
	e.listed = max(e.listed, e.complete)
	return e.known.Clone(), nil
}

func (e *empties) parse(key string) (s checkpoint.Span, err error) {
	name, ok := strings.CutSuffix(strings.TrimPrefix(key, e.dir), emptySuffix)
	first, next, dash := strings.Cut(name, "-")
	if ok && dash {
		if s.From, err = record.ParseOffset(first); err == nil {
			s.To, err = record.ParseOffset(next)
		}
	}
	if !ok || !dash || err != nil || s.Empty() {
		return s, fmt.Errorf("%w: %s is not the name of an empty cell", avrofile.ErrDamaged, key)
	}
	return s, nil
}

func isNotFound(err error) bool { return errors.Is(err, store.ErrNotFound) }
