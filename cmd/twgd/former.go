package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// former are the chains in raw that nobody reads any more: of a topic that was deleted, created again or taken out of the
// configuration. What a sink lacks of them is still in raw, and is recovered like that of the others. Where one process owns raw,
// it owns them too; they do not grow.
type former struct {
	raw      sinks.Raw
	lanes    []*pipeline.Lane
	assigned func(context.Context) map[record.Partition]pipeline.Extent
	log      *slog.Logger

	mu     sync.Mutex
	looked time.Time
	chains map[record.Partition]pipeline.Extent
}

// formerEvery is how often raw is searched for them.
const formerEvery = 30 * time.Second

// extents are those of the assigned partitions, and of the former chains beside them.
func (f *former) extents(ctx context.Context) map[record.Partition]pipeline.Extent {
	all := f.assigned(ctx)
	if all == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) > formerEvery {
		f.looked = time.Now()
		f.look(ctx)
	}
	for p, e := range f.chains {
		if _, read := all[p]; !read {
			all[p] = e
			for _, l := range f.lanes {
				l.Adopt(p)
			}
		}
	}
	return all
}

// look lists the chains in raw. One that cannot be read is left to audit and verify, which say what is wrong.
func (f *former) look(ctx context.Context) {
	partitions, err := f.raw.Partitions(ctx)
	if err != nil {
		f.log.Warn("looking for chains that are not read any more", "error", err)
		return
	}
	f.chains = map[record.Partition]pipeline.Extent{}
	for _, p := range partitions {
		if head, err := f.raw.Head(ctx, p); err == nil {
			f.chains[p] = pipeline.Extent{Genesis: head.Genesis, Begin: head.Next, Next: head.Next}
		}
	}
}
