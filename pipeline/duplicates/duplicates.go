// Package duplicates keeps the durable record of the records that a stream dropped because another one holds their content. It lies
// beside raw, by partition and by the offsets of the batches: whoever brings a span out of raw later, into whatever sink, reads what
// concerns that span and drops the same ones. Nothing of it is read at a start, and nothing of it stays in memory.
//
// A batch is noted before lanes see it without the records that the note names. So what was dropped is always named; what is named
// need not have been dropped, since a note of unknown outcome lets its batch pass whole. Both are right: a record that is named has
// another one that stands for it.
package duplicates

import (
	"fmt"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Dropped is a record whose content another record holds.
type Dropped struct {
	Offset int64
	ID     record.ID
	Stands [8]byte // the tail of the id of the record that stands for it
}

// Noted is what was dropped of one batch.
type Noted struct {
	Partition record.Partition
	Span      checkpoint.Span // the batch's
	Dropped   []Dropped       // ascending, within Span
}

// check refuses what no reader would take.
func (n *Noted) check() error {
	at := n.Span.From
	if at < 0 {
		return fmt.Errorf("no batch covers %v", n.Span)
	}
	for i := range n.Dropped {
		o := n.Dropped[i].Offset
		if o < at || o >= n.Span.To {
			return fmt.Errorf("offset %d does not belong into %v, or is not in order", o, n.Span)
		}
		at = o + 1
	}
	return nil
}

// root is where the notes of a stream lie.
func root(stream string) string { return stream + "/_duplicates/" }

const suffix = ".avro"
