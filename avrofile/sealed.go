package avrofile

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"strconv"
)

// Block is entries of a container that is written whole, encoded but not compressed.
type Block struct {
	Count   int // entries
	Entries []byte
}

// The metadata that Seal adds: how many entries there are, and a CRC-32C over the encoded entries of all blocks in order, eight hex
// digits. Most codecs have no checksum of their own, and what decompresses need not be what was written.
const (
	metaCount = "twgd.count"
	metaSum   = "twgd.crc32c"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errSeal = errors.New("its entries do not match the count and the checksum in its header")

// Seal makes a whole container of the blocks. Unseal notices whatever happens to its entries. Two calls make different bytes, since
// the marker between blocks is random.
func Seal(schema string, codec Codec, meta map[string]string, blocks ...Block) ([]byte, error) {
	count, sum := 0, uint32(0)
	for _, b := range blocks {
		count += b.Count
		sum = crc32.Update(sum, castagnoli, b.Entries)
	}
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]string{}
	}
	meta[metaCount] = strconv.Itoa(count)
	meta[metaSum] = fmt.Sprintf("%08x", sum)
	var h Header
	rand.Read(h.Sync[:])
	out := AppendHeader(nil, schema, codec, meta, h.Sync)
	for _, b := range blocks {
		packed, err := codec.Compress(nil, b.Entries)
		if err != nil {
			return nil, fmt.Errorf("compressing a block: %w", err)
		}
		out = h.AppendBlock(out, b.Count, packed)
	}
	return out, nil
}

// Unseal reads the metadata and the blocks of a container that Seal made. Whatever is not as it was written is ErrDamaged.
func Unseal(body []byte) (meta map[string]string, blocks []Block, err error) {
	h, err := ParseHeader(body)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: its header: %v", ErrDamaged, err)
	}
	count, sum := int64(0), uint32(0)
	r := bytes.NewReader(body)
	for at := h.Size; ; {
		f, err := h.NextFrame(r, at, int64(len(body)))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w: the block at byte %d: %v", ErrDamaged, at, err)
		}
		entries, _, err := h.ReadBlock(r, f, nil, nil)
		if err != nil {
			return nil, nil, err
		}
		if f.Count > int64(len(entries)) {
			return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, errSeal)
		}
		blocks = append(blocks, Block{int(f.Count), entries})
		count += f.Count
		sum = crc32.Update(sum, castagnoli, entries)
		at = f.End()
	}
	if h.Meta[metaCount] != strconv.FormatInt(count, 10) || h.Meta[metaSum] != fmt.Sprintf("%08x", sum) {
		return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, errSeal)
	}
	return h.Meta, blocks, nil
}
