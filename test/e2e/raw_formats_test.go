//go:build e2e

package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/test/servers"
)

// readRaw reads segments with fastavro and, where DuckDB knows the codec, with DuckDB, and computes the checksums of the header and
// of each block as docs/formats/raw.md says.
const readRaw = `
import json, sys, duckdb, fastavro
def plain(v):
    if isinstance(v, bytes): return v.hex()
    if isinstance(v, dict): return {k: plain(x) for k, x in v.items()}
    if isinstance(v, list): return [plain(x) for x in v]
    return v
table = []
for n in range(256):
    for _ in range(8): n = (n >> 1) ^ (0x82f63b78 if n & 1 else 0)
    table.append(n)
def crc32c(data):
    crc = 0xffffffff
    for b in data: crc = (crc >> 8) ^ table[(crc ^ b) & 255]
    return crc ^ 0xffffffff
def varint(n):
    n = n << 1
    out = 1
    while n > 127: n >>= 7; out += 1
    return out
db = duckdb.connect()
db.load_extension("avro")
out = []
for path in sys.argv[1:]:
    whole = open(path, "rb").read()
    with open(path, "rb") as f:
        reader = fastavro.block_reader(f)
        meta = dict(reader.metadata)
        blocks = []
        for block in reader:
            data = block.bytes_.getvalue()
            rows = list(block)
            sum = rows[-1]["mark"]["crc32c"]
            blocks.append({"rows": [plain(r) for r in rows], "good": crc32c(data[:-(varint(sum) + 1)]) == sum})
    seal = b"".join(k.encode() + b"\0" + meta[k].encode() + b"\0" for k in sorted(meta) if k != "twgd.crc32c") + whole[-16:]
    duck = None
    if meta["avro.codec"] != "zstandard":
        duck = db.execute("select count(*) filter (where kind = 'record'), sum(__kafka_offset) filter (where kind = 'record')::bigint, "
            "max(mark.next) from read_avro(?)", [path]).fetchone()
    out.append({"meta": meta, "sealed": "%08x" % crc32c(seal) == meta["twgd.crc32c"], "blocks": blocks, "duck": duck})
print(json.dumps(out))`

type rawFile struct {
	Meta   map[string]string
	Sealed bool
	Blocks []struct {
		Rows []map[string]any
		Good bool
	}
	Duck []int64 // records, the sum of their offsets, the last next
}

var rawPartition = record.Partition{Cluster: "c", Topic: "_orders", TopicID: [16]byte{0xab, 15: 1}, Number: 4, Generation: 2}

func rawRecords() []record.Record {
	return []record.Record{
		{Offset: 7, Timestamp: 1767225600000, LeaderEpoch: 3, ProducerID: 1 << 40, ProducerEpoch: 2, Transactional: true, Key: []byte("k"), Value: []byte("v"),
			Headers: []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "c", Value: []byte{}}, {Key: "\xff"}}},
		{Offset: 8, Timestamp: -1, TimestampType: record.TimestampNone, LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, Key: nil, Value: []byte{}},
		{Offset: 10, Timestamp: 1767225600000000, TimestampType: record.TimestampLogAppend, LeaderEpoch: 3, ProducerID: -1, ProducerEpoch: -1, Key: []byte{}, Value: nil},
		{Offset: 11, Timestamp: 0, ProducerID: -1, ProducerEpoch: -1, Value: make([]byte, 100_000)},
	}
}

// rawRow is what a record must look like to fastavro.
func rawRow(r *record.Record) map[string]any {
	bytes := func(b []byte) any {
		if b == nil {
			return nil
		}
		return hex.EncodeToString(b)
	}
	headers := []any{}
	for _, h := range r.Headers {
		if h.Key == "\xff" {
			headers = append(headers, map[string]any{"key": "\ufffd", "value": bytes(h.Value), "key_bytes": "ff"})
			continue
		}
		headers = append(headers, map[string]any{"key": h.Key, "value": bytes(h.Value), "key_bytes": nil})
	}
	row := map[string]any{"kind": "record", "__kafka_offset": float64(r.Offset), "__kafka_timestamp": float64(r.Timestamp), "__kafka_timestamp_type": float64(r.TimestampType),
		"__kafka_leader_epoch": float64(r.LeaderEpoch), "__kafka_producer_id": float64(r.ProducerID), "__kafka_producer_epoch": float64(r.ProducerEpoch),
		"__kafka_transactional": r.Transactional, "__kafka_headers": headers, "__kafka_key": bytes(r.Key), "__kafka_value": bytes(r.Value), "mark": nil}
	if r.TimestampType == record.TimestampNone {
		row["__kafka_timestamp"] = nil
	}
	return row
}

// writeRaw makes a chain of three commits, one of them a gap.
func writeRaw(t *testing.T, b store.Bucket, codec string) {
	t.Helper()
	at := time.UnixMilli(1767225600123)
	s, err := raw.Open(t.Context(), raw.Options{Bucket: b, Stream: "s", Codec: codec, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Begin(t.Context(), rawPartition, func(context.Context) (int64, error) { return 7, nil }); err != nil {
		t.Fatal(err)
	}
	for _, batch := range []*record.Batch{
		{First: 7, Next: 13, LeaderEpoch: 3, Records: rawRecords()},
		{First: 13, Next: 20, LeaderEpoch: -1, Gap: "retention"},
		{First: 20, Next: 21, LeaderEpoch: 4},
	} {
		if st, err := s.Append(t.Context(), rawPartition, []*record.Batch{batch.Weigh(nil)}); err != nil || !st.Ours {
			t.Fatal(st, err)
		}
	}
	if err := s.Verify(t.Context(), rawPartition, func(f raw.Finding) { t.Errorf("%+v", f) }); err != nil {
		t.Fatal(err)
	}
}

// checkRaw compares what the readers found, file by file or object by object, with what was written.
func checkRaw(t *testing.T, codec string, paths []string) {
	t.Helper()
	var files []rawFile
	if err := servers.PythonJSON(t.Context(), readRaw, nil, &files, paths...); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	var duck [3]int64
	for i, f := range files {
		for k, want := range map[string]string{"avro.codec": codec, "twgd.version": "1", "twgd.stream": "s", "twgd.cluster": "c", "twgd.topic": "_orders",
			"twgd.topic_id": hex.EncodeToString(rawPartition.TopicID[:]), "twgd.partition": "4", "twgd.generation": "2"} {
			if f.Meta[k] != want {
				t.Errorf("%s: %s is %q, want %q", paths[i], k, f.Meta[k], want)
			}
		}
		if base := filepath.Base(paths[i]); fmt.Sprintf("%020s.avro", f.Meta["twgd.first"]) != base || !f.Sealed {
			t.Errorf("%s begins at %q; its header's checksum is right: %v", base, f.Meta["twgd.first"], f.Sealed)
		}
		for n, b := range f.Blocks {
			if !b.Good {
				t.Errorf("%s: the checksum of block %d is not the one that the documentation says", paths[i], n)
			}
			got = append(got, b.Rows...)
		}
		if codec != "zstandard" {
			duck[0], duck[1], duck[2] = duck[0]+f.Duck[0], duck[1]+f.Duck[1], f.Duck[2]
		}
	}
	if want := [3]int64{4, 7 + 8 + 10 + 11, 21}; codec != "zstandard" && duck != want {
		t.Errorf("DuckDB says %v, want %v", duck, want)
	}
	records := rawRecords()
	var want []map[string]any
	for i := range records {
		want = append(want, rawRow(&records[i]))
	}
	want = append(want, mark("cursor", 7, 13, 3, nil), mark("gap", 13, 20, -1, "retention"), mark("cursor", 13, 20, -1, nil), mark("cursor", 20, 21, 4, nil))
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range want {
		if m, ok := got[i]["mark"].(map[string]any); ok {
			delete(m, "crc32c")
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("entry %d is\n%v, want\n%v", i, got[i], want[i])
		}
	}
}

// mark is a row of a cursor or gap, but for its checksum.
func mark(kind string, first, next, epoch int64, reason any) map[string]any {
	row := rawRow(&record.Record{Offset: first, TimestampType: record.TimestampNone, LeaderEpoch: int32(epoch), ProducerID: -1, ProducerEpoch: -1})
	row["kind"] = kind
	row["mark"] = map[string]any{"next": float64(next), "written": float64(1767225600123), "reason": reason}
	return row
}

func TestRawIsReadByOthers(t *testing.T) {
	for _, codec := range avrofile.Codecs {
		t.Run("files "+codec, func(t *testing.T) {
			dir := t.TempDir()
			b, err := store.Open(t.Context(), "file://"+dir, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			writeRaw(t, b, codec)
			paths, _ := filepath.Glob(filepath.Join(dir, "s", rawPartition.Path(), "*.avro"))
			if len(paths) != 1 {
				t.Fatal(paths)
			}
			checkRaw(t, codec, paths)
		})
	}
	s3, err := servers.S3(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s3.Close()
	for name, value := range s3.Env() {
		t.Setenv(name, value)
	}
	bucket, err := s3.NewBucket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, codec := range avrofile.Codecs {
		t.Run("objects "+codec, func(t *testing.T) {
			b, err := store.Open(t.Context(), s3.URL(bucket, codec), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			writeRaw(t, b, codec)
			checkRaw(t, codec, download(t, b, "s/"+rawPartition.Path()+"/"))
		})
	}
}

// download copies the segments of a chain into files.
func download(t *testing.T, b store.Bucket, dir string) (paths []string) {
	t.Helper()
	entries, err := b.List(t.Context(), dir, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	for _, e := range entries {
		if filepath.Ext(e.Key) != ".avro" {
			continue
		}
		body, err := b.Read(t.Context(), e.Key)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, filepath.Base(e.Key))
		if err := os.WriteFile(path, body, 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	if len(paths) != 3 {
		t.Fatal(paths)
	}
	return paths
}

// rawOnS3 are stores over one location of a real server, each with a proxy of its own in front.
func rawOnS3(t *testing.T, n int) (stores []*raw.Store, faults []*servers.S3Faults) {
	t.Helper()
	s3, err := servers.S3(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s3.Close() })
	for name, value := range s3.Env() {
		t.Setenv(name, value)
	}
	bucket, err := s3.NewBucket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		f, err := servers.NewS3Faults(s3)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		b, err := store.Open(t.Context(), f.URL(bucket, "raw"), store.Options{Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		s, err := raw.Open(t.Context(), raw.Options{Bucket: b, Stream: "s", Codec: "zstd"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores, faults = append(stores, s), append(faults, f)
	}
	return stores, faults
}

func oneBatch(first, next int64) *record.Batch {
	b := &record.Batch{Partition: rawPartition, First: first, Next: next, LeaderEpoch: 1}
	for o := first; o < next; o++ {
		b.Records = append(b.Records, record.Record{Offset: o, Value: fmt.Appendf(nil, "value %d", o)})
	}
	return b.Weigh(nil)
}

// readsBack checks that the chain holds each offset of [0, next) once.
func readsBack(t *testing.T, s *raw.Store, next int64) {
	t.Helper()
	at := int64(0)
	err := s.Read(t.Context(), rawPartition, checkpoint.Span{From: 0, To: 1 << 60}, func(b *record.Batch) error {
		for _, r := range b.Records {
			if r.Offset != at || string(r.Value) != fmt.Sprintf("value %d", at) {
				t.Errorf("%d %s stands where %d belongs", r.Offset, r.Value, at)
			}
			at++
		}
		return nil
	})
	if err != nil || at != next {
		t.Errorf("raw holds [0, %d), %v, want %d", at, err, next)
	}
	if err := s.Verify(t.Context(), rawPartition, func(f raw.Finding) { t.Errorf("%+v", f) }); err != nil {
		t.Error(err)
	}
}

func fromZero(context.Context) (int64, error) { return 0, nil }

func TestRawOnS3LosesNoCommitWithItsAnswer(t *testing.T) {
	stores, faults := rawOnS3(t, 1)
	s, f := stores[0], faults[0]
	if _, err := s.Begin(t.Context(), rawPartition, fromZero); err != nil {
		t.Fatal(err)
	}
	next := int64(0)
	put := func(what string, times int, do servers.S3Action) {
		t.Helper()
		f.Clear()
		f.Add(servers.S3Fault{S3Match: servers.S3Match{Op: "PutObject", Key: ".avro"}, Times: times, Do: do})
		end := next + 10 // a retry has more
		for tries := 0; next < end; tries++ {
			st, err := s.Append(t.Context(), rawPartition, []*record.Batch{oneBatch(next, end+int64(tries))})
			switch {
			case err == nil && !st.Ours:
				t.Fatalf("%s: we were told that another writes here: %+v", what, st)
			case err == nil:
				next = st.Next
			case tries == 10:
				t.Fatalf("%s: %v", what, err)
			}
		}
		if f.Left() == times { // a read-back may settle it before all are used up
			t.Errorf("%s: the fault did not happen", what)
		}
	}
	put("D08 503 five times", 5, servers.Unavailable())
	put("D10 the answer is lost", 1, servers.DropAnswer())
	put("D10 all answers are lost for a while", 4, servers.DropAnswer())
	put("D30 the answer comes too late", 2, servers.DelayAnswer(time.Minute))
	f.Clear()
	readsBack(t, s, next)
}

func TestRawOnS3HasOneWinnerAnOffset(t *testing.T) {
	stores, _ := rawOnS3(t, 4)
	const end = 400
	var ours [4]int64 // records that each was told to have stored
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			head, err := s.Begin(t.Context(), rawPartition, fromZero)
			for next := head.Next; err == nil && next < end; {
				st, aerr := s.Append(t.Context(), rawPartition, []*record.Batch{oneBatch(next, min(end, next+3+int64(i)))})
				if aerr == nil && st.Ours {
					ours[i] += st.Next - next
				}
				err, next = aerr, st.Next
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if sum := ours[0] + ours[1] + ours[2] + ours[3]; sum != end {
		t.Errorf("%v were told that %d of %d are theirs", ours, sum, end)
	}
	readsBack(t, stores[0], end)
}
