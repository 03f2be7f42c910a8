// Package row holds what a lane hands to a sink: records that passed its transforms, each with its id.
package row

import (
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Batch answers for the offsets of Span in one partition: its rows are everything that a sink should hold of them. Rows may be
// none, when all records of the span were rejected or the span held only markers; the span counts as covered all the same.
// A sink only reads it, and keeps nothing of it after the call that was given it.
type Batch struct {
	Partition record.Partition
	Span      checkpoint.Span
	Records   []record.Record
	IDs       []record.ID // IDs[i] belongs to Records[i]
	Bytes     int64       // weight in memory of the records
}

// FromRecords makes the rows of a whole record batch, with ids by h.
func FromRecords(b *record.Batch, ids []record.ID) *Batch {
	return &Batch{Partition: b.Partition, Span: checkpoint.Span{From: b.First, To: b.Next}, Records: b.Records, IDs: ids, Bytes: b.Bytes}
}

// Filter splits off the rows for which bad says true; the batch returned has the others. Where none is bad it is b itself.
func (b *Batch) Filter(bad func(*record.Record) bool) (good *Batch, rejected []int) {
	for i := range b.Records {
		if bad(&b.Records[i]) {
			rejected = append(rejected, i)
		}
	}
	return b.Without(rejected), rejected
}

// Without is the batch less the rows at indices, which ascend; the span stays. Where indices is empty it is b itself, and where it names all,
// a batch without rows.
func (b *Batch) Without(indices []int) *Batch {
	if len(indices) == 0 {
		return b
	}
	left := max(0, len(b.Records)-len(indices))
	out := &Batch{Partition: b.Partition, Span: b.Span, Records: make([]record.Record, 0, left), IDs: make([]record.ID, 0, left)}
	for i := range b.Records {
		if len(indices) > 0 && indices[0] == i {
			indices = indices[1:]
			continue
		}
		out.Records = append(out.Records, b.Records[i])
		out.IDs = append(out.IDs, b.IDs[i])
		out.Bytes += b.Records[i].Size()
	}
	return out
}
