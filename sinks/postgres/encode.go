package postgres

import (
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/stream-arrow/twgd/record"
)

// A row in PostgreSQL's binary COPY format is the number of its columns (16 bits) and for each column the length of its bytes
// (32 bits, -1 for null) and the bytes, everything big-endian. Rows follow copyHeader and are followed by copyTrailer.
var (
	copyHeader  = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	copyTrailer = []byte{0xff, 0xff}
)

// encoder writes rows of one partition. The columns that are the same in all its rows are prepared once.
type encoder struct {
	layout layout
	fixed  []byte // topic and partition, encoded
}

func newEncoder(l layout, p record.Partition) encoder {
	e := encoder{layout: l}
	e.fixed = appendBytes(e.fixed, []byte(p.Topic))
	e.fixed = appendInt(e.fixed, l[colPartition], int64(p.Number))
	return e
}

// room is at least what the row of r takes.
func (e *encoder) room(r *record.Record) int {
	n := 2 + len(e.fixed) + 12*(columnCount-2) + 16 + 1 + 2 + 1 + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 12 + 6*len(r.Headers[i].Key) + base64.StdEncoding.EncodedLen(len(r.Headers[i].Value))
	}
	return n
}

// append writes the row. A timestamp that PostgreSQL cannot hold is written as milliseconds, and wild is true: such a row may be
// read back but not be sent.
func (e *encoder) append(b []byte, id record.ID, r *record.Record) (row []byte, wild bool) {
	b = binary.BigEndian.AppendUint16(b, columnCount)
	b = appendBytes(b, id[:])
	b = append(b, e.fixed...)
	b = appendInt(b, formatInt8, r.Offset)
	b, wild = appendTimestamp(b, r)
	b = appendInt(b, e.layout[colTimestampType], int64(r.TimestampType))
	b = appendInt(b, e.layout[colLeaderEpoch], int64(r.LeaderEpoch))
	b = appendInt(b, formatInt8, r.ProducerID)
	b = appendInt(b, e.layout[colProducerEpoch], int64(r.ProducerEpoch))
	b = appendHeaders(b, e.layout[colHeaders], r.Headers)
	b = appendBytes(b, r.Key)
	return appendValue(b, e.layout[colValue], r.Value), wild
}

// appendBytes writes a column of bytes, null where v is nil.
func appendBytes(b, v []byte) []byte {
	if v == nil {
		return append(b, 0xff, 0xff, 0xff, 0xff)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

// appendValue is appendBytes with the version that a jsonb begins with.
func appendValue(b []byte, f format, v []byte) []byte {
	if f != formatJSONB || v == nil {
		return appendBytes(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(v)+1))
	return append(append(b, 1), v...)
}

// appendInt writes an integer in the width of its column.
func appendInt(b []byte, f format, v int64) []byte {
	switch f {
	case formatInt2:
		return binary.BigEndian.AppendUint16(append(b, 0, 0, 0, 2), uint16(v))
	case formatInt4:
		return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(v))
}

// PostgreSQL counts microseconds from 2000-01-01 UTC. A timestamp lies in [4714-11-24 BC, 294277-01-01), in milliseconds from there:
const (
	epochMillis = 946_684_800_000
	minMillis   = -211_813_488_000_000
	maxMillis   = 9_223_371_331_200_000
)

func appendTimestamp(b []byte, r *record.Record) (row []byte, wild bool) {
	if r.TimestampType == record.TimestampNone {
		return appendBytes(b, nil), false
	}
	since := r.Timestamp - epochMillis
	if r.Timestamp < math.MinInt64+epochMillis || since < minMillis || since >= maxMillis {
		return appendInt(b, formatInt8, r.Timestamp), true
	}
	return appendInt(b, formatInt8, since*1000), false
}

// appendHeaders writes a JSON array of [key, base64 of the value or null].
func appendHeaders(b []byte, f format, headers []record.Header) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	if f == formatJSONB {
		b = append(b, 1)
	}
	b = append(b, '[')
	for i := range headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSONString(append(b, '['), headers[i].Key), ',')
		if v := headers[i].Value; v == nil {
			b = append(b, "null]"...)
		} else {
			b = append(base64.StdEncoding.AppendEncode(append(b, '"'), v), '"', ']')
		}
	}
	b = append(b, ']')
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// appendJSONString leaves bytes that are no UTF-8 as they are, so that decode gives them back.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
