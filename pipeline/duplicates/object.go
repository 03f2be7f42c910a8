package duplicates

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/store"
)

// seal makes a container with one block.
func (pt *part) seal(b block, k kind) ([]byte, avrofile.Header, error) {
	c, err := avrofile.NewCodec(codec)
	if err != nil {
		return nil, avrofile.Header{}, err
	}
	var sync [16]byte
	rand.Read(sync[:])
	body, h := appendHeader(nil, pt.w.meta(pt.p, b.first, k), c, sync)
	body, err = appendBlock(body, &h, b)
	return body, h, err
}

func appendBlock(dst []byte, h *avrofile.Header, b block) ([]byte, error) {
	packed, err := h.Codec.Compress(nil, b.entries)
	if err != nil {
		return nil, fmt.Errorf("compressing a block: %w", err)
	}
	return h.AppendBlock(dst, b.count, packed), nil
}

// create stores a block as an object of its own. Only the process that stored a batch in raw screens it, so a name that is taken by
// something else is left over: from a chain that an operator has taken away, or from an attempt that failed for the caller and landed.
// Neither may keep what is dropped now from being named, so the next free name beside it is taken.
func (pt *part) create(ctx context.Context, b block, k kind) error {
	body, _, err := pt.seal(b, k)
	if err != nil {
		return err
	}
	for n := range sameName {
		stored, err := pt.once(ctx, pt.folder.key(b.first, n), body)
		if err != nil {
			return err
		}
		if bytes.Equal(stored, body) {
			return nil
		}
	}
	return fmt.Errorf("all %d names for the first offset %d are taken", sameName, b.first)
}

// attempts is how often a write whose reply was lost and that has not landed is made before the caller hears of it.
const attempts = 3

// once makes sure that something is stored under key and returns it. A lost attempt that is not there is made again: should both land,
// one of them wins, and they are the same.
func (pt *part) once(ctx context.Context, key string, body []byte) (stored []byte, err error) {
	for range attempts {
		stored, _, err = chain.Once(ctx, pt.w.opt.Bucket, key, body)
		if err == nil || !errors.Is(err, store.ErrUnknown) || !errors.Is(err, store.ErrNotFound) {
			break
		}
	}
	return stored, err
}
