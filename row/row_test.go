package row

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

func five() *Batch {
	b := &Batch{Partition: record.Partition{Topic: "t"}, Span: checkpoint.Span{From: 0, To: 9}}
	for i := range int64(5) {
		b.Records = append(b.Records, record.Record{Offset: i, Value: make([]byte, 10*i)})
		b.IDs = append(b.IDs, record.ID{byte(i)})
		b.Bytes += b.Records[i].Size()
	}
	return b
}

// left lists what a batch holds, and checks that it is whole.
func left(t *testing.T, b *Batch) string {
	t.Helper()
	var offsets []int64
	bytes := int64(0)
	for i := range b.Records {
		offsets = append(offsets, b.Records[i].Offset)
		bytes += b.Records[i].Size()
		if b.IDs[i] != (record.ID{byte(b.Records[i].Offset)}) {
			t.Errorf("offset %d has the id of another record", b.Records[i].Offset)
		}
	}
	if b.Bytes != bytes || len(b.IDs) != len(b.Records) || b.Span != (checkpoint.Span{From: 0, To: 9}) || b.Partition.Topic != "t" {
		t.Errorf("%d bytes, want %d; %d ids; %v of %v", b.Bytes, bytes, len(b.IDs), b.Span, b.Partition)
	}
	return fmt.Sprint(offsets)
}

func TestWithoutAndFilter(t *testing.T) {
	f := func(want string, without ...int) {
		t.Helper()
		b := five()
		if got := left(t, b.Without(without)); got != want {
			t.Errorf("without %v: %s, want %s", without, got, want)
		}
		good, rejected := b.Filter(func(r *record.Record) bool { return slices.Contains(without, int(r.Offset)) })
		if got := left(t, good); got != want || !slices.Equal(rejected, without) {
			t.Errorf("filtered by %v: %s and %v, want %s", without, got, rejected, want)
		}
		if whole := left(t, b); whole != "[0 1 2 3 4]" {
			t.Errorf("the batch itself has %s now", whole)
		}
	}
	f("[0 1 2 3 4]")
	f("[1 2 3 4]", 0)
	f("[0 1 2 3]", 4)
	f("[0 2]", 1, 3, 4)
	f("[]", 0, 1, 2, 3, 4)
	if b := five(); b.Without(nil) != b {
		t.Error("a batch that keeps all is copied")
	}
}
