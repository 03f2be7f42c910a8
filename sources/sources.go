// Package sources is the seam between transports and the pipeline: what a source delivers, in which order, and what it may be
// told.
package sources

import (
	"context"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Traits are what the configuration must know of a source without knowing which it is.
type Traits struct {
	Kind       string
	Replayable bool // a position can be read again; where false, raw is required
}

// Gate answers where reading of a partition begins. The source asks before it fetches anything: raw wins over every position
// that the transport itself keeps. It asks once for every Assigned, also for those that follow a Seek or a Rejoin; an assignment
// that is revoked before the gate has answered is never reported. genesis is called only where the gate has nothing of p, and says what the configured start
// means for it. It blocks until the gate has answered, and returns an error only when ctx ends.
type Gate func(ctx context.Context, p record.Partition, genesis func(context.Context) (int64, error)) (Start, error)

// Start is where reading begins.
type Start struct {
	Next        int64 // the offset to read first
	LeaderEpoch int32 // of the last record stored, for the check that the log is still the same; -1 where it is not known
	Stored      bool  // something of p is stored, so that a log that ends below Next has diverged
}

// Source reads one stream. Next is called by one goroutine; the other methods may be called at any time from another, and do
// not wait for it.
type Source interface {
	Traits() Traits

	// Open connects and begins to read. It returns when the source can deliver events, which may be before anything is assigned.
	Open(ctx context.Context, gate Gate) error

	// Next waits for what happens next. It returns ctx.Err() when ctx ends, and any other error only when the source is broken
	// for good.
	Next(ctx context.Context) (Event, error)

	// Pause stops delivery of Polled events until Resume; assignments and revocations still come. What the client has fetched
	// ahead stays bounded.
	Pause()
	Resume()

	// Seek makes reading of an assigned partition go on at next: another writer stored what lies before. It comes back as Revoked
	// and Assigned of this partition with a new epoch.
	Seek(p record.Partition, next int64)

	// Rejoin leaves and joins the group again: we were fenced.
	Rejoin()

	// Commit tells the transport how far the gate is: a hint for others, never the truth. It must not be called for partitions
	// that are not assigned. Where the error is, or wraps, a *CommitError, the transport has taken all positions but those it
	// names; with any other error it has taken none.
	Commit(ctx context.Context, positions []Position) error

	// Buffered is the memory in bytes of what was read ahead and not delivered: compressed as it came, or decoded.
	Buffered() int64

	// Close leaves the group and ends what runs.
	Close(ctx context.Context) error
}

// Position of a partition: next is the offset to read, first the name of the last stored segment.
type Position struct {
	Partition   record.Partition
	Next        int64
	First       int64
	LeaderEpoch int32
}

// Event is one of Assigned, Revoked, Polled, Held, Ends, Notice, Exhausted.
type Event interface{ event() }

// Assigned says that partitions are ours from now on, each under a new epoch.
type Assigned struct{ Partitions []Assignment }

// Assignment of one partition.
type Assignment struct {
	Partition record.Partition
	Epoch     uint64
	Next      int64 // the first offset that will be delivered
}

// Revoked says that partitions are no longer ours. The source keeps them from their next owner until Done is called or a bound
// of its own has passed: what is open should be flushed and committed before. Lost says that they are somebody else's already,
// and nothing can be saved.
type Revoked struct {
	Partitions []record.Partition
	Lost       bool
	Done       func()
}

// Polled delivers batches. Within a partition they follow each other without a hole under one epoch; a range that retention
// took is a batch with Gap set. The receiver holds each batch and releases it.
type Polled struct{ Batches []*record.Batch }

// Held says that a partition is not read until an operator or the transport changes something. An empty Reason lifts it, and so
// does a revocation. A Partition without a topic stands for the whole stream. What was read before may still be delivered after it.
type Held struct {
	Partition record.Partition
	Reason    string
}

// Ends reports the ends of the logs as the transport sees them, for lag: the last stable offset under read_committed, the high
// watermark otherwise.
type Ends struct{ Ends map[record.Partition]int64 }

// Notice is an event an operator should see, and finds in the log because the receiver writes it there: a topic that was created again, a group offset that was ignored.
type Notice struct {
	Partition record.Partition
	Kind      string // topic_recreated, offset_ignored, topic_missing, source_down, source_up
	Text      string
	Span      checkpoint.Span // where it concerns a range
}

// Exhausted says that a finite source has delivered all it has.
type Exhausted struct{}

func (Assigned) event()  {}
func (Revoked) event()   {}
func (Polled) event()    {}
func (Held) event()      {}
func (Ends) event()      {}
func (Notice) event()    {}
func (Exhausted) event() {}
