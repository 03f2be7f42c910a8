package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxBatchBytes bounds what one batch may decompress to. Kafka bounds the compressed size of a batch only (1 MiB by default),
// and a megabyte can hold gigabytes of zeros.
const maxBatchBytes = 512 << 20

var errTooLarge = fmt.Errorf("the batch decompresses to more than %d MiB", maxBatchBytes>>20)

// Codecs, as the attributes of a batch number them.
const (
	codecNone int8 = iota
	codecGzip
	codecSnappy
	codecLZ4
	codecZstd
)

// inflater decompresses batches. Its memory is that of its decoders, which are made once. Not for concurrent use.
type inflater struct {
	zstd *zstd.Decoder
	gzip *gzip.Reader
	lz4  *lz4.Reader
	src  bytes.Reader
}

// inflate appends the decompressed body to dst.
func (f *inflater) inflate(dst, body []byte, codec int8) ([]byte, error) {
	switch codec {
	case codecGzip:
		return f.inflateGzip(dst, body)
	case codecSnappy:
		return inflateSnappy(dst, body)
	case codecLZ4:
		return f.inflateLZ4(dst, body)
	case codecZstd:
		return f.inflateZstd(dst, body)
	}
	return nil, fmt.Errorf("compression %d is not known", codec)
}

func (f *inflater) inflateZstd(dst, body []byte) ([]byte, error) {
	if f.zstd == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxBatchBytes))
		if err != nil {
			return nil, err
		}
		f.zstd = d
	}
	out, err := f.zstd.DecodeAll(body, dst)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, errTooLarge
	}
	return out, err
}

func (f *inflater) inflateGzip(dst, body []byte) (_ []byte, err error) {
	f.src.Reset(body)
	if f.gzip == nil {
		f.gzip, err = gzip.NewReader(&f.src)
	} else {
		err = f.gzip.Reset(&f.src)
	}
	if err != nil {
		return nil, err
	}
	return readAll(dst, f.gzip)
}

func (f *inflater) inflateLZ4(dst, body []byte) ([]byte, error) {
	f.src.Reset(body)
	if f.lz4 == nil {
		f.lz4 = lz4.NewReader(&f.src)
	} else {
		f.lz4.Reset(&f.src)
	}
	return readAll(dst, f.lz4)
}

// readAll appends what r has to dst, up to the bound.
func readAll(dst []byte, r io.Reader) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > maxBatchBytes:
			return nil, errTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return nil, err
		}
	}
}

// xerial is how the Java snappy library begins a stream of blocks, which Kafka's Java clients send in place of one block.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16 // the magic and two versions

func inflateSnappy(dst, body []byte) (_ []byte, err error) {
	if len(body) < xerialHeader || !bytes.HasPrefix(body, xerial) {
		return inflateBlock(dst, body)
	}
	for body = body[xerialHeader:]; len(body) > 0; {
		if len(body) < 4 {
			return nil, errShort
		}
		n := int(int32(binary.BigEndian.Uint32(body)))
		if n < 0 || n > len(body)-4 {
			return nil, errShort
		}
		if dst, err = inflateBlock(dst, body[4:4+n]); err != nil {
			return nil, err
		}
		body = body[4+n:]
	}
	return dst, nil
}

func inflateBlock(dst, block []byte) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	at := len(dst)
	if at+n > maxBatchBytes {
		return nil, errTooLarge
	}
	dst = append(dst, make([]byte, n)...)
	if _, err := s2.Decode(dst[at:], block); err != nil {
		return nil, err
	}
	return dst, nil
}

// buffers keeps what was decompressed into for the next batch. One that is much larger than usual is left to the collector.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keepBuffer = 8 << 20

func putBuffer(b *[]byte) {
	if cap(*b) <= keepBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}
