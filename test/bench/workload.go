package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stream-arrow/twgd/record"
)

// workload is the records of a run, in memory by partition, as they are in the topic: offsets, timestamps, keys and values are the
// same, so that the parts work on what twgd works on.
type workload [][]record.Record

// newWorkload makes n records in turn for each partition. Keys have 8 bytes; values are text of which about half is chance.
func newWorkload(n, valueSize, partitions int, now time.Time) workload {
	rng := rand.New(rand.NewPCG(1, 2))
	start := now.Add(-time.Hour).UnixMilli()
	w := make(workload, partitions)
	for p := range w {
		w[p] = make([]record.Record, 0, n/partitions+1)
	}
	slab := make([]byte, 0, n*(valueSize+8))
	for i := range n {
		at := len(slab)
		slab = fmt.Appendf(slab, "%08x", rng.Uint32())
		key := slab[at:len(slab):len(slab)]
		at = len(slab)
		slab = appendValue(slab, rng, i, valueSize)
		p := i % partitions
		w[p] = append(w[p], record.Record{Key: key, Value: slab[at:len(slab):len(slab)], Offset: int64(i / partitions),
			Timestamp: start + int64(i/100), ProducerID: -1, ProducerEpoch: -1})
	}
	return w
}

func appendValue(b []byte, rng *rand.Rand, i, size int) []byte {
	end := len(b) + size
	b = fmt.Appendf(b, `{"id":%d,"customer":"c-%06d","status":"%s","amount":%d.%02d,"currency":"EUR","note":"`, i, rng.IntN(1e6),
		[]string{"created", "paid", "shipped", "returned"}[rng.IntN(4)], rng.IntN(1e4), rng.IntN(100))
	for len(b) < end {
		b = append(b, "0123456789abcdefghijklmnopqrstuv"[rng.IntN(32)])
	}
	return b[:end]
}

// count is the number of records.
func (w workload) count() (n int) {
	for _, records := range w {
		n += len(records)
	}
	return n
}

// share is the first 1/of of every partition.
func (w workload) share(of int) workload {
	out := make(workload, len(w))
	for p := range w {
		out[p] = w[p][:len(w[p])/of]
	}
	return out
}

// batches calls f with pieces of at most n records, the partitions in turn, as they come from a topic.
func (w workload) batches(n int, f func(partition int, records []record.Record) error) error {
	for at, more := 0, true; more; at += n {
		more = false
		for p, records := range w {
			if at >= len(records) {
				continue
			}
			more = true
			if err := f(p, records[at:min(at+n, len(records))]); err != nil {
				return err
			}
		}
	}
	return nil
}

// produce writes the workload to a topic, each record to its partition and offset.
func (w workload) produce(ctx context.Context, brokers []string, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1), kgo.ProducerLinger(20*time.Millisecond),
		kgo.MaxBufferedRecords(100_000), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	if err != nil {
		return err
	}
	defer client.Close()
	var first firstError
	w.batches(500, func(p int, records []record.Record) error {
		for i := range records {
			r := &records[i]
			client.Produce(ctx, &kgo.Record{Partition: int32(p), Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)},
				func(got *kgo.Record, err error) {
					if err == nil && got.Offset != r.Offset {
						err = fmt.Errorf("record %d of partition %d lies at offset %d", r.Offset, p, got.Offset)
					}
					first.note(err)
				})
		}
		return nil
	})
	return errors.Join(client.Flush(ctx), first.get())
}

// firstError keeps the first error of several goroutines.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
