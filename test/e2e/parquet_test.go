//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/parquet"
	"github.com/stream-arrow/twgd/sinks/sinktest"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/test/servers"
)

//go:embed parquet_read.py
var readParquet string

var parquetPartition = record.Partition{Cluster: "c1", Topic: "_orders", TopicID: [16]byte{0xab, 0xcd, 1, 2, 3}, Number: 7, Generation: 1}

// foreignRow is one row as both readers print it. Byte strings are hexadecimal, nulls are null.
type foreignRow struct {
	ID            string       `json:"id"`
	Topic         string       `json:"topic"`
	Partition     int32        `json:"partition"`
	Offset        int64        `json:"offset"`
	Timestamp     *int64       `json:"timestamp"`
	TimestampType int8         `json:"timestamp_type"`
	LeaderEpoch   int32        `json:"leader_epoch"`
	ProducerID    int64        `json:"producer_id"`
	ProducerEpoch int16        `json:"producer_epoch"`
	Headers       [][2]*string `json:"headers"`
	Key           *string      `json:"key"`
	Value         *string      `json:"value"`
}

// foreign is what parquet_read.py prints.
type foreign struct {
	Arrow, Duck []foreignRow
	ArrowTypes  map[string]string `json:"arrow_types"`
	DuckTypes   map[string]string `json:"duck_types"`
	NullValues  int64             `json:"null_values"` // by DuckDB's own query
	NullStats   int64             `json:"null_stats"`  // by the statistics in the footers
	RowGroups   int64             `json:"row_groups"`
}

// TestParquetByOtherReaders writes what stores like to lose (D18, D19, D20, D21) in every codec and several row groups, and reads
// it with pyarrow and DuckDB.
func TestParquetByOtherReaders(t *testing.T) {
	for _, codec := range []string{"zstd", "snappy", "none"} {
		t.Run(codec, func(t *testing.T) {
			dir := t.TempDir()
			records := writeParquet(t, dir, codec)
			var got foreign
			if err := servers.PythonJSON(t.Context(), readParquet, nil, &got, "read", dir); err != nil {
				t.Fatal(err)
			}
			compareForeign(t, "pyarrow", got.Arrow, records)
			compareForeign(t, "DuckDB", got.Duck, records)
			checkTypes(t, got)
			var nulls int64
			for _, r := range records {
				if r.Value == nil {
					nulls++
				}
			}
			if got.NullValues != nulls || got.NullStats != nulls || got.RowGroups < 3 {
				t.Errorf("DuckDB counts %d null values, the footers %d in %d row groups; want %d in several", got.NullValues, got.NullStats, got.RowGroups, nulls)
			}
		})
	}
}

// writeParquet writes three files: one of what is unusual, one of several row groups, one of nothing but nulls and noise.
func writeParquet(t *testing.T, dir, codec string) []record.Record {
	t.Helper()
	s := openParquet(t, dir, codec)
	unusual := sinktest.Unusual(0)
	n := int64(len(unusual))
	commitParquet(t, s, 0, n, unusual...)
	var many []record.Record
	for o := n; o < n+2000; o++ {
		r := record.Record{Offset: o, Timestamp: 1_700_000_000_000 + o, Key: fmt.Appendf(nil, "%d", o%7), ProducerID: o, LeaderEpoch: int32(o % 3)}
		if o%11 != 0 && o%64 > 20 {
			r.Value = fmt.Appendf(nil, "value of %d", o)
		}
		for h := range o % 4 {
			r.Headers = append(r.Headers, record.Header{Key: fmt.Sprintf("h%d", h), Value: []byte{byte(o)}})
		}
		many = append(many, r)
	}
	commitParquet(t, s, n, n+2000, many...)
	var bare []record.Record
	for o := n + 2000; o < n+2600; o++ {
		bare = append(bare, record.Record{Offset: o, Timestamp: -1, TimestampType: record.TimestampNone, ProducerID: o * 0x9e3779b97f4a7c1, LeaderEpoch: -1, ProducerEpoch: -1})
	}
	commitParquet(t, s, n+2000, n+2600, bare...)
	return append(append(unusual, many...), bare...)
}

func openParquet(t *testing.T, dir, codec string) *parquet.Sink {
	t.Helper()
	b, err := store.Open(t.Context(), "file://"+dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := parquet.New(parquet.Options{Bucket: b, Stream: "orders", Compression: codec, RowGroup: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func commitParquet(t *testing.T, s *parquet.Sink, from, to int64, records ...record.Record) {
	t.Helper()
	l, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Discard()
	b := &row.Batch{Partition: parquetPartition, Span: checkpoint.Span{From: from, To: to}, Records: records}
	b.IDs = record.NewHasher(parquetPartition).IDs(nil, records)
	if err := l.Add(b); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Commit(t.Context(), func(context.Context, []sinks.Reject) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func compareForeign(t *testing.T, reader string, got []foreignRow, records []record.Record) {
	t.Helper()
	if len(got) != len(records) {
		t.Fatalf("%s reads %d rows, want %d", reader, len(got), len(records))
	}
	h := record.NewHasher(parquetPartition)
	for i := range records {
		if want := asForeign(h, &records[i]); !reflect.DeepEqual(got[i], want) {
			t.Fatalf("%s reads row %d as\n%s, want\n%s", reader, i, show(got[i]), show(want))
		}
	}
}

func asForeign(h *record.Hasher, r *record.Record) foreignRow {
	f := foreignRow{ID: h.ID(r).String(), Topic: parquetPartition.Topic, Partition: parquetPartition.Number, Offset: r.Offset,
		TimestampType: r.TimestampType, LeaderEpoch: r.LeaderEpoch, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch,
		Headers: [][2]*string{}, Key: hexOf(r.Key), Value: hexOf(r.Value)}
	if r.TimestampType != record.TimestampNone {
		f.Timestamp = &r.Timestamp
	}
	for _, header := range r.Headers {
		f.Headers = append(f.Headers, [2]*string{hexOf([]byte(header.Key)), hexOf(header.Value)})
	}
	return f
}

func hexOf(b []byte) *string {
	if b == nil {
		return nil
	}
	s := hex.EncodeToString(b)
	return &s
}

func show(f foreignRow) string {
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return (*s)[:min(len(*s), 60)]
	}
	out := fmt.Sprintf("%+v key %s value %s headers", f, text(f.Key), text(f.Value))
	for _, h := range f.Headers {
		out += " " + text(h[0]) + "=" + text(h[1])
	}
	return out
}

func checkTypes(t *testing.T, got foreign) {
	t.Helper()
	for column, want := range map[string][2]string{
		"_twg_record_id":         {"extension<arrow.uuid>", "UUID"},
		"__kafka_topic":          {"string", "VARCHAR"},
		"__kafka_partition":      {"int32", "INTEGER"},
		"__kafka_offset":         {"int64", "BIGINT"},
		"__kafka_timestamp":      {"timestamp[ms, tz=UTC]", "TIMESTAMP WITH TIME ZONE"},
		"__kafka_timestamp_type": {"int32", "INTEGER"},
		"__kafka_leader_epoch":   {"int32", "INTEGER"},
		"__kafka_producer_id":    {"int64", "BIGINT"},
		"__kafka_producer_epoch": {"int32", "INTEGER"},
		"__kafka_headers":        {"list<element: struct<key: string not null, value: binary> not null>", `STRUCT("key" VARCHAR, "value" BLOB)[]`},
		"__kafka_key":            {"binary", "BLOB"},
		"__kafka_value":          {"binary", "BLOB"},
	} {
		if got.ArrowTypes[column] != want[0] || got.DuckTypes[column] != want[1] {
			t.Errorf("%s is %q to pyarrow and %q to DuckDB, want %q and %q", column, got.ArrowTypes[column], got.DuckTypes[column], want[0], want[1])
		}
	}
	if len(got.ArrowTypes) != 12 || len(got.DuckTypes) != 12 {
		t.Errorf("pyarrow sees %d columns and DuckDB %d, want 12", len(got.ArrowTypes), len(got.DuckTypes))
	}
}

// TestParquetFlippedByte: the checksum of a page's zstd frame makes other readers notice a byte that changed on the disk.
func TestParquetFlippedByte(t *testing.T) {
	dir := t.TempDir()
	s := openParquet(t, dir, "zstd")
	var records []record.Record
	for o := range int64(500) {
		records = append(records, record.Record{Offset: o, Value: fmt.Appendf(nil, "%x", record.NewHasher(parquetPartition).ID(&record.Record{Offset: o}))})
	}
	commitParquet(t, s, 0, 500, records...)
	files, err := filepath.Glob(filepath.Join(dir, "orders", "*", "*", "*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	var flips struct{ Tried, Arrow, Duck int }
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := servers.PythonJSON(t.Context(), readParquet, nil, &flips, "flip", files[0], filepath.Join(t.TempDir(), "torn.parquet")); err != nil {
		t.Fatal(err)
	}
	if flips.Tried < 20 || flips.Arrow != flips.Tried || flips.Duck != flips.Tried {
		t.Errorf("of %d flipped bytes in the value column of a file of %d bytes pyarrow noticed %d and DuckDB %d", flips.Tried, len(whole), flips.Arrow, flips.Duck)
	}
}
