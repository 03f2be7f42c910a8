package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
)

// measureRaw is the broker into raw in a local directory, beside its parts.
func measureRaw(ctx context.Context, b *bench) error {
	n := b.work.count()
	f := flow{topic: fullTopic, n: n, sinks: func(string) string { return "" }, metric: "twg_gate_records_total"}
	idle, err := b.idlePass(ctx, f)
	if err != nil {
		return err
	}
	var twgd passes
	var client, segment, plain costs
	for range b.runs {
		p, err := b.pass(ctx, f, idle)
		if err != nil {
			return err
		}
		twgd = append(twgd, p)
		if err := b.rawParts(ctx, fullTopic, b.work, p, &client, &segment, &plain); err != nil {
			return err
		}
	}
	r := &b.report
	r.addPasses(twgd, n)
	r.add("bare client that discards", "records/CPU-s", client.perCPUSecond(n))
	r.add("bare client that discards", "records/s", client.perSecond(n))
	r.add("bare client, allocations", "per record", each(func(i int) float64 { return client[i].mallocs / float64(n) }, b.runs))
	r.add("segment from memory: encode, compress, sync", "records/CPU-s", segment.perCPUSecond(n))
	r.add("segment, allocations", "per record", each(func(i int) float64 { return segment[i].mallocs / float64(n) }, b.runs))
	r.add("plain zstd of keys and values, written and synced", "records/CPU-s", plain.perCPUSecond(n))
	cpu := sum(twgd.costs())
	r.add("CPU of twgd / client + segment", "ratio", ratios(cpu, sum(client, segment)), aim{AtMost: 1.25})
	r.add("CPU of twgd / client + plain zstd", "ratio", ratios(cpu, sum(client, plain)))
	return nil
}

// rawParts measures each part once, with as many records to a commit as twgd had.
func (b *bench) rawParts(ctx context.Context, topic string, w workload, p pass, client, segment, plain *costs) error {
	size := max(1, int(float64(w.count())/p.commits))
	for _, part := range []struct {
		to *costs
		f  func() error
	}{
		{client, func() error { return fetchAll(ctx, b.kafka.Brokers(), topic, w.count()) }},
		{segment, func() error {
			return b.inScratch(func(dir string) error { return writeSegments(ctx, dir, w, size) })
		}},
		{plain, func() error { return b.inScratch(func(dir string) error { return writePlain(dir, w, size) }) }},
	} {
		c, err := measure(part.f)
		if err != nil {
			return err
		}
		*part.to = append(*part.to, c)
	}
	return nil
}

func (b *bench) inScratch(f func(dir string) error) error {
	dir, err := b.scratch()
	if err != nil {
		return err
	}
	return errors.Join(f(dir), os.RemoveAll(dir))
}

// fetchAll reads n records with a bare client and the limits that twgd has by default, and lets them go.
func fetchAll(ctx context.Context, brokers []string, topic string, n int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(1<<20), kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for got := 0; got < n; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("bare client: %w", err)
		}
		got += fetches.NumRecords()
	}
	return nil
}

// benchPartition is a partition as the parts name it.
func benchPartition(number int) record.Partition {
	return record.Partition{Cluster: "bench-cluster-0000000000", Topic: fullTopic, TopicID: [16]byte{1, 2, 3}, Number: int32(number)}
}

// writeSegments stores the workload in raw, a batch a commit.
func writeSegments(ctx context.Context, dir string, w workload, size int) error {
	bucket, err := store.Open(ctx, "file://"+dir, store.Options{})
	if err != nil {
		return err
	}
	s, err := raw.Open(ctx, raw.Options{Bucket: bucket, Stream: "bench", Codec: "zstd"})
	if err != nil {
		return err
	}
	for p := range w {
		if _, err := s.Begin(ctx, benchPartition(p), func(context.Context) (int64, error) { return 0, nil }); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	err = w.batches(size, func(p int, records []record.Record) error {
		first := records[0].Offset
		batch := &record.Batch{Partition: benchPartition(p), First: first, Next: first + int64(len(records)), Records: records}
		_, err := s.Append(ctx, batch.Partition, []*record.Batch{batch.Weigh(nil)})
		return err
	})
	return errors.Join(err, s.Close())
}

// writePlain is the least that could be done for durability: lengths, keys and values, compressed and synced.
func writePlain(dir string, w workload, size int) error {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer e.Close()
	files := make([]*os.File, len(w))
	for p := range files {
		if files[p], err = os.Create(filepath.Join(dir, fmt.Sprint(p))); err != nil {
			return err
		}
		defer files[p].Close()
	}
	var plain, packed []byte
	return w.batches(size, func(p int, records []record.Record) error {
		plain = plain[:0]
		for i := range records {
			r := &records[i]
			plain = append(binary.AppendUvarint(plain, uint64(len(r.Key))), r.Key...)
			plain = append(binary.AppendUvarint(plain, uint64(len(r.Value))), r.Value...)
		}
		packed = e.EncodeAll(plain, packed[:0])
		if _, err := files[p].Write(packed); err != nil {
			return err
		}
		return syscall.Fdatasync(int(files[p].Fd()))
	})
}
