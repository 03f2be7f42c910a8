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
	if len(rejected) == 0 {
		return b, nil
	}
	good = &Batch{Partition: b.Partition, Span: b.Span}
	next := 0
	for i := range b.Records {
		if next < len(rejected) && rejected[next] == i {
			next++
			continue
		}
		good.Records = append(good.Records, b.Records[i])
		good.IDs = append(good.IDs, b.IDs[i])
		good.Bytes += b.Records[i].Size()
	}
	return good, rejected
}
