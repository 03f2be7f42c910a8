package parquet

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/sinktest"
)

func expectRows(t *testing.T, s *Sink, p record.Partition, want []record.Record) {
	t.Helper()
	got := readAll(t, s, p)
	if len(got) != len(want) {
		t.Fatalf("%d rows are read back, want %d", len(got), len(want))
	}
	h := record.NewHasher(p)
	for i := range want {
		if d := sinktest.Difference(&got[i].Record, &want[i]); d != "" || got[i].ID != h.ID(&want[i]) {
			t.Fatalf("row %d of offset %d: %s; id %v", i, want[i].Offset, d, got[i].ID)
		}
	}
}

// TestCaseD21AbsurdTimestamps: all 64 bits are kept; only type none makes a null.
func TestCaseD21AbsurdTimestamps(t *testing.T) {
	var records []record.Record
	for i, ts := range []int64{math.MinInt64, -1, 0, 1, 1.7e15, math.MaxInt64, -62135596800001} {
		records = append(records, record.Record{Offset: int64(i), Timestamp: ts, ProducerID: math.MinInt64})
	}
	records = append(records, record.Record{Offset: 100, Timestamp: -1, TimestampType: record.TimestampNone})
	s := newSink(t, openFaulty(t, memURL(t)), Options{})
	l := loadOf(t, s, rowsOf(partition, 0, 101, records...))
	if _, err := l.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	expectRows(t, s, partition, records)
}

// TestRandomRecords drives pages, row groups and runs of nulls of all lengths through small row groups.
func TestRandomRecords(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		records := randomRecords(rng, 3000)
		codec := []string{"zstd", "snappy", "none"}[seed%3]
		s := newSink(t, openFaulty(t, memURL(t)+"/"+codec), Options{Compression: codec, RowGroup: []int64{1, 200 << 10, 1 << 20, 1 << 40}[seed%4]})
		p := partition
		p.Number = int32(seed)
		l := loadOf(t, s)
		for from := 0; from < len(records); {
			to := min(len(records), from+1+rng.IntN(700))
			if err := l.Add(rowsOf(p, records[from].Offset, records[to-1].Offset+1, records[from:to]...)); err != nil {
				t.Fatal(err)
			}
			from = to
		}
		if _, err := l.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		expectRows(t, s, p, records)
	}
}

func randomRecords(rng *rand.Rand, n int) (out []record.Record) {
	nulls := 0.5
	for i := range n {
		if rng.IntN(50) == 0 {
			nulls = rng.Float64()
		}
		r := record.Record{Offset: int64(i), Timestamp: rng.Int64(), LeaderEpoch: rng.Int32(), ProducerID: rng.Int64(), ProducerEpoch: int16(rng.Int32()),
			TimestampType: int8(rng.IntN(2)), Key: randomBytes(rng, nulls, 20), Value: randomBytes(rng, 1-nulls, 300)}
		if rng.Float64() < nulls {
			r.Timestamp, r.TimestampType = -1, record.TimestampNone
		}
		if rng.IntN(400) == 0 {
			r.Value = bytes.Repeat([]byte{byte(i)}, rng.IntN(2<<20))
		}
		for range rng.IntN(5) * rng.IntN(2) {
			r.Headers = append(r.Headers, record.Header{Key: string(bytes.Repeat([]byte("h"), rng.IntN(3))), Value: randomBytes(rng, nulls, 9000)})
		}
		out = append(out, r)
	}
	return out
}

func randomBytes(rng *rand.Rand, null float64, size int) []byte {
	if rng.Float64() < null {
		return nil
	}
	b := make([]byte, rng.IntN(size))
	for i := range b {
		b[i] = byte(rng.IntN(5))
	}
	return b
}

// TestColumnsAsDesigned looks into the metadata: which encodings, which statistics, which codec.
func TestColumnsAsDesigned(t *testing.T) {
	b := openFaulty(t, memURL(t))
	s := newSink(t, b, Options{})
	records := sinktest.Unusual(0)
	l := loadOf(t, s, rowsOf(partition, 0, 100, records...))
	if _, err := l.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	files, err := s.Files(t.Context(), partition)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if want := "orders/orders~01020304/7/00000000000000000000-00000000000000000100.parquet"; files[0].Key != want {
		t.Errorf("the file is %s, want %s", files[0].Key, want)
	}
	r, err := openFile(t.Context(), b, files[0])
	if err != nil {
		t.Fatal(err)
	}
	f := func(column int, codec compress.Compression, minMax bool, nulls int64) {
		t.Helper()
		chunk, err := r.file.MetaData().RowGroup(0).ColumnChunk(column)
		if err != nil {
			t.Fatal(err)
		}
		stats, err := chunk.Statistics()
		if err != nil || stats == nil {
			t.Fatalf("column %d has no statistics: %v", column, err)
		}
		if chunk.Compression() != codec || stats.HasMinMax() != minMax || !stats.HasNullCount() || stats.NullCount() != nulls {
			t.Errorf("column %d has codec %v, min and max: %v, %d nulls; want %v, %v, %d", column, chunk.Compression(), stats.HasMinMax(), stats.NullCount(), codec, minMax, nulls)
		}
	}
	f(colID, compress.Codecs.Uncompressed, false, 0)
	f(colOffset, compress.Codecs.Zstd, true, 0)
	f(colTopic, compress.Codecs.Zstd, true, 0)
	f(colTimestamp, compress.Codecs.Zstd, true, 1)
	f(colKey, compress.Codecs.Zstd, false, count(records, func(r record.Record) bool { return r.Key == nil }))
	f(colValue, compress.Codecs.Zstd, false, count(records, func(r record.Record) bool { return r.Value == nil }))
}

// TestManyProducers: a dictionary that grows too large is given up in the middle of a row group, and nothing is lost.
func TestManyProducers(t *testing.T) {
	for _, codec := range []string{"zstd", "none"} {
		s := newSink(t, openFaulty(t, memURL(t)+codec), Options{Compression: codec, RowGroup: 1 << 40})
		records := make([]record.Record, 200_000)
		for i := range records {
			records[i] = record.Record{Offset: int64(i), Timestamp: -1, TimestampType: record.TimestampNone, ProducerID: int64(i) * 0x9e3779b97f4a7c1}
		}
		l := loadOf(t, s, rowsOf(partition, 0, int64(len(records)), records...))
		if _, err := l.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		expectRows(t, s, partition, records)
	}
}

func count(records []record.Record, f func(record.Record) bool) (n int64) {
	for _, r := range records {
		if f(r) {
			n++
		}
	}
	return n
}

// TestCaseD27OneFile: ten thousand records that alternate between two sets of headers make one file.
func TestCaseD27OneFile(t *testing.T) {
	s := newSink(t, openFaulty(t, memURL(t)), Options{})
	l := loadOf(t, s)
	for i := range int64(10_000) {
		r := record.Record{Offset: i, Headers: []record.Header{{Key: "v1"}}}
		if i%2 == 1 {
			r.Headers = []record.Header{{Key: "v2", Value: []byte("x")}, {Key: "more"}}
		}
		if err := l.Add(rowsOf(partition, i, i+1, r)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if files, err := s.Files(t.Context(), partition); err != nil || len(files) != 1 {
		t.Errorf("%d files, %v; want 1", len(files), err)
	}
}

// TestMemoryIsBounded: a load holds about a row group, however long it is, and says so.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 4 << 20
	s := newSink(t, openFaulty(t, "file://"+t.TempDir()), Options{RowGroup: limit})
	l := loadOf(t, s)
	value := bytes.Repeat([]byte("0123456789"), 30)
	var most int64
	for i := range int64(200_000) {
		if err := l.Add(rowsOf(partition, i, i+1, record.Record{Offset: i, Value: value})); err != nil {
			t.Fatal(err)
		}
		most = max(most, l.Size().Held)
	}
	if bound := int64(limit * 3 / 2); most > bound || most < limit/2 {
		t.Errorf("the load held up to %d bytes, want about %d", most, limit)
	}
	if out := l.Size().Out; out < 10_000 || out > 200_000*320 {
		t.Errorf("200,000 rows are said to give %d bytes", out)
	}
	r, err := l.Commit(t.Context(), nil)
	if err != nil || r.Bytes < 10_000 {
		t.Errorf("receipt %+v, %v", r, err)
	}
}

// TestAddAllocatesNothingPerRow counts allocations once the pools are warm.
func TestAddAllocatesNothingPerRow(t *testing.T) {
	s := newSink(t, openFaulty(t, memURL(t)), Options{})
	var records []record.Record
	for i := range int64(2000) {
		records = append(records, record.Record{Offset: i, Key: []byte("key"), Value: []byte("a value of some length"), Headers: []record.Header{{Key: "h", Value: []byte("v")}}})
	}
	b := rowsOf(partition, 0, 2000, records...)
	allocs := testing.AllocsPerRun(20, func() {
		l, err := s.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Add(b); err != nil {
			t.Fatal(err)
		}
		l.Discard()
	})
	if allocs > 400 { // slices that grow by doubling, and what a garbage collection took from the pools
		t.Errorf("a load of 2,000 rows allocates %.0f times", allocs)
	}
}
