package duplicates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// folder is where the notes of one partition lie. A name is the first offset that stands under it; where a name was taken by something
// else already, -1, -2 … are put behind it. What stands under a name ends in front of the next name, but for an aside, behind which the
// file in front of it goes on.
type folder struct {
	bucket store.Bucket
	stream string
	dir    string // without a slash at its end
}

func newFolder(bucket store.Bucket, stream string, p record.Partition) folder {
	return folder{bucket, stream, root(stream) + p.Path()}
}

// object is one name.
type object struct {
	first int64
	key   string
	size  int64
}

// sameName bounds how many of one first offset there may be.
const sameName = 16

func (f folder) key(first int64, n int) string {
	name := f.dir + "/" + record.OffsetName(first)
	if n > 0 {
		name += "-" + strconv.Itoa(n)
	}
	return name + suffix
}

func (f folder) parseName(key string) (first int64, ok bool) {
	name, ok := strings.CutSuffix(strings.TrimPrefix(key, f.dir+"/"), suffix)
	if !ok {
		return 0, false
	}
	digits, n, more := strings.Cut(name, "-")
	if i, err := strconv.Atoi(n); more && (err != nil || i < 1 || i >= sameName) {
		return 0, false
	}
	first, err := record.ParseOffset(digits)
	return first, err == nil
}

const page = 1000

// names calls each for the names in [from, to), ascending, which it lists page by page.
func (f folder) names(ctx context.Context, from, to int64, each func(object) error) error {
	for after := f.dir + "/" + record.OffsetName(from); ; {
		entries, err := f.bucket.List(ctx, f.dir+"/", after, page)
		if err != nil {
			return fmt.Errorf("listing notes of duplicates: %w", err)
		}
		for _, e := range entries {
			after = e.Key
			first, ok := f.parseName(e.Key)
			if ok && first >= to {
				return nil
			}
			if !ok {
				continue
			}
			if err := each(object{first, e.Key, e.Size}); err != nil {
				return err
			}
		}
		if len(entries) < page {
			return nil
		}
	}
}

func (f folder) log() *chain.Log {
	return &chain.Log{Bucket: f.bucket, Dir: f.dir, Suffix: suffix}
}

// before is the greatest first offset up to at.
func (f folder) before(ctx context.Context, at int64) (first int64, found bool, err error) {
	return f.log().Before(ctx, 0, at)
}

// content is what stands under one name.
type content struct {
	head
	entries []entry
}

// read reads one object. Beside an error for which errors.Is finds avrofile.ErrDamaged it returns what of it is whole. The torn end of a
// file is no error: it was never acknowledged. An object that is gone since it was listed holds nothing.
func (f folder) read(ctx context.Context, o object) (content, error) {
	body, err := f.bucket.Read(ctx, o.key)
	if errors.Is(err, store.ErrNotFound) {
		return content{}, nil
	}
	if err != nil {
		return content{}, fmt.Errorf("reading notes of duplicates: %w", err)
	}
	c, err := parse(body, f.stream, o.first)
	if err != nil {
		return c, fmt.Errorf("notes of duplicates: %s: %w", o.key, err)
	}
	return c, nil
}

func damaged(err error) bool { return errors.Is(err, avrofile.ErrDamaged) }

// parse reads a container that is named first.
func parse(body []byte, stream string, first int64) (content, error) {
	h, head, err := parseHeader(body, stream, first)
	c := content{head: head}
	if err != nil {
		return c, err
	}
	r, size, blocks := bytes.NewReader(body), int64(len(body)), 0
	for at := h.Size; ; blocks++ {
		f, entries, err := readBlock(&h, r, at, size, first)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c, c.broken(&h, r, at, size, first, err)
		}
		c.entries = append(c.entries, entries...)
		at = f.End()
	}
	if blocks == 0 || c.kind != kindFile && blocks != 1 {
		return c, fmt.Errorf("%w: it has %d blocks", avrofile.ErrDamaged, blocks)
	}
	return c, nil
}

// broken judges bytes that are no block, and takes what is valid behind them. The end of a file that no valid block follows was never
// acknowledged, as far as anybody can tell.
func (c *content) broken(h *avrofile.Header, r *bytes.Reader, at, size, first int64, cause error) error {
	begin, found := at, false
	for {
		var entries []entry
		f, ok, err := h.FindFrame(r, at, size, func(f avrofile.Frame) bool {
			_, e, err := readBlock(h, r, f.Offset, size, first)
			entries = e
			return err == nil
		})
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		found, at = true, f.End()
		c.entries = append(c.entries, entries...)
	}
	if !found && c.kind == kindFile && len(c.entries) > 0 {
		return nil
	}
	return fmt.Errorf("%w: the block at byte %d: %v", avrofile.ErrDamaged, begin, cause)
}

func readBlock(h *avrofile.Header, r *bytes.Reader, at, size, first int64) (avrofile.Frame, []entry, error) {
	f, err := h.NextFrame(r, at, size)
	if err != nil {
		return f, nil, err
	}
	b, _, err := h.ReadBlock(r, f, nil, nil)
	if err != nil {
		return f, nil, err
	}
	entries, err := parseBlock(b, f.Count, first)
	return f, entries, err
}

const maxOffset = 1<<63 - 1
