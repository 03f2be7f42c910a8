package lease

import (
	"io"
	"time"
)

// Table is the replicated half. The zero value is ready; it is not safe for concurrent use.
type Table struct{}

// Epoch is the command that raises the incarnation, and with it every later token. Nothing is leased before the first.
func Epoch(incarnation uint64) []byte { return nil }

// EpochReply reads its reply: nil where the incarnation is in force.
func EpochReply(reply []byte) error { return nil }

func (t *Table) Apply(now time.Duration, cmd []byte) (reply []byte) { return nil }
func (t *Table) Query(q []byte) (reply []byte)                      { return nil }
func (t *Table) Next() (at time.Duration, ok bool)                  { return 0, false }
func (t *Table) Expire(now time.Duration)                           {}
func (t *Table) Snapshot() func(w io.Writer) error                  { return func(io.Writer) error { return nil } }
func (t *Table) Restore(version uint16, r io.Reader) error          { return nil }
func (t *Table) Version() uint16                                    { return 1 }

// Incarnation is what the last Epoch said; 0 before the first.
func (t *Table) Incarnation() uint64 { return 0 }

// Len is how many leases are held.
func (t *Table) Len() int { return 0 }
