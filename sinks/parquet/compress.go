package parquet

import (
	"fmt"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// encoderPool compresses pages by zstd, each page a frame with its checksum: DuckDB and pyarrow check it and so find a flipped
// byte, which they do not with a page's own CRC. For use by several goroutines at once.
type encoderPool struct{ *zstd.Encoder }

func newEncoderPool() (*encoderPool, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, fmt.Errorf("make the zstd encoder: %w", err)
	}
	return &encoderPool{e}, nil
}

// compress appends src to dst as the layout's codec has it. It is not called where the codec is none.
func (l *layout) compress(dst, src []byte) []byte {
	if l.zstd != nil {
		return l.zstd.EncodeAll(src, dst)
	}
	if n := snappy.MaxEncodedLen(len(src)); cap(dst) < n {
		dst = make([]byte, n)
	}
	return snappy.Encode(dst[:cap(dst)], src)
}
