package postgres

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/stream-arrow/twgd/record"
)

// decode reads back a row that encoder.append wrote. Key and value are parts of row; all else is copied. The row is the only
// copy that a load keeps of a record: the quarantine gets its records from here.
func decode(l layout, row []byte, wild bool) (r record.Record, id record.ID) {
	f := fields(row[2:])
	copy(id[:], f.bytes())
	f.bytes() // topic
	f.bytes() // partition
	r.Offset = f.int()
	r.Timestamp, r.TimestampType = -1, record.TimestampNone
	ts := f.bytes()
	r.TimestampType = int8(f.int())
	r.Timestamp = decodeTimestamp(ts, wild)
	r.LeaderEpoch = int32(f.int())
	r.ProducerID = f.int()
	r.ProducerEpoch = int16(f.int())
	r.Headers = decodeHeaders(unversioned(l[colHeaders], f.bytes()))
	r.Key = f.bytes()
	r.Value = unversioned(l[colValue], f.bytes())
	return r, id
}

// fields is what is left of a row.
type fields []byte

func (f *fields) bytes() []byte {
	n := int32(binary.BigEndian.Uint32(*f))
	*f = (*f)[4:]
	if n < 0 {
		return nil
	}
	v := (*f)[:n:n]
	*f = (*f)[n:]
	return v
}

func (f *fields) int() int64 { return decodeInt(f.bytes()) }

func decodeInt(v []byte) int64 {
	switch len(v) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	}
	return int64(binary.BigEndian.Uint64(v))
}

func decodeTimestamp(v []byte, wild bool) int64 {
	switch {
	case v == nil:
		return -1
	case wild:
		return decodeInt(v)
	}
	return decodeInt(v)/1000 + epochMillis
}

func unversioned(f format, v []byte) []byte {
	if f != formatJSONB || v == nil {
		return v
	}
	return v[1:]
}

// decodeHeaders reads what appendHeaders wrote between the brackets of the array, and only that.
func decodeHeaders(b []byte) (headers []record.Header) {
	for b = b[1:]; b[0] != ']'; {
		if b[0] == ',' {
			b = b[1:]
		}
		var h record.Header
		h.Key, b = decodeJSONString(b[1:])
		h.Value, b = decodeHeaderValue(b[1:])
		headers = append(headers, h)
		b = b[1:]
	}
	return headers
}

func decodeHeaderValue(b []byte) (value, rest []byte) {
	if b[0] == 'n' {
		return nil, b[len("null"):]
	}
	text, rest := decodeJSONString(b)
	value, err := base64.StdEncoding.AppendDecode([]byte{}, []byte(text))
	if err != nil {
		panic("postgres: a row that was encoded here cannot be read: " + err.Error())
	}
	return value, rest
}

func decodeJSONString(b []byte) (s string, rest []byte) {
	out := []byte{}
	for i := 1; ; i++ {
		switch c := b[i]; {
		case c == '"':
			return string(out), b[i+1:]
		case c == '\\' && b[i+1] == 'u':
			out = append(out, unhex(b[i+4])<<4|unhex(b[i+5]))
			i += 5
		case c == '\\':
			i++
			out = append(out, b[i])
		default:
			out = append(out, c)
		}
	}
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
