// Package pipetest is what the tests of pipeline and recovery stand on: batches whose memory is poisoned when their last holder lets
// go, sources whose events a test or a dice writes, a raw store and sinks that fail as told. All of it waits on nothing but contexts
// and timers, so that it runs in the fake time of testing/synctest.
package pipetest

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/stream-arrow/twgd/record"
)

// Heap makes batches and counts those that are not released.
type Heap struct {
	mu        sync.Mutex
	made      int
	live      int
	violation string
}

// Present says whether a log has a record at offset: every seventh is compacted away.
func Present(offset int64) bool { return offset%7 != 3 }

// Value is what the record at offset holds.
func Value(offset int64, size int) []byte {
	v := fmt.Appendf(make([]byte, 0, size), "%d:", offset)
	for len(v) < size {
		v = append(v, byte('a'+(offset+int64(len(v)))%26))
	}
	return v
}

// Record is the record at offset.
func Record(offset int64, size int) record.Record {
	return record.Record{Offset: offset, Timestamp: 1_700_000_000_000 + offset, ProducerID: -1, LeaderEpoch: 5,
		Key: fmt.Appendf(nil, "k%d", offset), Value: Value(offset, size)}
}

// Batch is [first, next) of p with values of size bytes.
func (h *Heap) Batch(p record.Partition, epoch uint64, first, next int64, size int) *record.Batch {
	b := &record.Batch{Partition: p, Epoch: epoch, First: first, Next: next, LeaderEpoch: 5}
	for o := first; o < next; o++ {
		if Present(o) {
			b.Records = append(b.Records, Record(o, size))
		}
	}
	return h.track(b)
}

// Gap is a lost range.
func (h *Heap) Gap(p record.Partition, epoch uint64, first, next int64) *record.Batch {
	return h.track(&record.Batch{Partition: p, Epoch: epoch, First: first, Next: next, LeaderEpoch: 5, Gap: "retention"})
}

func (h *Heap) track(b *record.Batch) *record.Batch {
	h.mu.Lock()
	h.made++
	h.live++
	h.mu.Unlock()
	freed := false
	records := b.Records
	return b.Weigh(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if freed {
			h.violation = fmt.Sprintf("batch [%d, %d) is freed twice", b.First, b.Next)
		}
		freed = true
		h.live--
		for i := range records { // whoever still reads it reads this
			poison(records[i].Key)
			poison(records[i].Value)
			records[i].Offset = -1
		}
	})
}

func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}

// Live is how many batches are held by somebody, and how many were made; an error where one was freed twice.
func (h *Heap) Live() (live, made int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.violation != "" {
		err = fmt.Errorf("%s", h.violation)
	}
	return h.live, h.made, err
}

// Check compares a record with what the log has at its offset.
func Check(r *record.Record) error {
	if r.Offset < 0 {
		return fmt.Errorf("a record is read after its batch was released")
	}
	want := Record(r.Offset, len(r.Value))
	if !Present(r.Offset) || !bytes.Equal(r.Key, want.Key) || !bytes.Equal(r.Value, want.Value) || r.Timestamp != want.Timestamp {
		return fmt.Errorf("offset %d reads %q, %q", r.Offset, r.Key, r.Value)
	}
	return nil
}
