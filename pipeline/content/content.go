// Package content says which records of a stream have equal content: it hashes what the stream's contract calls a record's content, asks
// whoever keeps the claims which of the hashes another record holds, and names the twins. It decides nothing about them.
package content

import (
	"context"
	"errors"

	"github.com/stream-arrow/twgd/record"
)

// Row is a claim as it is asked: the content hash (16 bytes), then the tail of the record's id (8 bytes).
type Row = [24]byte

// Claims keeps which record claimed which content first. Both methods are safe for concurrent use and bounded in time by themselves. An error
// says that nothing is known; one that is an *Unavailable says why.
type Claims interface {
	// Key is the founding's dedup key.
	Key(ctx context.Context) ([32]byte, error)
	// Claim claims every row and names those whose content another record holds. key is the one that the rows were hashed with. Neither is
	// kept after the call.
	Claim(ctx context.Context, key *[32]byte, rows [][24]byte) ([]Held, error)
}

// Held names a row whose content is held by another record, and that record by its tail.
type Held struct {
	Row int
	By  [8]byte
}

// Unavailable is why nobody could say which records are twins.
type Unavailable struct {
	Reason string // one word, for the counter
	Err    error
}

func (u *Unavailable) Error() string {
	return "duplicates cannot be told (" + u.Reason + "): " + u.Err.Error()
}
func (u *Unavailable) Unwrap() error { return u.Err }

// Reason is the one word that stands for err in counters.
func Reason(err error) string {
	var u *Unavailable
	switch {
	case errors.As(err, &u) && u.Reason != "":
		return u.Reason
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "stopped"
	}
	return "failed"
}

// Batch is records with their ids: IDs[i] belongs to Records[i].
type Batch struct {
	Records []record.Record
	IDs     []record.ID
}

// Twin is a record whose content another record holds: which batch of those asked about, which record of it, and the tail of the record that
// stands for it.
type Twin struct {
	Batch, Record int
	Stands        [8]byte
}

// Verdict is what is known of the records of some batches.
type Verdict struct {
	Checked int64            // records that have a content hash and were claimed
	Unkeyed map[string]int64 // records that have none, by reason; nil where all have one
	Twins   []Twin           // ascending by batch and record
}
