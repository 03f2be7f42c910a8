// Package duplicates is the durable record of what was dropped.
package duplicates

import (
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Dropped is a record that no sink is given, and the tail of the record that stands for it.
type Dropped struct {
	Offset int64
	ID     record.ID
	Stands [8]byte
}

// Noted is what is dropped of one batch.
type Noted struct {
	Partition record.Partition
	Span      checkpoint.Span // the batch's
	Dropped   []Dropped       // ascending by offset
}
