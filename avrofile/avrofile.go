// Package avrofile writes and reads Avro object container files (Avro 1.12 specification, "Object Container Files") at the level
// that a log needs: a header, and blocks that are appended one by one, each of which can be checked and skipped without the
// others. Values are encoded by hand, so that a record costs no allocation and no reflection.
//
// A general Avro library reads the same files; the tests hold the two against each other. What such a library does not offer,
// and a store needs, is to tell a torn end from damage in the middle.
package avrofile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

const (
	magic    = "Obj\x01"
	syncSize = 16
	// MaxBlock bounds what one block may hold, before and after compression. It is far above what a commit holds: a single record
	// of Kafka can have 1 GiB at most, and brokers allow 1 MiB unless told otherwise.
	MaxBlock = 2 << 30
)

// Header is the beginning of a container.
type Header struct {
	Meta  map[string]string // includes avro.schema and avro.codec
	Sync  [syncSize]byte
	Size  int64 // bytes that the header takes
	Codec Codec
}

// ErrTorn says that the bytes end before the structure does: a write was cut off.
var ErrTorn = errors.New("the file ends in the middle of a write")

// ErrDamaged says that bytes are not what was written.
var ErrDamaged = errors.New("the file is damaged")

// AppendHeader appends a header to dst. sync separates the blocks and should be random.
func AppendHeader(dst []byte, schema string, codec Codec, meta map[string]string, sync [syncSize]byte) []byte {
	dst = append(dst, magic...)
	dst = AppendLong(dst, int64(len(meta)+2))
	dst = AppendBytes(AppendBytes(dst, "avro.schema"), schema)
	dst = AppendBytes(AppendBytes(dst, "avro.codec"), codec.Name())
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		dst = AppendBytes(AppendBytes(dst, k), meta[k])
	}
	dst = AppendLong(dst, 0)
	return append(dst, sync[:]...)
}

// ParseHeader reads a header from the beginning of b, which may hold more. ErrTorn means that b ends before the header does, or
// that a length in it says so.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < len(magic) {
		return Header{}, ErrTorn
	}
	if string(b[:len(magic)]) != magic {
		return Header{}, fmt.Errorf("%w: it does not begin as an Avro container", ErrDamaged)
	}
	h := Header{Meta: map[string]string{}}
	d := NewDecoder(b[len(magic):])
	d.Array(func() {
		k := string(d.Bytes())
		h.Meta[k] = string(d.Bytes())
	})
	end := len(magic) + d.Offset()
	if d.Err() != nil || len(b) < end+syncSize {
		return Header{}, ErrTorn
	}
	copy(h.Sync[:], b[end:])
	h.Size = int64(end + syncSize)
	codec, err := NewCodec(h.Meta["avro.codec"])
	if err != nil {
		return Header{}, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	h.Codec = codec
	return h, nil
}

// AppendBlock appends a block of count entries, which compressed holds as the codec made it.
func (h *Header) AppendBlock(dst []byte, count int, compressed []byte) []byte {
	dst = AppendLong(dst, int64(count))
	dst = AppendBytes(dst, compressed)
	return append(dst, h.Sync[:]...)
}
