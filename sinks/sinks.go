// Package sinks is the seam between lanes and destinations: what a destination must do, in which words it reports, and the
// suite that every implementation passes (sinks/sinktest).
//
// The lane decides, the sink obeys. When to close a load, how long to wait after a failure, when to give up, which cut a file
// covers and what goes into quarantine is the lane's and the same for all; a sink only knows how to make rows durable at its
// destination and how to name what went wrong.
package sinks

import (
	"context"
	"errors"
	"fmt"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
)

// Traits are what the rest of the house must know of a sink without knowing which it is.
type Traits struct {
	Kind string // as in the configuration: parquet, postgres

	// Cuts: a file sink. One load holds one partition's contiguous span and becomes one file, whose span must be pinned in the
	// chain of cuts before it is committed. Where false, a load may hold spans of many partitions.
	Cuts bool

	// Target names the destination without secrets, for status and for finding two sinks with one target.
	Target string
}

// Sink is one destination. Begin, Coverage and Count may be called from several goroutines; each Load belongs to one at a time.
type Sink interface {
	Traits() Traits

	// Open makes the destination ready: connects, creates what may be created, checks what is there. It is called again after it
	// failed, and after a load failed with Blocked. It returns an *Error.
	Open(ctx context.Context) error

	// Begin opens an empty load. It does no I/O on the network.
	Begin() (Load, error)

	// Coverage says which spans of p the destination itself knows to hold: committed together with the rows, or by the names of
	// its files.
	Coverage(ctx context.Context, p record.Partition) (checkpoint.SpanSet, error)

	// Count counts the rows that the destination holds of p within each span, without believing any bookkeeping: it reads the
	// rows, or the files' own footers. It returns one number a span.
	Count(ctx context.Context, p record.Partition, spans []checkpoint.Span) ([]int64, error)

	Close() error
}

// Spot is a Sink with cuts that can say of one file, at the price of one request, whether it is there. Where partitions have many files
// that is much cheaper than Coverage.
type Spot interface {
	Holds(ctx context.Context, p record.Partition, s checkpoint.Span) (bool, error)
}

// Load gathers rows until it is committed whole or discarded. It is used by one goroutine at a time.
type Load interface {
	// Add takes over the rows of b, which it does not keep a reference to. In a sink with cuts b must follow what was added
	// before. Rows that the sink can already tell to be unacceptable are set aside and reported at Commit.
	Add(b *row.Batch) error

	// Size is what the load holds now.
	Size() Size

	// Spans lists what the load answers for, by partition.
	Spans() map[record.Partition]checkpoint.SpanSet

	// Commit makes the load durable and returns its receipt. It hands rows refused for good to report before anything of theirs
	// counts as covered; when report fails, so does Commit, and nothing is covered. After an error the load is still whole:
	// Commit may be called again, also when the outcome of the last call is not known. It returns an *Error. A sink with cuts
	// writes no file for a load without rows, and its receipt says so: the lane marks the span empty.
	Commit(ctx context.Context, report Report) (Receipt, error)

	// Discard gives up what is not committed and frees the memory. It is called exactly once, also after a Commit.
	Discard()
}

// Size of a load.
type Size struct {
	Rows int64 // rows that would be written
	Held int64 // bytes of memory held
	Out  int64 // bytes that the output would have by now, as far as it is known: what a roll by size looks at
}

// Report makes rejects durable in the trail (and shows them in the quarantine). A sink calls it before its coverage passes them.
type Report func(ctx context.Context, rejects []Reject) error

// Reject is one record that a sink refuses for good.
type Reject struct {
	Partition record.Partition
	Offset    int64
	ID        record.ID
	Reason    string         // ReasonSink, ReasonOversize
	Detail    string         // SQLSTATE, column, what was found; no value of a user
	Record    *record.Record // for the quarantine; valid until Report returns. Its key, value and headers may be cut
	Whole     Whole          // what was cut of Record; zero where nothing was
}

// Whole is how large a record was before it was cut for a reject: bytes of key and value, count of headers.
type Whole struct{ Key, Value, Headers int }

// Reasons of rejects.
const (
	ReasonSink     = "sink"     // the sink refuses the row for good
	ReasonOversize = "oversize" // larger than the sink's max_record
)

// Receipt says what became durable.
type Receipt struct {
	Spans    map[record.Partition]checkpoint.SpanSet
	Rows     int64
	Bytes    int64 // written to the destination
	Rejected int64
}

// Kind tells a lane what to do about an error. Only these three things are possible at a seam.
type Kind uint8

const (
	Retry   Kind = iota + 1 // the destination is away or busy: the same again later
	Blocked                 // a person must act first: table missing, permission, column type. The same again, slowly
	Fenced                  // the span is somebody else's: discard the load, recovery looks after the rest
)

func (k Kind) String() string {
	return map[Kind]string{Retry: "retry", Blocked: "blocked", Fenced: "fenced"}[k]
}

// Error is what a sink returns: what was being done, what kind of fault it is, and the cause. Reason is one line for a status
// page, without secrets.
type Error struct {
	Kind   Kind
	Reason string
	Err    error
}

func (e *Error) Error() string {
	if e.Err == nil || e.Err.Error() == e.Reason {
		return e.Reason
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of err; an error that does not say is worth another try.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Retry
}
