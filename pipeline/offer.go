package pipeline

import (
	"sync"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
)

// Offered is a stored batch on its way to the lanes. They share the batch and its ids, which are computed once, by the lane that
// needs them first.
type Offered struct {
	Batch  *record.Batch
	Stored time.Time // when raw had it, by this process's monotonic clock: deadlines count from here

	maker *idMaker
	once  sync.Once
	ids   []record.ID
}

func newOffered(b *record.Batch, stored time.Time, maker *idMaker) *Offered {
	return &Offered{Batch: b, Stored: stored, maker: maker}
}

// Rows is the batch as rows. It is valid as long as the batch is held.
func (o *Offered) Rows() *row.Batch {
	o.once.Do(func() { o.ids = o.maker.ids(o.Batch.Records) })
	return row.FromRecords(o.Batch, o.ids)
}
