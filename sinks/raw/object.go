package raw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// suffix of segments.
const suffix = ".avro"

// objects is the layout of object storage and of shared directories: one object a commit. Everything that the chain's rule asks for stands in the
// object's header, so that finding the end of a chain reads no data.
type objects struct {
	bucket store.Bucket
	codec  avrofile.Codec
	stream string
}

// log is the chain of c. See, if not nil, is told what a header says that was read.
func (o *objects) log(c chainID, see *stored) *chain.Log {
	return &chain.Log{Bucket: o.bucket, Dir: c.dir, Suffix: suffix, Peek: headerPeek,
		Parse: func(first int64, begin []byte) (chain.Link, error) {
			s, err := o.parseBegin(c, first, begin)
			if see != nil {
				*see = s
			}
			return s.Link, err
		}}
}

func (o *objects) parseBegin(c chainID, first int64, begin []byte) (stored, error) {
	h, err := parseHeader(begin, o.stream, c, first)
	if err != nil {
		return stored{}, err
	}
	return parseStored(&h, first)
}

func (o *objects) open(ctx context.Context, c chainID) (writer, sinks.Head, error) {
	head, err := o.head(ctx, c)
	if err != nil {
		return nil, head, err
	}
	w := &objectWriter{o: o, c: c, rule: chain.NewWriter(head.Next)}
	w.log = o.log(c, &w.seen)
	return w, head, nil
}

func (o *objects) head(ctx context.Context, c chainID) (sinks.Head, error) {
	var s stored
	head := sinks.Head{Genesis: c.genesis, Last: c.genesis, Next: c.genesis, LeaderEpoch: -1}
	log := o.log(c, &s)
	first, found, err := log.Last(ctx, c.genesis)
	if err != nil || !found {
		return head, err
	}
	if link, err := log.Link(ctx, first); err != nil || link == nil {
		return head, errors.Join(fmt.Errorf("reading the last segment of %v", c.partition), err)
	}
	head.Last, head.Next, head.LeaderEpoch = first, s.Next, s.epoch
	return head, nil
}

// objectWriter extends a chain by objects.
type objectWriter struct {
	o    *objects
	c    chainID
	log  *chain.Log
	rule *chain.Writer
	seen stored // what was read last of what is stored
}

func (w *objectWriter) commit(ctx context.Context, b block) (stored, error) {
	var made chain.Link
	var size int64
	link, ours, err := w.log.Commit(ctx, w.rule, b.next, func(l chain.Link) ([]byte, error) {
		body, err := w.o.object(w.c, b, l)
		made, size = l, int64(len(body))
		return body, err
	})
	if err != nil {
		return stored{}, err
	}
	if link == made {
		return stored{link, true, b.epoch, b.written, size}, nil
	}
	w.seen.ours = ours
	return w.seen, nil
}

func (w *objectWriter) close() error { return nil }

// object lays out a commit as an object of its own.
func (o *objects) object(c chainID, b block, l chain.Link) ([]byte, error) {
	m := meta(o.stream, c.partition, l.First, l.Nonce)
	m["twgd.next"] = strconv.FormatInt(l.Next, 10)
	m["twgd.leader_epoch"] = strconv.Itoa(int(b.epoch))
	m["twgd.written"] = b.written.UTC().Format(time.RFC3339Nano)
	if err := b.pack(o.codec); err != nil {
		return nil, err
	}
	out, h, err := appendHeader(b.buf.out[:0], o.codec, m, l.Nonce)
	if err != nil {
		return nil, err
	}
	b.buf.out = h.AppendBlock(out, b.count, b.buf.packed)
	return b.buf.out, nil
}

func (o *objects) read(ctx context.Context, c chainID, s checkpoint.Span, f func(commit) error) error {
	log := o.log(c, nil)
	first, found, err := log.Before(ctx, c.genesis, max(s.From, c.genesis))
	if err != nil {
		return err
	}
	if !found {
		return o.checkEnd(ctx, log, c.genesis)
	}
	for first < s.To {
		got, err := o.segment(ctx, log, c, first)
		if errors.Is(err, store.ErrNotFound) {
			return o.checkEnd(ctx, log, first)
		}
		if err != nil {
			return err
		}
		if got.next > s.From {
			if err := f(got); err != nil {
				return err
			}
		}
		first = got.next
	}
	return nil
}

// checkEnd makes sure that a chain ends where no segment begins: one behind it would mean that a segment was taken away.
func (o *objects) checkEnd(ctx context.Context, log *chain.Log, at int64) error {
	names, err := log.Names(ctx, at, 1<<63-1, 1)
	switch {
	case err != nil:
		return err
	case len(names) > 0 && names[0] == at: // it has come since
		return nil
	case len(names) > 0:
		return fmt.Errorf("%w: segment %s is missing, and the next one is %s", avrofile.ErrDamaged, log.Key(at), log.Key(names[0]))
	}
	return nil
}

// segment reads and checks one whole object.
func (o *objects) segment(ctx context.Context, log *chain.Log, c chainID, first int64) (commit, error) {
	b, err := o.bucket.Read(ctx, log.Key(first))
	if err != nil {
		return commit{}, fmt.Errorf("reading segment %s: %w", log.Key(first), err)
	}
	got, err := o.parseSegment(b, c, first)
	if err != nil {
		return commit{}, fmt.Errorf("segment %s: %w", log.Key(first), err)
	}
	return got, nil
}

// parseSegment reads an object, which holds one block.
func (o *objects) parseSegment(b []byte, c chainID, first int64) (commit, error) {
	h, err := parseHeader(b, o.stream, c, first)
	if err != nil {
		return commit{}, err
	}
	said, err := parseStored(&h, first)
	if err != nil {
		return commit{}, err
	}
	r := bytes.NewReader(b)
	f, err := h.NextFrame(r, h.Size, int64(len(b)))
	if err != nil {
		return commit{}, fmt.Errorf("%w: no whole block behind the header, which ends at byte %d", avrofile.ErrDamaged, h.Size)
	}
	if f.End() != int64(len(b)) {
		return commit{}, fmt.Errorf("%w: %d bytes follow its block", avrofile.ErrDamaged, int64(len(b))-f.End())
	}
	got, err := readCommit(&h, r, f)
	if err == nil && (got.first != first || got.next != said.Next) {
		err = fmt.Errorf("%w: the header says [%d, %d), the block [%d, %d)", avrofile.ErrDamaged, first, said.Next, got.first, got.next)
	}
	return got, err
}

// readCommit reads one block and checks it. An error that is not of reading is an ErrDamaged.
func readCommit(h *avrofile.Header, r readerAt, f avrofile.Frame) (commit, error) {
	entries, _, err := h.ReadBlock(r, f, nil, nil)
	if err != nil {
		return commit{}, err
	}
	got, err := parseCommit(entries, f.Count)
	if err != nil {
		return commit{}, fmt.Errorf("%w: the block at byte %d: %v", avrofile.ErrDamaged, f.Offset, err)
	}
	return got, nil
}
