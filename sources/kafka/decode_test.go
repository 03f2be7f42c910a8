package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/record"
)

// shape is a batch to encode, with what matters to a test.
type shape struct {
	first, base, max int64
	attributes       int16
	last             int32 // last offset delta; 0 is that of the records
	producer         int64
	records          []kmsg.Record
	compress         func([]byte) []byte
}

// encode writes the batch by the client library's own encoder of records, with a header of ours.
func (s shape) encode() []byte {
	var body []byte
	for _, r := range s.records {
		body = append(body, appendRecord(nil, r)...)
	}
	if s.last == 0 && len(s.records) > 0 {
		s.last = s.records[len(s.records)-1].OffsetDelta
	}
	if s.compress != nil {
		body = s.compress(body)
	}
	b := kmsg.RecordBatch{FirstOffset: s.first, PartitionLeaderEpoch: 5, Magic: 2, Attributes: s.attributes, LastOffsetDelta: s.last,
		FirstTimestamp: s.base, MaxTimestamp: s.max, ProducerID: s.producer, ProducerEpoch: 1, FirstSequence: 0, NumRecords: int32(len(s.records)), Records: body}
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-batchPrefix))
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[checkedFrom:], castagnoli))
	return out
}

func appendRecord(dst []byte, r kmsg.Record) []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, r.TimestampDelta64)
	body = binary.AppendVarint(body, int64(r.OffsetDelta))
	nullable := func(v []byte) {
		if v == nil {
			body = binary.AppendVarint(body, -1)
			return
		}
		body = append(binary.AppendVarint(body, int64(len(v))), v...)
	}
	nullable(r.Key)
	nullable(r.Value)
	body = binary.AppendVarint(body, int64(len(r.Headers)))
	for _, h := range r.Headers {
		nullable([]byte(h.Key))
		nullable(h.Value)
	}
	return append(binary.AppendVarint(dst, int64(len(body))), body...)
}

func chunkOf(at int64, batches ...shape) *chunk {
	c := &chunk{part: &part{id: record.Partition{Topic: "t"}, epoch: 1}, at: at}
	for _, b := range batches {
		c.raw = append(c.raw, b.encode()...)
	}
	return c
}

func one(delta int32, value string) kmsg.Record {
	return kmsg.Record{OffsetDelta: delta, Value: []byte(value)}
}

func TestDecode(t *testing.T) {
	f := func(name string, c *chunk, next int64, want ...int64) {
		t.Run(name, func(t *testing.T) {
			d, first := &decoder{}, c.at
			b, err := d.next(c)
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for _, r := range b.Records {
				got = append(got, r.Offset)
			}
			if !slices.Equal(got, want) || b.First != first || b.Next != next || b.LeaderEpoch != 5 || !c.done() {
				t.Fatalf("[%d, %d) %v, want [%d, %d) %v", b.First, b.Next, got, first, next, want)
			}
			b.Release()
		})
	}
	plain := shape{first: 10, records: []kmsg.Record{one(0, "a"), one(1, "b"), one(4, "c")}}
	f("one", chunkOf(10, plain), 15, 10, 11, 14)
	f("an offset inside", chunkOf(11, plain), 15, 11, 14)
	f("a hole in front", chunkOf(3, plain), 15, 10, 11, 14)
	f("a compacted tail", chunkOf(10, shape{first: 10, last: 9, records: []kmsg.Record{one(0, "a")}}), 20, 10)
	f("nothing left of it", chunkOf(10, shape{first: 10, last: 9}), 20)
	f("one below", chunkOf(20, plain, shape{first: 20, records: []kmsg.Record{one(0, "d")}}), 21, 20)

	aborted := func(c *chunk) *chunk {
		c.hide = true
		c.aborts = newAborter([]kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 7, FirstOffset: 10}})
		return c
	}
	data := shape{first: 10, attributes: attrTransactional, producer: 7, records: []kmsg.Record{one(0, "a"), one(1, "b")}}
	marker := func(first int64, kind byte) shape {
		return shape{first: first, attributes: attrTransactional | attrControl, producer: 7, records: []kmsg.Record{{Key: []byte{0, 0, 0, kind}}}}
	}
	again := shape{first: 13, attributes: attrTransactional, producer: 7, records: []kmsg.Record{one(0, "c")}}
	f("aborted", aborted(chunkOf(10, data, marker(12, 0), again, marker(14, 1))), 15, 13)
	f("not hidden", chunkOf(10, data, marker(12, 0), again, marker(14, 1)), 15, 10, 11, 13)
	other := data
	other.producer = 8
	f("another's", aborted(chunkOf(10, other)), 12, 10, 11)
}

// Whatever a producer or a broker can put into a record comes out as it is.
func TestCaseD21Fidelity(t *testing.T) {
	first := func(s shape) record.Record {
		b, err := (&decoder{}).next(chunkOf(0, s))
		if err != nil {
			t.Fatal(err)
		}
		return b.Records[0]
	}
	f := func(base, max int64, attributes int16, want int64, wantType int8) {
		t.Helper()
		r := first(shape{base: base, max: max, attributes: attributes, records: []kmsg.Record{one(0, "v")}})
		if r.Timestamp != want || r.TimestampType != wantType {
			t.Errorf("%d type %d, want %d type %d", r.Timestamp, r.TimestampType, want, wantType)
		}
	}
	f(1700000000000, 0, 0, 1700000000000, record.TimestampCreate)
	f(-1, -1, 0, -1, record.TimestampNone)
	f(1.7e15, 1.7e15, 0, 1.7e15, record.TimestampCreate) // microseconds
	f(1.7e18, 1.7e18, 0, 1.7e18, record.TimestampCreate) // nanoseconds
	f(math.MaxInt64, 0, 0, math.MaxInt64, record.TimestampCreate)
	f(1, 99, attrLogAppend, 99, record.TimestampLogAppend)
	r := first(shape{attributes: attrTransactional, producer: 9, records: []kmsg.Record{one(0, "v")}})
	if !r.Transactional || r.ProducerID != 9 || r.ProducerEpoch != 1 || r.LeaderEpoch != 5 {
		t.Errorf("%+v", r)
	}
	headers := []kmsg.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "c", Value: []byte{}}, {Key: ""}}
	for _, kv := range [][2][]byte{{[]byte("k"), nil}, {[]byte("k"), {}}, {nil, []byte("v")}, {{}, []byte("v")}, {nil, nil}} {
		r := first(shape{records: []kmsg.Record{{Key: kv[0], Value: kv[1], Headers: headers}}})
		if !same(r.Key, kv[0]) || !same(r.Value, kv[1]) || len(r.Headers) != len(headers) {
			t.Fatalf("%v became %+v", kv, r)
		}
		for i, h := range headers {
			if r.Headers[i].Key != h.Key || !same(r.Headers[i].Value, h.Value) {
				t.Fatalf("header %d is %+v", i, r.Headers[i])
			}
		}
	}
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) }

// Each codec, as the client library writes it.
func TestCodecs(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				cl := w.client(kgo.ProducerBatchCompression(codec))
				var batch []*kgo.Record
				for i := range 3000 {
					batch = append(batch, &kgo.Record{Topic: "orders", Value: []byte(strings.Repeat("x", 100) + numbers(i, i+1)[0])})
				}
				w.check(cl.ProduceSync(w.ctx, batch...).FirstErr())
				r := w.open()
				p := r.Only()
				r.Until("all", func() bool { return r.Total() == 3000 })
				for i, v := range r.Values[p] {
					if v != strings.Repeat("x", 100)+numbers(i, i+1)[0] {
						t.Fatalf("record %d is %q", i, v)
					}
				}
			}, kfake.SeedTopics(1, "orders"))
		})
	}
}

func TestXerial(t *testing.T) {
	stream := append(slices.Clone(xerial), 0, 0, 0, 1, 0, 0, 0, 1)
	for _, literal := range []string{"abc", "defg"} { // a snappy block: its length, a tag, the literal
		b := append([]byte{byte(len(literal)), byte(len(literal)-1) << 2}, literal...)
		stream = append(binary.BigEndian.AppendUint32(stream, uint32(len(b))), b...)
	}
	got, err := inflateSnappy(nil, stream)
	if err != nil || string(got) != "abcdefg" {
		t.Fatalf("%q %v", got, err)
	}
	for cut := range len(stream) - 1 {
		if got, err := inflateSnappy(nil, stream[:cut+1]); err == nil && string(got) != "abc" && string(got) != "" {
			t.Fatalf("cut at %d: %q", cut+1, got)
		}
	}
}

// A broken batch is found, named by its offset, and what is whole in front of it is delivered.
func TestBrokenBatch(t *testing.T) {
	good := shape{first: 0, records: []kmsg.Record{one(0, "a")}}
	bad := shape{first: 1, records: []kmsg.Record{one(0, "b")}}
	c := chunkOf(0, good, bad)
	c.raw[len(c.raw)-1] ^= 1
	d := &decoder{}
	b, err := d.next(c)
	if err != nil || b.Next != 1 || len(b.Records) != 1 {
		t.Fatalf("%+v %v", b, err)
	}
	if _, err = d.next(c); err == nil || !strings.Contains(err.Error(), "offset 1 ") || !strings.Contains(err.Error(), "checksum") {
		t.Fatalf("%v", err)
	}
}

// A megabyte of zeros that would become gigabytes is refused before it does.
func TestBomb(t *testing.T) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}
	bomb := w.EncodeAll(make([]byte, maxBatchBytes+1), nil)
	if _, err := (&inflater{}).inflate(nil, bomb, codecZstd); err == nil || !strings.Contains(err.Error(), "more than 512 MiB") {
		t.Fatalf("%d bytes: %v", len(bomb), err)
	}
}

func TestOldFormats(t *testing.T) {
	m := kmsg.MessageV1{Offset: 3, Magic: 1, Timestamp: 1234, Value: []byte("old")}
	raw := m.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-batchPrefix))
	binary.BigEndian.PutUint32(raw[12:], crc32.ChecksumIEEE(raw[16:]))
	c := chunkOf(4, shape{first: 4, records: []kmsg.Record{one(0, "new")}})
	c.at, c.raw = 1, append(raw, c.raw...)
	if size, next, epoch := scan(c.raw, 1); size != len(c.raw) || next != 5 || epoch != 5 {
		t.Fatalf("scan: %d %d %d", size, next, epoch)
	}
	d := &decoder{}
	b, err := d.next(c)
	if err != nil || b.First != 1 || b.Next != 4 || len(b.Records) != 1 || b.Records[0].Timestamp != 1234 || b.Records[0].ProducerID != -1 {
		t.Fatalf("%+v %v", b, err)
	}
	if b, err = d.next(c); err != nil || b.Next != 5 {
		t.Fatalf("%+v %v", b, err)
	}
}

// Whatever bytes come, decoding ends, panics never, and moves only forward.
func FuzzDecode(f *testing.F) {
	f.Add(chunkOf(10, shape{first: 10, records: []kmsg.Record{one(0, "a"), {OffsetDelta: 1, Key: []byte("k"), Headers: []kmsg.Header{{Key: "h"}}}}}).raw, int64(10))
	f.Add(chunkOf(0, shape{attributes: attrTransactional | attrControl, records: []kmsg.Record{{Key: []byte{0, 0, 0, 0}}}}).raw, int64(0))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, raw []byte, at int64) {
		if at = max(at, 0); len(raw) > batchHeader && raw[magicAt] == 2 { // so that the fuzzer gets behind the checksum
			binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[checkedFrom:], castagnoli))
		}
		size, next, _ := scan(raw, at)
		if size > len(raw) || next < at {
			t.Fatalf("scan of %d bytes from %d: %d, %d", len(raw), at, size, next)
		}
		c := chunkOf(at)
		c.raw, c.hide = raw[:size], true
		d := &decoder{}
		for !c.done() {
			before := len(c.raw)
			b, err := d.next(c)
			if err != nil {
				break
			}
			if len(c.raw) >= before {
				t.Fatal("no progress")
			}
			if b != nil {
				if b.First != at || b.Next <= at {
					t.Fatalf("[%d, %d) after %d", b.First, b.Next, at)
				}
				at = b.Next
				b.Release()
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	enc, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	value := make([]byte, 200)
	for i := range value {
		value[i] = byte(i * 7)
	}
	s := shape{first: 0}
	for i := range 5000 {
		s.records = append(s.records, kmsg.Record{OffsetDelta: int32(i), Key: []byte("some-key"), Value: value})
	}
	f := func(name string, s shape) {
		raw := s.encode()
		b.Run(name, func(b *testing.B) {
			d := &decoder{}
			b.ReportAllocs()
			for b.Loop() {
				c := &chunk{part: &part{}, raw: raw}
				batch, err := d.next(c)
				if err != nil {
					b.Fatal(err)
				}
				batch.Release()
			}
			b.ReportMetric(float64(len(s.records)*b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
	f("plain", s)
	s.attributes, s.compress = int16(codecZstd), func(in []byte) []byte { return enc.EncodeAll(in, nil) }
	f("zstd", s)
}
