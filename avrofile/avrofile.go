// Package avrofile writes and reads Avro object container files (Avro 1.12 specification, "Object Container Files") at the level
// that a log needs: a header, and blocks that are appended one by one, each of which can be checked and skipped without the
// others. Values are encoded by hand, so that a record costs no allocation and no reflection.
//
// A general Avro library reads the same files; the tests hold the two against each other. What such a library does not offer,
// and a store needs, is to tell a torn end from damage in the middle.
package avrofile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

const (
	magic    = "Obj\x01"
	syncSize = 16
	// maxBlock bounds what one block may hold, before and after compression. It is far above what a commit holds: a single record
	// of Kafka can have 1 GiB at most, and brokers allow 1 MiB unless told otherwise.
	maxBlock = 2 << 30
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

// ParseHeader reads a header from the beginning of b, which may hold more. ErrTorn means that b ends before the header does.
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

// Frame is where a block lies in its file.
type Frame struct {
	Offset int64 // of the block's first byte
	Size   int64 // of the whole block, its sync marker included
	Count  int64 // entries
	body   int64 // offset of the compressed entries, relative to Offset
}

// End is the offset behind the block.
func (f Frame) End() int64 { return f.Offset + f.Size }

// maxFrameHead is how many bytes a block's two leading varints take at most.
const maxFrameHead = 2 * binary.MaxVarintLen64

// NextFrame finds the block that begins at offset in a file of that size, without reading its entries: it reads the two counts in
// front and the marker behind. io.EOF means that the file ends there, ErrTorn that it ends inside the block, ErrDamaged that what
// stands there is no block; where only the marker is wrong, the frame says where the block would have ended.
func (h *Header) NextFrame(r io.ReaderAt, offset, size int64) (Frame, error) {
	if offset == size {
		return Frame{}, io.EOF
	}
	var head [maxFrameHead]byte
	n, err := r.ReadAt(head[:min(maxFrameHead, size-offset)], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return Frame{}, err
	}
	d := NewDecoder(head[:n])
	count, body := d.Long(), d.Long()
	if d.Err() != nil {
		if n < maxFrameHead {
			return Frame{}, ErrTorn
		}
		return Frame{}, ErrDamaged
	}
	if count < 0 || body < 0 || body > maxBlock {
		return Frame{}, ErrDamaged
	}
	f := Frame{Offset: offset, Size: int64(d.Offset()) + body + syncSize, Count: count, body: int64(d.Offset())}
	if f.End() > size {
		return Frame{}, ErrTorn
	}
	var mark [syncSize]byte
	if _, err := r.ReadAt(mark[:], f.End()-syncSize); err != nil {
		return Frame{}, err
	}
	if mark != h.Sync {
		return f, ErrDamaged
	}
	return f, nil
}

// ReadBlock reads and decompresses the entries of a block into dst.
func (h *Header) ReadBlock(r io.ReaderAt, f Frame, dst, scratch []byte) (entries, again []byte, err error) {
	n := int(f.Size - f.body - syncSize)
	scratch = slices.Grow(scratch[:0], n)[:n]
	if _, err := r.ReadAt(scratch, f.Offset+f.body); err != nil {
		return dst, scratch, err
	}
	entries, err = h.Codec.Decompress(dst[:0], scratch, maxBlock)
	if err != nil {
		return dst, scratch, fmt.Errorf("%w: the block at byte %d: %v", ErrDamaged, f.Offset, err)
	}
	return entries, scratch, nil
}

// FindFrame searches behind the bad block at offset for one that valid accepts: where the bad one says that it ends, and behind
// every sync marker. It is how damage is told from a torn end: after a torn write nothing valid follows.
func (h *Header) FindFrame(r io.ReaderAt, offset, size int64, valid func(Frame) bool) (Frame, bool, error) {
	if bad, _ := h.NextFrame(r, offset, size); bad.Size > 0 {
		if f, err := h.NextFrame(r, bad.End(), size); err == nil && valid(f) {
			return f, true, nil
		}
	}
	const window = 1 << 20
	buf := make([]byte, window+syncSize)
	for at := offset; at < size; at += window {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return Frame{}, false, err
		}
		for i := 0; ; {
			j := bytes.Index(buf[i:n], h.Sync[:])
			if j < 0 {
				break
			}
			i += j + syncSize
			f, err := h.NextFrame(r, at+int64(i), size)
			if err == nil && valid(f) {
				return f, true, nil
			}
		}
	}
	return Frame{}, false, nil
}
