package kafka

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// aborter tells which batches belong to aborted transactions. A fetch under read_committed brings the data of all transactions
// that are decided, and a list of the aborted ones by producer and first offset; each ends with its abort marker.
type aborter struct {
	begins []kmsg.FetchResponseTopicPartitionAbortedTransaction // in order of their first offsets, those not reached yet
	open   map[int64]bool                                       // producers within an aborted transaction
}

func newAborter(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) aborter {
	slices.SortFunc(list, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	return aborter{begins: list}
}

// hides reports whether the batch's records were aborted. Batches must be shown in order, markers included.
func (a *aborter) hides(b *batch) bool {
	for len(a.begins) > 0 && a.begins[0].FirstOffset < b.next {
		if a.open == nil {
			a.open = map[int64]bool{}
		}
		a.open[a.begins[0].ProducerID] = true
		a.begins = a.begins[1:]
	}
	switch {
	case !b.control():
		return b.transactional() && a.open[b.producerID]
	case a.open[b.producerID] && abortMarker(b.body):
		delete(a.open, b.producerID)
	}
	return false
}
