package pipeline

import (
	"sync"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
)

// Offered is a stored batch on its way to the lanes. They share the batch, its ids and its rows, which are computed once, by whoever needs
// them first.
type Offered struct {
	Batch  *record.Batch
	Stored time.Time // when raw had it, by this process's monotonic clock: deadlines count from here

	maker   *idMaker
	dropped []int // records that no lane is given, ascending; set before the batch is offered

	identify, fill sync.Once
	ids            []record.ID
	rows           *row.Batch
}

func newOffered(b *record.Batch, stored time.Time, maker *idMaker) *Offered {
	return &Offered{Batch: b, Stored: stored, maker: maker}
}

// IDs are the ids of all records of the batch.
func (o *Offered) IDs() []record.ID {
	o.identify.Do(func() { o.ids = o.maker.ids(o.Batch.Records) })
	return o.ids
}

// Rows is the batch as rows, without what is dropped. It is valid as long as the batch is held.
func (o *Offered) Rows() *row.Batch {
	o.fill.Do(func() { o.rows = row.FromRecords(o.Batch, o.IDs()).Without(o.dropped) })
	return o.rows
}
