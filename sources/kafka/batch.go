package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// batch is one record batch of Kafka's format 2, as a fetch delivers it. Its fields alias the response.
type batch struct {
	first, next   int64 // the offsets that it spans; a compacted batch keeps them when its records go
	leaderEpoch   int32
	attributes    int16
	baseTimestamp int64
	maxTimestamp  int64
	producerID    int64
	producerEpoch int16
	count         int32
	body          []byte // the records, compressed as the attributes say
	size          int    // bytes of the whole batch in the response
}

// Layout of a batch.
const (
	batchPrefix = 12 // base offset and length, which the length does not count
	batchHeader = 61
	magicAt     = 16
	checkedFrom = 21 // the CRC covers everything from the attributes on
)

// Bits of the attributes.
const (
	attrCodec         = 0x07
	attrLogAppend     = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errShort says that the bytes end inside a batch, which is how a fetch that reached its size limit ends.
var errShort = errors.New("the batch is cut off")

// errOldFormat says that the bytes begin with a message of format 0 or 1.
var errOldFormat = errors.New("message format 0 or 1")

func (b *batch) codec() int8         { return int8(b.attributes & attrCodec) }
func (b *batch) control() bool       { return b.attributes&attrControl != 0 }
func (b *batch) transactional() bool { return b.attributes&attrTransactional != 0 }
func (b *batch) logAppend() bool     { return b.attributes&attrLogAppend != 0 }

// parseBatch reads the header of the batch that in begins with. It does not check the CRC.
func parseBatch(in []byte) (b batch, err error) {
	if len(in) <= magicAt {
		return b, errShort
	}
	b.first = int64(binary.BigEndian.Uint64(in))
	length := int(int32(binary.BigEndian.Uint32(in[8:])))
	if in[magicAt] < 2 {
		return b, errOldFormat
	}
	switch {
	case in[magicAt] > 2:
		return b, fmt.Errorf("message format %d is not known", in[magicAt])
	case length < batchHeader-batchPrefix:
		return b, fmt.Errorf("the batch claims a length of %d", length)
	case len(in)-batchPrefix < length:
		return b, errShort
	}
	b.size = batchPrefix + length
	b.leaderEpoch = int32(binary.BigEndian.Uint32(in[12:]))
	b.attributes = int16(binary.BigEndian.Uint16(in[21:]))
	b.next = b.first + int64(int32(binary.BigEndian.Uint32(in[23:]))) + 1
	b.baseTimestamp = int64(binary.BigEndian.Uint64(in[27:]))
	b.maxTimestamp = int64(binary.BigEndian.Uint64(in[35:]))
	b.producerID = int64(binary.BigEndian.Uint64(in[43:]))
	b.producerEpoch = int16(binary.BigEndian.Uint16(in[51:]))
	b.count = int32(binary.BigEndian.Uint32(in[57:]))
	b.body = in[batchHeader:b.size:b.size]
	if b.next <= b.first || b.count < 0 || b.first < 0 {
		return b, fmt.Errorf("the batch claims the offsets [%d, %d) and %d records", b.first, b.next, b.count)
	}
	return b, nil
}

// verify checks the CRC of the batch that in begins with.
func verify(in []byte, b *batch) error {
	want := binary.BigEndian.Uint32(in[magicAt+1:])
	if got := crc32.Checksum(in[checkedFrom:b.size], castagnoli); got != want {
		return fmt.Errorf("its checksum is %08x, it should be %08x", got, want)
	}
	return nil
}

// scan finds how far the whole batches in a response reach, without decoding them: the bytes that they take, the offset behind
// the last, and its leader epoch.
func scan(in []byte, at int64) (size int, next int64, epoch int32) {
	next, epoch = at, -1
	for {
		n, behind, e := scanOne(in[size:])
		if n == 0 {
			return size, next, epoch
		}
		size, next, epoch = size+n, max(next, behind), e
	}
}

// scanOne is scan for the first batch; 0 bytes where it is cut off. Messages of the old formats share the prefix that it reads.
// A batch that makes no sense takes all the rest: the decoder says what is wrong, and nothing behind it can be found.
func scanOne(in []byte) (size int, next int64, epoch int32) {
	b, err := parseBatch(in)
	switch {
	case err == nil:
		return b.size, b.next, b.leaderEpoch
	case errors.Is(err, errShort):
		return 0, 0, -1
	case !errors.Is(err, errOldFormat):
		return len(in), 0, -1
	}
	length := int(int32(binary.BigEndian.Uint32(in[8:])))
	if length < 0 || length > len(in)-batchPrefix {
		return 0, 0, -1
	}
	return batchPrefix + length, b.first + 1, -1
}

// abortMarker reports whether a control batch ends an aborted transaction: the key of its one record is a version and a type,
// 0 for abort.
func abortMarker(body []byte) bool {
	r := reader{in: body}
	r.varint()             // length
	r.skip(1)              // attributes
	r.varint()             // timestamp
	r.varint()             // offset
	key, _ := r.nullable() // version, type
	return !r.bad && len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == 0
}

// reader takes apart the varints that records are made of. After a fault bad is set and everything reads as zero.
type reader struct {
	in  []byte
	bad bool
}

func (r *reader) varint() int64 {
	if len(r.in) > 0 && r.in[0] < 0x80 { // one byte, which most are
		v := r.in[0]
		r.in = r.in[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
	v, n := binary.Varint(r.in)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.in = r.in[n:]
	return v
}

func (r *reader) fail() { r.in, r.bad = nil, true }

func (r *reader) skip(n int) { r.take(int64(n)) }

func (r *reader) take(n int64) []byte {
	if n < 0 || n > int64(len(r.in)) {
		r.fail()
		return nil
	}
	v := r.in[:n:n]
	r.in = r.in[n:]
	return v
}

// nullable reads a length and as many bytes; a negative length is null. What is empty is not nil.
func (r *reader) nullable() (v []byte, null bool) {
	n := r.varint()
	if n < 0 {
		return nil, true
	}
	return r.take(n), false
}
