package trail

import (
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Entry says that a sink does not hold the records of a span, and why.
type Entry struct {
	Partition record.Partition
	Span      checkpoint.Span
	Sink      string    // empty where it concerns all sinks of the stream
	Reason    string    // a reason code, as metrics name it
	Detail    string    // SQLSTATE, column, what was found; no value of a user. Bytes that are not UTF-8 are replaced
	ID        record.ID // of the record, zero for a span
	At        time.Time // kept in milliseconds
}

// schema of an entry. Fields are only ever added at the end, with a default; docs/formats/trail.md explains each.
const schema = `{"type":"record","name":"Entry","namespace":"twgd.trail.v1","fields":[` +
	`{"name":"cluster","type":"string"},` +
	`{"name":"topic","type":"string"},` +
	`{"name":"topic_id","type":"string","doc":"32 hex digits"},` +
	`{"name":"partition","type":"int"},` +
	`{"name":"generation","type":"int"},` +
	`{"name":"from","type":"long"},` +
	`{"name":"to","type":"long"},` +
	`{"name":"sink","type":"string"},` +
	`{"name":"reason","type":"string"},` +
	`{"name":"detail","type":["null","string"]},` +
	`{"name":"record_id","type":["null",{"type":"string","logicalType":"uuid"}]},` +
	`{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}]}`

// codec is the one that every Avro reader knows. The trail is small, and made for auditors with tools of their own.
const codec = "deflate"

func appendEntry(b []byte, e *Entry) []byte {
	b = avrofile.AppendBytes(b, e.Partition.Cluster)
	b = avrofile.AppendBytes(b, e.Partition.Topic)
	b = avrofile.AppendBytes(b, hex.EncodeToString(e.Partition.TopicID[:]))
	b = avrofile.AppendLong(b, int64(e.Partition.Number))
	b = avrofile.AppendLong(b, int64(e.Partition.Generation))
	b = avrofile.AppendLong(b, e.Span.From)
	b = avrofile.AppendLong(b, e.Span.To)
	b = avrofile.AppendBytes(b, e.Sink)
	b = avrofile.AppendBytes(b, e.Reason)
	b = avrofile.AppendNullableString(b, valid(e.Detail))
	if e.ID == (record.ID{}) {
		b = append(b, 0)
	} else {
		b = avrofile.AppendNullableString(b, e.ID.String())
	}
	return avrofile.AppendLong(b, e.At.UnixMilli())
}

func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s)) // each faulty byte becomes U+FFFD
}

func parseEntry(d *avrofile.Decoder, e *Entry) (err error) {
	e.Partition.Cluster = string(d.Bytes())
	e.Partition.Topic = string(d.Bytes())
	topicID := d.Bytes()
	e.Partition.Number = int32(d.Long())
	e.Partition.Generation = int32(d.Long())
	e.Span = checkpoint.Span{From: d.Long(), To: d.Long()}
	e.Sink = string(d.Bytes())
	e.Reason = string(d.Bytes())
	e.Detail = string(d.Nullable())
	id := d.Nullable()
	e.At = time.UnixMilli(d.Long()).UTC()
	if d.Err() != nil {
		return d.Err()
	}
	if e.Partition.TopicID, err = record.ParseTopicID(string(topicID)); err == nil && id != nil {
		e.ID, err = record.ParseID(string(id))
	}
	if err == nil && (e.Span.From < 0 || e.Span.Empty()) {
		err = fmt.Errorf("an entry covers %v", e.Span)
	}
	return err
}
