package sinks

import (
	"context"
	"errors"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Raw is the gate of a stream: a durable, readable store whose atomic write holds the batch and the next position together.
// Methods on different partitions may run at once; for one partition there is one Append in flight.
type Raw interface {
	// Begin opens the chain of p for writing and returns its head. Where the chain has no beginning yet, genesis becomes it, by a
	// create-only write: whoever comes second gets the first one's. It is called before anything of p is fetched.
	Begin(ctx context.Context, p record.Partition, genesis func(context.Context) (int64, error)) (Head, error)

	// Append stores the batches, which follow each other from the head on, as one commit. Where another writer's commit has taken
	// the place, Stored.Ours is false and Head says where the chain ends now: the batches are not stored by us, and what lies
	// below that head must be dropped. Where Ours is true the head may still lie in front of the last batch's end: an earlier
	// attempt, whose answer was lost, had landed with fewer batches, and the rest is to be appended next. Any other error leaves
	// the head where it was; the same Append may be tried again with the same or more batches.
	Append(ctx context.Context, p record.Partition, batches []*record.Batch) (Stored, error)

	// End waits for an Append that is under way, forgets the open chain of p and closes its files.
	End(p record.Partition)

	// Head is the chain's head as it is stored now, for readers. ErrNoChain where p has none.
	Head(ctx context.Context, p record.Partition) (Head, error)

	// Read calls f with the stored batches of p that touch s, cut to it, in order. A batch is valid until f returns, unless f
	// retains it. It stops early, without an error, at the head.
	Read(ctx context.Context, p record.Partition, s checkpoint.Span, f func(*record.Batch) error) error

	// Written is the writer's wall time of the commit that holds offset. False where the offset is not stored yet.
	Written(ctx context.Context, p record.Partition, offset int64) (time.Time, bool, error)

	// Partitions lists the chains that exist.
	Partitions(ctx context.Context) ([]record.Partition, error)

	Close() error
}

// Head is the end of a chain.
type Head struct {
	Genesis     int64 // the chain's first offset
	Last        int64 // the first offset of the last commit's segment; Genesis where nothing is stored
	Next        int64 // where reading goes on
	LeaderEpoch int32 // of the last record or marker stored, -1 where it is not known
}

// Stored is the receipt of one Append.
type Stored struct {
	Head
	Ours    bool
	Written time.Time // the wall time written into the commit
	Bytes   int64     // bytes that reached the store
}

// ErrNoChain says that raw holds nothing of a partition.
var ErrNoChain = errors.New("raw holds no chain of this partition")
