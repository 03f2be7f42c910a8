package quarantine

import (
	"encoding/hex"
	"time"
	"unicode/utf8"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Row is a rejected record as the quarantine keeps it. Topic id, generation and offset are its reference into raw, where the whole
// record is.
type Row struct {
	Partition    record.Partition
	Record       record.Record // key, value and headers may be cut
	ID           record.ID
	KeySize      int64 // bytes of the whole key, -1 where it is null
	ValueSize    int64 // bytes of the whole value, -1 where it is null
	HeadersCount int   // of the whole record
	Reason       string
	Sink         string
	Detail       string
	At           time.Time // kept in milliseconds
}

// codec is the one that every Avro reader knows: these files are for people with tools of their own.
const codec = "deflate"

// preview is how many bytes of a value, of a key and of all headers are kept.
const preview = 64 << 10

// schema of a row: the columns of every table, then why it is here. Fields are only ever added at the end, with a default;
// docs/formats/quarantine.md explains each.
const schema = `{"type":"record","name":"Row","namespace":"twgd.quarantine.v1","fields":[` +
	`{"name":"_twg_record_id","type":{"type":"string","logicalType":"uuid"}},` +
	`{"name":"__kafka_topic","type":"string"},` +
	`{"name":"__kafka_partition","type":"int"},` +
	`{"name":"__kafka_offset","type":"long"},` +
	`{"name":"__kafka_timestamp","type":["null","long"],"doc":"milliseconds since 1970 UTC, as delivered"},` +
	`{"name":"__kafka_timestamp_type","type":"int","doc":"0 create, 1 log append, -1 none"},` +
	`{"name":"__kafka_leader_epoch","type":"int"},` +
	`{"name":"__kafka_producer_id","type":"long"},` +
	`{"name":"__kafka_producer_epoch","type":"int"},` +
	`{"name":"__kafka_headers","type":{"type":"array","items":{"type":"record","name":"Header","fields":[` +
	`{"name":"key","type":"string"},{"name":"value","type":["null","bytes"]},` +
	`{"name":"key_bytes","type":["null","bytes"],"doc":"the key as sent, where it is not UTF-8"}]}}},` +
	`{"name":"__kafka_key","type":["null","bytes"]},` +
	`{"name":"__kafka_value","type":["null","bytes"]},` +
	`{"name":"reason","type":"string"},` +
	`{"name":"sink","type":"string"},` +
	`{"name":"detail","type":["null","string"]},` +
	`{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},` +
	`{"name":"cluster","type":"string"},` +
	`{"name":"topic_id","type":"string","doc":"32 hex digits"},` +
	`{"name":"generation","type":"int"},` +
	`{"name":"key_size","type":["null","long"],"doc":"bytes of the whole key"},` +
	`{"name":"value_size","type":["null","long"],"doc":"bytes of the whole value"},` +
	`{"name":"headers_count","type":"int","doc":"of the whole record"}]}`

// appendRow encodes a reject, which is how it is copied: nothing of the record is referred to afterwards.
func appendRow(b []byte, r *sinks.Reject, sink string, at time.Time) []byte {
	rec := r.Record
	if rec == nil {
		rec = &record.Record{Offset: r.Offset, Timestamp: -1, TimestampType: record.TimestampNone, LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1}
	}
	b = avrofile.AppendBytes(b, r.ID.String())
	b = avrofile.AppendBytes(b, r.Partition.Topic)
	b = avrofile.AppendLong(b, int64(r.Partition.Number))
	b = avrofile.AppendLong(b, r.Offset)
	if rec.TimestampType == record.TimestampNone {
		b = append(b, 0)
	} else {
		b = avrofile.AppendLong(append(b, 2), rec.Timestamp)
	}
	b = avrofile.AppendLong(b, int64(rec.TimestampType))
	b = avrofile.AppendLong(b, int64(rec.LeaderEpoch))
	b = avrofile.AppendLong(b, rec.ProducerID)
	b = avrofile.AppendLong(b, int64(rec.ProducerEpoch))
	b = appendHeaders(b, rec.Headers)
	b = avrofile.AppendNullable(b, cut(rec.Key))
	b = avrofile.AppendNullable(b, cut(rec.Value))
	b = avrofile.AppendBytes(b, r.Reason)
	b = avrofile.AppendBytes(b, sink)
	b = avrofile.AppendNullableString(b, valid(r.Detail))
	b = avrofile.AppendLong(b, at.UnixMilli())
	b = avrofile.AppendBytes(b, r.Partition.Cluster)
	b = avrofile.AppendBytes(b, hex.EncodeToString(r.Partition.TopicID[:]))
	b = avrofile.AppendLong(b, int64(r.Partition.Generation))
	b = appendSize(b, rec.Key, r.Whole.Key)
	b = appendSize(b, rec.Value, r.Whole.Value)
	return avrofile.AppendLong(b, int64(max(len(rec.Headers), r.Whole.Headers)))
}

func cut(v []byte) []byte { return v[:min(len(v), preview)] }

func appendSize(b, v []byte, whole int) []byte {
	if v == nil {
		return append(b, 0)
	}
	return avrofile.AppendLong(append(b, 2), int64(max(len(v), whole)))
}

// kept is how many headers in front are kept, whole, and how many bytes they take.
func kept(headers []record.Header) (n, size int) {
	for n < len(headers) {
		next := size + headerOverhead + keyBytes(headers[n].Key) + len(headers[n].Value)
		if next > preview {
			break
		}
		n, size = n+1, next
	}
	return n, size
}

// keyBytes is what a header's key takes at most: one that is not UTF-8 is written twice.
func keyBytes(key string) int {
	if utf8.ValidString(key) {
		return len(key)
	}
	return 4 * len(key)
}

// rowOverhead and headerOverhead are more than a row and a header take besides what weigh counts.
const (
	rowOverhead    = 256
	headerOverhead = 24
)

// weigh is what a row costs of the budget: a little more than what appendRow appends.
func weigh(r *sinks.Reject, sink string) int64 {
	n := rowOverhead + len(r.Partition.Topic) + len(r.Partition.Cluster) + len(r.Reason) + len(sink) + 3*len(r.Detail)
	if r.Record != nil {
		_, headers := kept(r.Record.Headers)
		n += len(cut(r.Record.Key)) + len(cut(r.Record.Value)) + headers
	}
	return int64(n)
}

func appendHeaders(b []byte, headers []record.Header) []byte {
	keep, _ := kept(headers)
	if keep > 0 {
		b = avrofile.AppendLong(b, int64(keep))
	}
	for i := range headers[:keep] {
		b = appendHeader(b, &headers[i])
	}
	return avrofile.AppendLong(b, 0)
}

// appendHeader writes a key that is not UTF-8 twice: readable, and as it was sent. A string that is none would make the whole
// file unreadable for others.
func appendHeader(b []byte, h *record.Header) []byte {
	b = avrofile.AppendBytes(b, valid(h.Key))
	b = avrofile.AppendNullable(b, h.Value)
	if utf8.ValidString(h.Key) {
		return append(b, 0)
	}
	return avrofile.AppendNullable(b, []byte(h.Key))
}

func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s)) // each faulty byte becomes U+FFFD
}

func parseRow(d *avrofile.Decoder, r *Row) (err error) {
	rec := &r.Record
	id := d.Bytes()
	r.Partition.Topic = string(d.Bytes())
	r.Partition.Number = int32(d.Long())
	rec.Offset = d.Long()
	rec.Timestamp = -1
	if d.Present() {
		rec.Timestamp = d.Long()
	}
	rec.TimestampType = int8(d.Long())
	rec.LeaderEpoch = int32(d.Long())
	rec.ProducerID = d.Long()
	rec.ProducerEpoch = int16(d.Long())
	d.Array(func() {
		h := record.Header{Key: string(d.Bytes()), Value: d.Nullable()}
		if key := d.Nullable(); key != nil {
			h.Key = string(key)
		}
		rec.Headers = append(rec.Headers, h)
	})
	rec.Key = d.Nullable()
	rec.Value = d.Nullable()
	topicID := parseWhy(d, r)
	if d.Err() != nil {
		return d.Err()
	}
	if r.Partition.TopicID, err = record.ParseTopicID(topicID); err != nil {
		return err
	}
	r.ID, err = record.ParseID(string(id))
	return err
}

// parseWhy reads what stands behind the columns of every table.
func parseWhy(d *avrofile.Decoder, r *Row) (topicID string) {
	r.Reason = string(d.Bytes())
	r.Sink = string(d.Bytes())
	r.Detail = string(d.Nullable())
	r.At = time.UnixMilli(d.Long()).UTC()
	r.Partition.Cluster = string(d.Bytes())
	topicID = string(d.Bytes())
	r.Partition.Generation = int32(d.Long())
	r.KeySize, r.ValueSize = parseSize(d), parseSize(d)
	r.HeadersCount = int(d.Long())
	return topicID
}

func parseSize(d *avrofile.Decoder) int64 {
	if !d.Present() {
		return -1
	}
	return d.Long()
}
