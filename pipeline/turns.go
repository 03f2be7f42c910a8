package pipeline

import (
	"context"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// begins is how many chains are begun at a time: a stream may be assigned thousands of partitions at once, and each beginning
// opens files or connections of its own.
const begins = 64

// turns bounds how many do something at a time.
type turns chan struct{}

// head asks raw where p begins when it is its turn. While genesis waits for the source, the turn is another's: a partition that has
// no leader keeps none from beginning. Begin calls
// genesis before it returns.
func (t turns) head(ctx context.Context, raw sinks.Raw, p record.Partition, genesis func(context.Context) (int64, error)) (sinks.Head, error) {
	if err := t.take(ctx); err != nil {
		return sinks.Head{}, err
	}
	held := true
	defer func() {
		if held {
			<-t
		}
	}()
	return raw.Begin(ctx, p, func(ctx context.Context) (int64, error) {
		if held {
			<-t
			held = false
		}
		at, err := genesis(ctx)
		if err != nil {
			return 0, err
		}
		err = t.take(ctx)
		held = err == nil
		return at, err
	})
}

func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
