//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/pipeline/quarantine"
	"github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/test/servers"
)

// readAvro prints what three readers, which share no code with the project, find in a file: fastavro all of it, DuckDB the count
// and a sum; and whether the checksum in the header is that of the entries.
const readAvro = `
import json, sys, io, fastavro, duckdb
def plain(v):
    if isinstance(v, bytes): return {"bytes": v.hex()}
    if isinstance(v, dict): return {k: plain(x) for k, x in v.items()}
    if isinstance(v, list): return [plain(x) for x in v]
    return v if v is None or isinstance(v, (int, str, bool)) else str(v)
def crc32c(data):
    crc = 0xffffffff
    for b in data:
        crc ^= b
        for _ in range(8): crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return "%08x" % (crc ^ 0xffffffff)
with open(sys.argv[1], "rb") as f:
    r = fastavro.reader(f)
    meta = {k: v for k, v in r.metadata.items() if k.startswith("twgd.")}
    rows = [plain(row) for row in r]
with open(sys.argv[1], "rb") as f:
    blocks = fastavro.block_reader(f)
    entries = b"".join(b.bytes_.getvalue() for b in blocks)
db = duckdb.connect()
db.load_extension("avro")
count, total = db.execute(f"select count(*), sum({sys.argv[2]})::bigint from read_avro(?)", [sys.argv[1]]).fetchone()
print(json.dumps({"meta": meta, "rows": rows, "crc": crc32c(entries), "count": count, "total": total}))`

type avroFile struct {
	Meta         map[string]string
	Rows         []map[string]any
	CRC          string
	Count, Total int
}

var besidePartition = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{0xab, 15: 1}, Number: 4, Generation: 2}

// readBeside opens the only file below a directory with the foreign readers.
func readBeside(t *testing.T, dir, column string) (f avroFile) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.avro"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files in %s: %v, %v", dir, files, err)
	}
	if err := servers.PythonJSON(t.Context(), readAvro, nil, &f, files[0], column); err != nil {
		t.Fatal(err)
	}
	if f.Meta["twgd.crc32c"] != f.CRC || f.Meta["twgd.version"] != "1" {
		t.Errorf("the header says %v, the entries have %s", f.Meta, f.CRC)
	}
	return f
}

func openDir(t *testing.T) (store.Bucket, string) {
	t.Helper()
	dir := t.TempDir()
	b, err := store.Open(t.Context(), "file://"+dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, dir
}

func equal(t *testing.T, row map[string]any, want map[string]any) {
	t.Helper()
	for k, w := range want {
		if row[k] != w {
			t.Errorf("%s is %v, want %v", k, row[k], w)
		}
	}
}

func TestTrailIsReadByOthers(t *testing.T) {
	b, dir := openDir(t)
	w := trail.NewWriter(trail.Options{Bucket: b, Stream: "s", Node: "n", Instance: "i"})
	at := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	err := w.Append(t.Context(), []trail.Entry{
		{Partition: besidePartition, Span: checkpoint.Span{From: 7, To: 8}, Sink: "db", Reason: "sink", Detail: "22001 ü", ID: record.ID{1, 2, 15: 9}, At: at},
		{Partition: besidePartition, Span: checkpoint.Span{From: 10, To: 1 << 40}, Reason: "skip", At: at},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := readBeside(t, filepath.Join(dir, "s", "_trail", "n~i"), `"from"`)
	if len(f.Rows) != 2 || f.Count != 2 || f.Total != 17 || f.Meta["twgd.sequence"] != "0" {
		t.Fatalf("%+v", f)
	}
	equal(t, f.Rows[0], map[string]any{"cluster": "c", "topic": "orders", "topic_id": "ab000000000000000000000000000001", "partition": 4.0,
		"generation": 2.0, "from": 7.0, "to": 8.0, "sink": "db", "reason": "sink", "detail": "22001 ü",
		"record_id": "01020000-0000-0000-0000-000000000009", "at": "2026-01-02 03:04:05.600000+00:00"})
	equal(t, f.Rows[1], map[string]any{"to": float64(1 << 40), "sink": "", "detail": nil, "record_id": nil})
}

func TestQuarantineIsReadByOthers(t *testing.T) {
	b, dir := openDir(t)
	q := quarantine.New(quarantine.Options{Bucket: b, Stream: "s", Node: "n-1~i", Budget: 8 << 20})
	large := bytes.Repeat([]byte("x"), 100_000)
	var rejects []sinks.Reject
	for i := range int64(10) { // more than one block
		rejects = append(rejects, sinks.Reject{Partition: besidePartition, Offset: i, ID: record.ID{1, 2, 15: 9}, Reason: "oversize",
			Record: &record.Record{Offset: i, Key: []byte{}, Value: large, Timestamp: 1_700_000_000_000_000, LeaderEpoch: 3, ProducerID: -1, ProducerEpoch: -1}})
	}
	rejects[1].Detail = "22001 ü"
	rejects[1].Record = &record.Record{Offset: 1, Timestamp: -1, TimestampType: record.TimestampNone,
		Headers: []record.Header{{Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "\xff", Value: []byte("v")}}}
	q.Offer(rejects, "db")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := q.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	f := readBeside(t, filepath.Join(dir, "s", "db"), "__kafka_offset")
	if len(f.Rows) != 10 || f.Count != 10 || f.Total != 45 || f.Meta["twgd.count"] != "10" {
		t.Fatalf("%d rows, %d, %d, %v", len(f.Rows), f.Count, f.Total, f.Meta)
	}
	equal(t, f.Rows[0], map[string]any{"_twg_record_id": "01020000-0000-0000-0000-000000000009", "__kafka_topic": "orders", "__kafka_partition": 4.0,
		"__kafka_offset": 0.0, "__kafka_timestamp": 1.7e15, "__kafka_timestamp_type": 0.0, "__kafka_leader_epoch": 3.0, "__kafka_producer_id": -1.0,
		"__kafka_producer_epoch": -1.0, "reason": "oversize", "sink": "db", "detail": nil, "cluster": "c", "generation": 2.0,
		"topic_id": "ab000000000000000000000000000001", "key_size": 0.0, "value_size": 100_000.0, "headers_count": 0.0})
	if v := f.Rows[0]["__kafka_value"].(map[string]any)["bytes"].(string); len(v) != 2*64<<10 {
		t.Errorf("the preview has %d bytes", len(v)/2)
	}
	equal(t, f.Rows[0]["__kafka_key"].(map[string]any), map[string]any{"bytes": ""})
	equal(t, f.Rows[1], map[string]any{"__kafka_timestamp": nil, "__kafka_timestamp_type": -1.0, "__kafka_key": nil, "__kafka_value": nil,
		"detail": "22001 ü", "key_size": nil, "value_size": nil, "headers_count": 3.0})
	headers := f.Rows[1]["__kafka_headers"].([]any)
	equal(t, headers[0].(map[string]any), map[string]any{"key": "a", "value": nil, "key_bytes": nil})
	equal(t, headers[1].(map[string]any)["value"].(map[string]any), map[string]any{"bytes": ""})
	equal(t, headers[2].(map[string]any)["key_bytes"].(map[string]any), map[string]any{"bytes": "ff"})
}

// readNotes reads notes of duplicates with fastavro, and with DuckDB, and computes the checksums of the header and of each entry as
// docs/formats/duplicates.md says.
const readNotes = `
import json, sys, io, fastavro, duckdb
def crc32c(data):
    crc = 0xffffffff
    for b in data:
        crc ^= b
        for _ in range(8): crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
path = sys.argv[1]
with open(path, "rb") as f:
    blocks = fastavro.block_reader(f)
    meta, schema, out = dict(blocks.metadata), blocks.writer_schema, []
    for block in blocks:
        data, rows = block.bytes_.getvalue(), []
        at = io.BytesIO(data)
        for _ in range(block.num_records):
            begin = at.tell()
            row = fastavro.schemaless_reader(at, schema)
            size = io.BytesIO()
            fastavro.schemaless_writer(size, "long", row["crc32c"])
            good = crc32c(data[begin:at.tell() - len(size.getvalue())]) == row["crc32c"]
            rows.append({"from": row["from"], "to": row["to"], "total": row["total"], "good": good,
                "dropped": [{"offset": d["offset"], "record_id": d["record_id"].hex(), "stands": d["stands"].hex()} for d in row["dropped"]]})
        out.append(rows)
whole = open(path, "rb").read()
seal = b"".join(k.encode() + b"\0" + meta[k].encode() + b"\0" for k in sorted(meta) if k != "twgd.crc32c") + whole[-16:]
db = duckdb.connect()
db.load_extension("avro")
duck = db.execute('select count(*), max(total), sum(len(dropped))::bigint from read_avro(?)', [path]).fetchone()
print(json.dumps({"meta": {k: v for k, v in meta.items() if k.startswith("twgd.")}, "sealed": "%08x" % crc32c(seal) == meta["twgd.crc32c"], "blocks": out, "duck": duck}))`

type noteFile struct {
	Meta   map[string]string
	Sealed bool
	Blocks [][]struct {
		From, To, Total int64
		Good            bool
		Dropped         []struct {
			Offset   int64
			RecordID string `json:"record_id"`
			Stands   string
		}
	}
	Duck []int64 // batches, the last total, records dropped
}

func TestNotesOfDuplicatesAreReadByOthers(t *testing.T) {
	f := func(local bool, kind string, blocks int) {
		t.Helper()
		b, dir := openDir(t)
		w := duplicates.NewWriter(duplicates.Options{Bucket: b, Stream: "s", Node: "n", Instance: "i", Local: local})
		note := func(from, to int64, offsets ...int64) duplicates.Noted {
			n := duplicates.Noted{Partition: besidePartition, Span: checkpoint.Span{From: from, To: to}}
			for _, o := range offsets {
				n.Dropped = append(n.Dropped, duplicates.Dropped{Offset: o, ID: record.ID{1, 15: 0xfe}, Stands: [8]byte{7: 0xef}})
			}
			return n
		}
		if err := w.Append(t.Context(), []duplicates.Noted{note(100, 200, 100, 1<<7), note(200, 1<<40, 1<<40-1)}); err != nil {
			t.Fatal(err)
		}
		if local {
			if err := w.Append(t.Context(), []duplicates.Noted{note(1<<40, 1<<41, 1<<40)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var got noteFile
		path := filepath.Join(dir, "s", "_duplicates", filepath.FromSlash(besidePartition.Path()), record.OffsetName(100)+".avro")
		if err := servers.PythonJSON(t.Context(), readNotes, nil, &got, path); err != nil {
			t.Fatal(err)
		}
		if !got.Sealed || len(got.Blocks) != blocks || len(got.Blocks[0]) != 2 {
			t.Fatalf("%+v", got)
		}
		total := int64(2 + blocks)
		if got.Duck[0] != int64(1+blocks) || got.Duck[1] != total || got.Duck[2] != total {
			t.Errorf("DuckDB finds %v", got.Duck)
		}
		first, second := got.Blocks[0][0], got.Blocks[0][1]
		if first.From != 100 || first.To != 200 || first.Total != 2 || !first.Good || !second.Good || second.Total != 3 || len(first.Dropped) != 2 {
			t.Errorf("%+v", got.Blocks)
		}
		d := first.Dropped[1]
		if d.Offset != 128 || d.RecordID != "010000000000000000000000000000fe" || d.Stands != "00000000000000ef" || second.Dropped[0].Offset != 1<<40-1 {
			t.Errorf("%+v", got.Blocks)
		}
		for k, want := range map[string]string{"version": "1", "stream": "s", "topic": "orders", "topic_id": "ab000000000000000000000000000001",
			"partition": "4", "generation": "2", "first": "100", "writer": "n~i", "kind": kind} {
			if got.Meta["twgd."+k] != want {
				t.Errorf("twgd.%s is %q", k, got.Meta["twgd."+k])
			}
		}
	}
	f(false, "object", 1)
	f(true, "file", 2)
}
