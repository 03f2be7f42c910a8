package avrofile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// Codecs lists the names that a container may carry, as the Avro specification spells them.
var Codecs = []string{"zstandard", "snappy", "deflate", "null"}

// Codec compresses the entries of a block. Methods are safe for concurrent use; dst is appended to, and may be nil.
type Codec interface {
	Name() string
	Compress(dst, src []byte) ([]byte, error)
	// Decompress refuses output of more than limit bytes, and allocates no more than src can decompress to, so that damage cannot
	// ask for all memory.
	Decompress(dst, src []byte, limit int64) ([]byte, error)
}

var errTooLarge = errors.New("a block expands beyond its limit")

// NewCodec is the codec of that name; "zstd" is accepted for "zstandard".
func NewCodec(name string) (Codec, error) {
	switch name {
	case "zstandard", "zstd":
		return zstdCodec{}, nil
	case "snappy":
		return snappyCodec{}, nil
	case "deflate":
		return deflateCodec{}, nil
	case "null", "":
		return nullCodec{}, nil
	}
	return nil, fmt.Errorf("avro codec %q is not known: %v", name, Codecs)
}

// The zstd encoder and decoder are shared by all files of the process: each holds a window for every block it works on at once,
// not for every file. The frame's own checksum is on, so that other readers notice a flipped bit too.
var (
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true), zstd.WithWindowSize(1<<20))
		if err != nil {
			panic(err)
		}
		return e
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxBlock))
		if err != nil {
			panic(err)
		}
		return d
	})
)

type zstdCodec struct{}

func (zstdCodec) Name() string { return "zstandard" }

func (zstdCodec) Compress(dst, src []byte) ([]byte, error) {
	return zstdEncoder().EncodeAll(src, dst), nil
}

func (zstdCodec) Decompress(dst, src []byte, limit int64) ([]byte, error) {
	if len(src) == 0 { // what the encoder makes of nothing
		return dst, nil
	}
	if err := checkZstd(src, limit); err != nil {
		return nil, err
	}
	out, err := zstdDecoder().DecodeAll(src, dst)
	if err == nil && int64(len(out)-len(dst)) > limit {
		err = errTooLarge
	}
	return out, err
}

// maxZstdBlock is the most that one block of a zstd frame decompresses to.
const maxZstdBlock = 128 << 10

var errZstd = errors.New("a zstd frame is not whole")

// checkZstd walks over the blocks of a frame and compares what they can hold at most with the size that the frame claims, since
// the decoder allocates what is claimed. The frame must be all of src.
func checkZstd(src []byte, limit int64) error {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return err
	}
	if h.Skippable || h.DictionaryID != 0 {
		return errors.New("a zstd frame is of a kind that no writer of Avro makes")
	}
	b, most := src[h.HeaderSize:], uint64(0)
	for last := false; !last; {
		if len(b) < 3 {
			return errZstd
		}
		head := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		size, skip := uint64(head>>3), uint64(head>>3)
		switch last = head&1 == 1; head >> 1 & 3 {
		case 1: // one byte, repeated
			skip = 1
		case 2: // compressed
			size = maxZstdBlock
		case 3:
			return errZstd
		}
		if b = b[3:]; uint64(len(b)) < skip {
			return errZstd
		}
		b, most = b[skip:], most+size
	}
	sum := 0
	if h.HasCheckSum {
		sum = 4
	}
	switch {
	case len(b) != sum:
		return errZstd
	case h.HasFCS && h.FrameContentSize > most:
		return errors.New("a zstd frame claims more than its blocks can hold")
	case h.HasFCS && h.FrameContentSize > uint64(limit):
		return errTooLarge
	}
	return nil
}

type snappyCodec struct{}

func (snappyCodec) Name() string { return "snappy" }

func (snappyCodec) Compress(dst, src []byte) ([]byte, error) {
	most := snappy.MaxEncodedLen(len(src))
	if most < 0 {
		return nil, errTooLarge
	}
	dst = slices.Grow(dst, most+4)
	out := snappy.Encode(dst[len(dst):len(dst)+most], src)
	return binary.BigEndian.AppendUint32(dst[:len(dst)+len(out)], crc32.ChecksumIEEE(src)), nil
}

// snappyRatio is more than snappy can shrink anything: 64 bytes to 3.
const snappyRatio = 22

func (snappyCodec) Decompress(dst, src []byte, limit int64) ([]byte, error) {
	if len(src) < 4 {
		return nil, errors.New("a snappy block is shorter than its checksum")
	}
	body, sum := src[:len(src)-4], binary.BigEndian.Uint32(src[len(src)-4:])
	n, err := snappy.DecodedLen(body)
	if err != nil {
		return nil, err
	}
	if int64(n) > limit {
		return nil, errTooLarge
	}
	if int64(n) > snappyRatio*int64(len(body)) {
		return nil, errors.New("a snappy block claims more than it can hold")
	}
	dst = slices.Grow(dst, n)
	out, err := snappy.Decode(dst[len(dst):len(dst)+n], body)
	if err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(out) != sum {
		return nil, errors.New("the checksum of a snappy block does not match")
	}
	return dst[:len(dst)+len(out)], nil
}

type deflateCodec struct{}

var flateWriters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err)
	}
	return w
}}

func (deflateCodec) Name() string { return "deflate" }

func (deflateCodec) Compress(dst, src []byte) ([]byte, error) {
	w := flateWriters.Get().(*flate.Writer)
	defer flateWriters.Put(w)
	out := appender{dst}
	w.Reset(&out)
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	return out.b, w.Close()
}

func (deflateCodec) Decompress(dst, src []byte, limit int64) ([]byte, error) {
	r := flate.NewReader(&byteReader{b: src})
	defer r.Close()
	return readLimited(dst, r, limit)
}

type nullCodec struct{}

func (nullCodec) Name() string { return "null" }

func (nullCodec) Compress(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }

func (nullCodec) Decompress(dst, src []byte, limit int64) ([]byte, error) {
	if int64(len(src)) > limit {
		return nil, errTooLarge
	}
	return append(dst, src...), nil
}
