package duplicates

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
)

// schema of an entry, which is one batch. Fields are only ever added at the end, with a default; docs/formats/duplicates.md explains
// each.
const schema = `{"type":"record","name":"Batch","namespace":"twgd.duplicates.v1","fields":[` +
	`{"name":"from","type":"long"},` +
	`{"name":"to","type":"long"},` +
	`{"name":"total","type":"long","doc":"dropped of this partition so far, these included, as the writer knows it"},` +
	`{"name":"dropped","type":{"type":"array","items":{"type":"record","name":"Dropped","fields":[` +
	`{"name":"offset","type":"long"},` +
	`{"name":"record_id","type":{"type":"fixed","name":"RecordID","size":16}},` +
	`{"name":"stands","type":{"type":"fixed","name":"Tail","size":8},"doc":"the last 8 bytes of the id of the record that stands for it"}]}}},` +
	`{"name":"crc32c","type":"long","doc":"over the bytes of this entry in front"}]}`

// codec is the one that every Avro reader knows. Ids are of random bytes for the most part; their time and the offsets shrink.
const codec = "deflate"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendEntry(b []byte, n *Noted, total int64) []byte {
	begin := len(b)
	b = avrofile.AppendLong(b, n.Span.From)
	b = avrofile.AppendLong(b, n.Span.To)
	b = avrofile.AppendLong(b, total)
	if len(n.Dropped) > 0 { // a run of none would be the end of the array
		b = avrofile.AppendLong(b, int64(len(n.Dropped)))
	}
	for i := range n.Dropped {
		d := &n.Dropped[i]
		b = avrofile.AppendLong(b, d.Offset)
		b = append(b, d.ID[:]...)
		b = append(b, d.Stands[:]...)
	}
	b = append(b, 0)
	return avrofile.AppendLong(b, int64(crc32.Checksum(b[begin:], castagnoli)))
}

// entry is a batch as it is stored.
type entry struct {
	span    checkpoint.Span
	total   int64
	dropped []Dropped
}

var errEntry = errors.New("a block's entries are not as they were written")

// parseBlock reads the entries of a block of an object that is named first.
func parseBlock(b []byte, count, first int64) ([]entry, error) {
	var out []entry
	d := avrofile.NewDecoder(b)
	for d.More() {
		begin := d.Offset()
		e := entry{span: checkpoint.Span{From: d.Long(), To: d.Long()}, total: d.Long()}
		d.Array(func() {
			var x Dropped
			x.Offset = d.Long()
			copy(x.ID[:], d.Fixed(len(x.ID)))
			copy(x.Stands[:], d.Fixed(len(x.Stands)))
			e.dropped = append(e.dropped, x)
		})
		sum := crc32.Checksum(b[begin:d.Offset()], castagnoli)
		if got := d.Long(); d.Err() == nil && got != int64(sum) {
			return nil, fmt.Errorf("%w: the CRC-32C of entry %d is %08x, it says %08x", errEntry, len(out), sum, got)
		}
		n := Noted{Span: e.span, Dropped: e.dropped}
		if err := n.check(); d.Err() == nil && (err != nil || e.span.From < first) {
			return nil, fmt.Errorf("%w: entry %d covers %v", errEntry, len(out), e.span)
		}
		out = append(out, e)
	}
	if d.Err() != nil || int64(len(out)) != count || count == 0 {
		return nil, fmt.Errorf("%w: %d of %d entries can be read", errEntry, len(out), count)
	}
	return out, nil
}
