package raw

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
	"unicode/utf8"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/record"
)

// schema of an entry. Fields are only ever added at the end, with a default; docs/formats/raw.md explains each.
const schema = `{"type":"record","name":"Entry","namespace":"twgd.raw.v1","fields":[` +
	`{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["record","gap","cursor"]}},` +
	`{"name":"__kafka_offset","type":"long"},` +
	`{"name":"__kafka_timestamp","type":["null","long"],"doc":"milliseconds since 1970 UTC, as delivered"},` +
	`{"name":"__kafka_timestamp_type","type":"int","doc":"0 create, 1 log append, -1 none"},` +
	`{"name":"__kafka_leader_epoch","type":"int"},` +
	`{"name":"__kafka_producer_id","type":"long"},` +
	`{"name":"__kafka_producer_epoch","type":"int"},` +
	`{"name":"__kafka_transactional","type":"boolean"},` +
	`{"name":"__kafka_headers","type":{"type":"array","items":{"type":"record","name":"Header","fields":[` +
	`{"name":"key","type":"string"},{"name":"value","type":["null","bytes"]},` +
	`{"name":"key_bytes","type":["null","bytes"],"doc":"the key as sent, where it is not UTF-8"}]}}},` +
	`{"name":"__kafka_key","type":["null","bytes"]},` +
	`{"name":"__kafka_value","type":["null","bytes"]},` +
	`{"name":"mark","type":["null",{"type":"record","name":"Mark","fields":[` +
	`{"name":"next","type":"long"},{"name":"written","type":"long"},{"name":"crc32c","type":"long"},` +
	`{"name":"reason","type":["null","string"]}]}]}]}`

// Kinds of entries, by their index in the schema's enum.
const (
	kindRecord = 0
	kindGap    = 1
	kindCursor = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// commit is what one block holds: everything of a partition in [first, next), as one writer stored it at once.
type commit struct {
	first, next int64
	epoch       int32 // leader epoch of the last record or marker delivered, -1 where it is not known
	written     time.Time
	records     []record.Record
	gap         string // why the range is lost; then there are no records
}

// appendCommit appends the entries of the batches and the cursor behind them. It returns the count of entries. The cursor's
// checksum covers everything of the block in front of it, the cursor's own fields too: a flipped `next` would move the head.
func appendCommit(dst []byte, batches []*record.Batch, written time.Time) ([]byte, int) {
	begin, count := len(dst), 1
	for _, b := range batches {
		if b.Gap != "" {
			dst = appendMark(dst, kindGap, b.First, b.Next, b.LeaderEpoch, written)
			dst = avrofile.AppendNullableString(avrofile.AppendLong(dst, 0), b.Gap)
			count++
		}
		for i := range b.Records {
			dst = appendRecord(dst, &b.Records[i])
		}
		count += len(b.Records)
	}
	first, last := batches[0], batches[len(batches)-1]
	dst = appendMark(dst, kindCursor, first.First, last.Next, last.LeaderEpoch, written)
	dst = avrofile.AppendLong(dst, int64(crc32.Checksum(dst[begin:], castagnoli)))
	return avrofile.AppendNullableString(dst, ""), count
}

func appendRecord(b []byte, r *record.Record) []byte {
	b = append(b, kindRecord<<1)
	b = binary.AppendVarint(b, r.Offset)
	if r.TimestampType == record.TimestampNone {
		b = append(b, 0)
	} else {
		b = binary.AppendVarint(append(b, 2), r.Timestamp)
	}
	b = binary.AppendVarint(b, int64(r.TimestampType))
	b = binary.AppendVarint(b, int64(r.LeaderEpoch))
	b = binary.AppendVarint(b, r.ProducerID)
	b = binary.AppendVarint(b, int64(r.ProducerEpoch))
	b = avrofile.AppendBool(b, r.Transactional)
	b = appendHeaders(b, r.Headers)
	b = avrofile.AppendNullable(b, r.Key)
	b = avrofile.AppendNullable(b, r.Value)
	return append(b, 0) // no mark
}

func appendHeaders(b []byte, headers []record.Header) []byte {
	if len(headers) > 0 {
		b = avrofile.AppendLong(b, int64(len(headers)))
		for i := range headers {
			b = appendRecordHeader(b, &headers[i])
		}
	}
	return avrofile.AppendLong(b, 0)
}

// appendRecordHeader writes a key that is not UTF-8 twice: readable, and as it was sent. A string that is none would make the whole
// file unreadable for others.
func appendRecordHeader(b []byte, h *record.Header) []byte {
	if utf8.ValidString(h.Key) {
		return append(avrofile.AppendNullable(avrofile.AppendBytes(b, h.Key), h.Value), 0)
	}
	b = avrofile.AppendBytes(b, toValid(h.Key))
	b = avrofile.AppendNullable(b, h.Value)
	return avrofile.AppendNullable(b, []byte(h.Key))
}

func toValid(s string) string { return string([]rune(s)) } // each faulty byte becomes U+FFFD

// appendMark appends an entry with a mark, up to the mark's checksum and reason.
func appendMark(b []byte, kind byte, offset, next int64, epoch int32, written time.Time) []byte {
	b = append(b, kind<<1)
	b = binary.AppendVarint(b, offset)
	b = append(b, 0)               // no timestamp
	b = binary.AppendVarint(b, -1) // of no type
	b = binary.AppendVarint(b, int64(epoch))
	b = binary.AppendVarint(b, -1) // no producer
	b = binary.AppendVarint(b, -1)
	b = append(b, 0, 0, 0, 0) // not transactional, no headers, key and value null
	b = append(b, 2)          // a mark
	b = binary.AppendVarint(b, next)
	return binary.AppendVarint(b, written.UnixMilli())
}

// errBlock says that a block's bytes decompress but are not what a writer made.
var errBlock = errors.New("a block's entries are not as they were written")

// smallest is the size in bytes of the smallest entry that there can be.
const smallest = 12

// parseCommit decodes the entries of a block and checks them against its cursor. Records alias entries.
func parseCommit(entries []byte, count int64) (commit, error) {
	if count < 1 || count > int64(len(entries)/smallest) {
		return commit{}, fmt.Errorf("%w: it counts %d entries in %d bytes", errBlock, count, len(entries))
	}
	c := commit{records: make([]record.Record, 0, count-1)}
	d := avrofile.NewDecoder(entries)
	for n := int64(0); n < count; n++ {
		kind := d.Long()
		if kind == kindRecord {
			c.records = append(c.records, record.Record{})
			parseRecord(d, &c.records[len(c.records)-1])
		}
		var m mark
		if kind != kindRecord {
			m = parseMark(d)
		}
		switch {
		case d.Err() != nil:
			return commit{}, fmt.Errorf("%w: entry %d: %v", errBlock, n, d.Err())
		case kind == kindCursor && n == count-1:
			return c.close(m, entries, d)
		case kind == kindGap && n == 0:
			c.first, c.next, c.gap = m.offset, m.next, m.reason
		case kind != kindRecord || c.gap != "":
			return commit{}, fmt.Errorf("%w: entry %d is of kind %d", errBlock, n, kind)
		}
	}
	return commit{}, fmt.Errorf("%w: it has no cursor", errBlock)
}

// close takes the cursor and checks the block against it.
func (c *commit) close(m mark, entries []byte, d *avrofile.Decoder) (commit, error) {
	switch sum := crc32.Checksum(entries[:m.at], castagnoli); {
	case d.More() || m.reason != "":
		return commit{}, fmt.Errorf("%w: something follows the cursor", errBlock)
	case int64(sum) != m.sum:
		return commit{}, fmt.Errorf("%w: their CRC-32C is %08x, the cursor has %08x", errBlock, sum, m.sum)
	case m.offset < 0 || m.next <= m.offset || c.gap != "" && (c.first != m.offset || c.next != m.next):
		return commit{}, fmt.Errorf("%w: it covers [%d, %d)", errBlock, m.offset, m.next)
	}
	c.first, c.next, c.epoch, c.written = m.offset, m.next, m.epoch, m.written
	at := c.first
	for i := range c.records {
		if o := c.records[i].Offset; o < at || o >= c.next {
			return commit{}, fmt.Errorf("%w: offset %d does not belong into [%d, %d)", errBlock, o, at, c.next)
		}
		at = c.records[i].Offset + 1
	}
	return *c, nil
}

func parseRecord(d *avrofile.Decoder, r *record.Record) {
	r.Offset = d.Long()
	r.Timestamp = -1
	if d.Present() {
		r.Timestamp = d.Long()
	}
	r.TimestampType = int8(d.Long())
	r.LeaderEpoch = int32(d.Long())
	r.ProducerID = d.Long()
	r.ProducerEpoch = int16(d.Long())
	r.Transactional = d.Bool()
	d.Array(func() {
		h := record.Header{Key: string(d.Bytes()), Value: d.Nullable()}
		if key := d.Nullable(); key != nil {
			h.Key = string(key)
		}
		r.Headers = append(r.Headers, h)
	})
	r.Key = d.Nullable()
	r.Value = d.Nullable()
	d.Present()
}

type mark struct {
	offset, next int64
	epoch        int32
	written      time.Time
	at           int   // where the checksum stands, which covers what is in front of it
	sum          int64 // a CRC-32C, or anything where it was damaged
	reason       string
}

func parseMark(d *avrofile.Decoder) mark {
	m := mark{offset: d.Long()}
	d.Present() // no timestamp
	d.Long()    // of no type
	m.epoch = int32(d.Long())
	d.Long() // no producer
	d.Long()
	d.Bool()
	d.Long()     // no headers
	d.Nullable() // no key, no value
	d.Nullable()
	if !d.Present() {
		return m
	}
	m.next = d.Long()
	m.written = time.UnixMilli(d.Long()).UTC()
	m.at = d.Offset()
	m.sum = d.Long()
	m.reason = string(d.Nullable())
	return m
}

// batch is the commit's part in [from, to) for readers.
func (c *commit) batch(p record.Partition, from, to int64) *record.Batch {
	b := &record.Batch{Partition: p, First: c.first, Next: c.next, LeaderEpoch: c.epoch, Records: c.records, Gap: c.gap}
	return b.Weigh(nil).Slice(from, to)
}
