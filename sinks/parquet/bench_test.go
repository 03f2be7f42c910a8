package parquet

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
)

// benchRows are a million rows of values of 200 bytes that compress to about half, keys of 8 bytes and no headers, in batches of
// a thousand.
const (
	benchRows  = 1_000_000
	benchBatch = 1000
)

func benchBatches() []*row.Batch {
	rng := rand.New(rand.NewPCG(1, 2))
	h := record.NewHasher(partition)
	batches := make([]*row.Batch, 0, benchRows/benchBatch)
	for from := int64(0); from < benchRows; from += benchBatch {
		b := &row.Batch{Partition: partition, Span: checkpoint.Span{From: from, To: from + benchBatch}}
		for o := from; o < from+benchBatch; o++ {
			b.Records = append(b.Records, record.Record{Offset: o, Timestamp: 1_700_000_000_000 + o/7, Key: fmt.Appendf(nil, "%08x", rng.Uint32()),
				Value: benchValue(rng, o), ProducerID: -1, ProducerEpoch: -1, LeaderEpoch: 3})
		}
		b.IDs = h.IDs(nil, b.Records)
		batches = append(batches, b)
	}
	return batches
}

func benchValue(rng *rand.Rand, o int64) []byte {
	v := fmt.Appendf(nil, `{"id":%d,"customer":"c-%06d","status":"%s","amount":%d.%02d,"currency":"EUR","note":"`, o, rng.IntN(1e6),
		[]string{"created", "paid", "shipped", "returned"}[rng.IntN(4)], rng.IntN(1e4), rng.IntN(100))
	for len(v) < 198 {
		v = append(v, "0123456789abcdefghijklmnopqrstuv"[rng.IntN(32)])
	}
	return append(v, '"', '}')
}

// cpu is the processor time of the process, all threads together.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLoad measures rows a CPU-second of a load with its commit to a file, and its ratio to the floor: zstd of the values
// and SHA-256 ids. The load is given its ids, so the floor's ids are added to both.
func BenchmarkLoad(b *testing.B) {
	batches := benchBatches()
	s := newSink(b, openFaulty(b, "file://"+b.TempDir()), Options{})
	b.ResetTimer()
	var ids, load, floor time.Duration
	var size int64
	for i := range b.N {
		p := partition
		p.Generation = int32(i) // another file
		ids += timed(b, func() { benchIDs(batches) })
		load += timed(b, func() { size = benchLoad(b, s, p, batches) })
		floor += timed(b, func() { benchFloor(b, batches) })
	}
	perSecond := func(d time.Duration) float64 { return float64(b.N) * benchRows / d.Seconds() }
	b.ReportMetric(perSecond(load+ids), "rows/cpu-s")
	b.ReportMetric(perSecond(load), "rows-without-ids/cpu-s")
	b.ReportMetric(perSecond(floor+ids), "floor-rows/cpu-s")
	b.ReportMetric((load+ids).Seconds()/(floor+ids).Seconds(), "times-the-floor")
	b.ReportMetric(float64(size)/benchRows, "file-bytes/row")
}

// timed is the processor time that f takes.
func timed(b *testing.B, f func()) time.Duration {
	start := cpu(b)
	f()
	return cpu(b) - start
}

func benchIDs(batches []*row.Batch) {
	h := record.NewHasher(partition)
	var ids []record.ID
	for _, batch := range batches {
		ids = h.IDs(ids[:0], batch.Records)
	}
}

func benchLoad(b *testing.B, s *Sink, p record.Partition, batches []*row.Batch) int64 {
	l, err := s.Begin()
	if err != nil {
		b.Fatal(err)
	}
	defer l.Discard()
	for _, batch := range batches {
		own := *batch
		own.Partition = p
		if err := l.Add(&own); err != nil {
			b.Fatal(err)
		}
	}
	r, err := l.Commit(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return r.Bytes
}

func benchFloor(b *testing.B, batches []*row.Batch) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	var page, out []byte
	for _, batch := range batches {
		for i := range batch.Records {
			page = append(page, batch.Records[i].Value...)
		}
		if len(page) >= pageSize {
			out, page = e.EncodeAll(page, out[:0]), page[:0]
		}
	}
}

// BenchmarkAdd shows what a row allocates: nothing, once the pools are warm.
func BenchmarkAdd(b *testing.B) {
	batches := benchBatches()[:50]
	s := newSink(b, openFaulty(b, "mem://"+b.Name()), Options{RowGroup: 1 << 40})
	b.ReportAllocs()
	for b.Loop() {
		l, err := s.Begin()
		if err != nil {
			b.Fatal(err)
		}
		for _, batch := range batches {
			if err := l.Add(batch); err != nil {
				b.Fatal(err)
			}
		}
		l.Discard()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(50*benchBatch), "ns/row")
}
