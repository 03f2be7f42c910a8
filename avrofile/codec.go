package avrofile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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
	// Decompress refuses output of more than limit bytes, so that damage cannot ask for all memory.
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
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlock))
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
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return nil, err
	}
	if h.HasFCS && h.FrameContentSize > uint64(limit) {
		return nil, errTooLarge
	}
	out, err := zstdDecoder().DecodeAll(src, dst)
	if err == nil && int64(len(out)-len(dst)) > limit {
		err = errTooLarge
	}
	return out, err
}

type snappyCodec struct{}

func (snappyCodec) Name() string { return "snappy" }

func (snappyCodec) Compress(dst, src []byte) ([]byte, error) {
	dst = append(dst, snappy.Encode(nil, src)...)
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(src)), nil
}

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
	out, err := snappy.Decode(nil, body)
	if err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(out) != sum {
		return nil, errors.New("the checksum of a snappy block does not match")
	}
	return append(dst, out...), nil
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
