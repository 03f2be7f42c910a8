package avrofile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

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
	var buf [syncSize + maxFrameHead]byte
	n, err := readAt(r, buf[:min(maxFrameHead, size-offset)], offset)
	if err != nil {
		return Frame{}, err
	}
	f, err := parseFrame(buf[:n], offset, size)
	if err != nil {
		return Frame{}, err
	}
	_, err = h.checkEnd(r, f, buf[:syncSize])
	return f, err
}

// Walk calls each for the blocks from offset on, as NextFrame finds them, and returns where it stopped: at the end of the file
// without an error, else with that of NextFrame. It reads once a block: a marker and the counts behind it lie side by side.
func (h *Header) Walk(r io.ReaderAt, offset, size int64, each func(Frame)) (end int64, err error) {
	var buf [syncSize + maxFrameHead]byte
	n, err := readAt(r, buf[:min(maxFrameHead, size-offset)], offset)
	head := buf[:n]
	for err == nil && offset < size {
		var f Frame
		if f, err = parseFrame(head, offset, size); err == nil {
			head, err = h.checkEnd(r, f, buf[:min(int64(len(buf)), size-f.End()+syncSize)])
		}
		if err == nil {
			each(f)
			offset = f.End()
		}
	}
	return offset, err
}

// parseFrame reads the two counts in front of a block.
func parseFrame(head []byte, offset, size int64) (Frame, error) {
	d := Decoder{b: head}
	count, body := d.Long(), d.Long()
	if d.Err() != nil {
		if len(head) < maxFrameHead {
			return Frame{}, ErrTorn
		}
		return Frame{}, ErrDamaged
	}
	if count < 0 || body < 0 || body > MaxBlock {
		return Frame{}, ErrDamaged
	}
	f := Frame{Offset: offset, Size: int64(d.Offset()) + body + syncSize, Count: count, body: int64(d.Offset())}
	if f.End() > size {
		return Frame{}, ErrTorn
	}
	return f, nil
}

// checkEnd reads the marker of a block into buf and as much behind it as buf has room for, which it returns.
func (h *Header) checkEnd(r io.ReaderAt, f Frame, buf []byte) (behind []byte, err error) {
	n, err := readAt(r, buf, f.End()-syncSize)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(buf[:syncSize], h.Sync[:]) {
		return nil, ErrDamaged
	}
	return buf[syncSize:n], nil
}

// readAt is ReadAt for a range that lies within the file.
func readAt(r io.ReaderAt, p []byte, offset int64) (int, error) {
	n, err := r.ReadAt(p, offset)
	if n == len(p) {
		err = nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// ReadBlock reads and decompresses the entries of a block into dst. It allocates no more than the block's bytes can hold.
func (h *Header) ReadBlock(r io.ReaderAt, f Frame, dst, scratch []byte) (entries, again []byte, err error) {
	n := int(f.Size - f.body - syncSize)
	scratch = slices.Grow(scratch[:0], n)[:n]
	if _, err := readAt(r, scratch, f.Offset+f.body); err != nil {
		return dst, scratch, err
	}
	entries, err = h.Codec.Decompress(dst[:0], scratch, MaxBlock)
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
	for at := offset; ; {
		end, found, err := h.FindMarker(r, at, size)
		if err != nil || !found {
			return Frame{}, false, err
		}
		if f, err := h.NextFrame(r, end, size); err == nil && valid(f) {
			return f, true, nil
		}
		at = end
	}
}

// FindMarker searches for the first sync marker that lies at or behind offset, and returns where it ends.
func (h *Header) FindMarker(r io.ReaderAt, offset, size int64) (end int64, found bool, err error) {
	const window = 64 << 10
	buf := make([]byte, window+syncSize) // so much more that no marker is cut in two
	for at := offset; at < size; at += window {
		n, err := readAt(r, buf[:min(int64(len(buf)), size-at)], at)
		if err != nil {
			return 0, false, err
		}
		if i := bytes.Index(buf[:n], h.Sync[:]); i >= 0 {
			return at + int64(i) + syncSize, true, nil
		}
	}
	return 0, false, nil
}
