// Package lease lets the nodes of a cluster agree on who does what: a lease on a name has one holder at a time, who proves itself
// with a fencing token that only grows. The room has two halves. Table is the replicated half: a pure value that is told the time by
// the commands it applies. Client is the asking half: it keeps what it holds by its own monotonic clock, and never for longer than
// the table does.
package lease

import (
	"context"
	"errors"
	"time"
)

// Limits of what a command may say. A command beyond them is refused, by every replica alike.
const (
	MaxName   = 1024                   // bytes of a lease's name; at least one
	MaxHolder = 512                    // bytes of a holder's name
	MinTTL    = 100 * time.Millisecond // shortest time that a lease is given for
	MaxTTL    = 24 * time.Hour         // longest
	MaxRows   = 1 << 17                // leases and waiters together
	MaxTokens = 1 << 14                // tokens that one renewal names
	MaxEpoch  = 1<<24 - 1              // greatest incarnation: it has the upper 24 bits of a token
)

// ErrStale says that a token is not the lease's any more: the lease has expired, was released, or another holds it.
var ErrStale = errors.New("the lease is no longer held under this token")

// Proposer brings a command into the cluster's log and answers with the table's reply. Any error means that the outcome is unknown:
// the command may have been applied, or may be later. Every command of this room may therefore be repeated.
type Proposer interface {
	Propose(ctx context.Context, cmd []byte) (reply []byte, err error)
}

// Asker puts a question to the leader's table, which answers without a log entry.
type Asker interface {
	Query(ctx context.Context, q []byte) (reply []byte, err error)
}

// Request names one attempt to acquire, however often it is repeated.
type Request [16]byte

// Info says who holds a name.
type Info struct {
	Held    bool
	Holder  string
	Token   uint64
	Waiting int // how many wait for it
}
