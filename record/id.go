package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// ID is a record's identity in every sink: a UUID of version 8 (RFC 9562, section 5.8). Its first 48 bits are the record's
// timestamp, so that ids arrive nearly in order and a unique index on them stays cheap; 74 more come from SHA-256 over what
// makes the record that record. The bytes are drawn in docs/formats/record-id.md; any language can compute it.
type ID [16]byte

// String is the canonical text form of a UUID.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Tail is the last 8 bytes, which hold nothing of the time: what a record is called where 16 bytes are too many.
func (id ID) Tail() [8]byte { return [8]byte(id[8:]) }

// maxMillis is the greatest timestamp that 48 bits hold.
const maxMillis = 1<<48 - 1

// inline is the size up to which an id's input is gathered and hashed in one call, which is faster than streaming the parts.
const inline = 4 << 10

// Hasher computes the ids of one partition's records. It allocates nothing per record. Not for concurrent use.
type Hasher struct {
	buf    []byte // prefix, then the record's own part
	prefix int
	stream hash.Hash
	head   [5]byte           // here and not on the stack, since what an interface is handed escapes
	sum    [sha256.Size]byte // likewise
}

// NewHasher prepares the part of the input that all records of the partition share.
func NewHasher(p Partition) *Hasher {
	b := make([]byte, 0, inline)
	b = appendSized(b, p.Cluster)
	b = appendSized(b, p.Topic)
	b = append(b, p.TopicID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Number))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Generation))
	return &Hasher{buf: b, prefix: len(b), stream: sha256.New()}
}

// ID computes the id of r.
func (h *Hasher) ID(r *Record) ID {
	if h.prefix+8+10+len(r.Key)+len(r.Value) <= inline {
		b := binary.BigEndian.AppendUint64(h.buf[:h.prefix], uint64(r.Offset))
		b = appendNullable(b, r.Key)
		b = appendNullable(b, r.Value)
		return compose(r.Timestamp, sha256.Sum256(b))
	}
	return compose(r.Timestamp, h.sumLong(r))
}

// sumLong streams the parts, so that a large value is not copied.
func (h *Hasher) sumLong(r *Record) [sha256.Size]byte {
	h.stream.Reset()
	h.buf = binary.BigEndian.AppendUint64(h.buf[:h.prefix], uint64(r.Offset))
	h.stream.Write(h.buf)
	for _, part := range [2][]byte{r.Key, r.Value} {
		if part == nil {
			h.stream.Write(append(h.head[:0], 0))
			continue
		}
		h.stream.Write(binary.BigEndian.AppendUint32(append(h.head[:0], 1), uint32(len(part))))
		h.stream.Write(part)
	}
	h.stream.Sum(h.sum[:0])
	return h.sum
}

// IDs appends the ids of records to dst.
func (h *Hasher) IDs(dst []ID, records []Record) []ID {
	for i := range records {
		dst = append(dst, h.ID(&records[i]))
	}
	return dst
}

// compose lays timestamp, version, variant and digest into a UUID.
func compose(millis int64, sum [sha256.Size]byte) (id ID) {
	ms := uint64(min(max(millis, 0), maxMillis))
	var t [8]byte
	binary.BigEndian.PutUint64(t[:], ms<<16)
	copy(id[:6], t[:6])
	copy(id[6:], sum[:10])
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id
}

func appendSized(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendNullable(b, v []byte) []byte {
	if v == nil {
		return append(b, 0)
	}
	return append(binary.BigEndian.AppendUint32(append(b, 1), uint32(len(v))), v...)
}
