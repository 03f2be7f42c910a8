package raw

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// suffix of segments.
const suffix = ".avro"

// headerPeek is more than any header takes: the schema, and metadata whose longest parts are names of at most 249 bytes.
const headerPeek = 8 << 10

// objects is the layout of object storage: one object a commit. Everything that the chain's rule asks for stands in the
// object's header, so that finding the end of a chain reads no data.
type objects struct {
	bucket store.Bucket
	codec  avrofile.Codec
	stream string
}

func (o *objects) log(dir string) *chain.Log {
	return &chain.Log{Bucket: o.bucket, Dir: dir, Suffix: suffix, Peek: headerPeek, Parse: parseLink}
}

func parseLink(first int64, begin []byte) (chain.Link, error) {
	h, err := avrofile.ParseHeader(begin)
	if err != nil {
		return chain.Link{}, err
	}
	l := chain.Link{First: first}
	if l.First, err = strconv.ParseInt(h.Meta["twgd.first"], 10, 64); err == nil {
		l.Next, err = strconv.ParseInt(h.Meta["twgd.next"], 10, 64)
	}
	if n, herr := hex.Decode(l.Nonce[:], []byte(h.Meta["twgd.nonce"])); err != nil || herr != nil || n != len(l.Nonce) {
		return chain.Link{}, fmt.Errorf("%w: its header lacks first, next or nonce", avrofile.ErrDamaged)
	}
	return l, nil
}

// meta is what every header carries.
func meta(stream string, p record.Partition, first int64, nonce chain.Nonce) map[string]string {
	return map[string]string{
		"twgd.version": "1", "twgd.stream": stream, "twgd.cluster": p.Cluster, "twgd.topic": p.Topic,
		"twgd.topic_id": hex.EncodeToString(p.TopicID[:]), "twgd.partition": strconv.Itoa(int(p.Number)),
		"twgd.generation": strconv.Itoa(int(p.Generation)), "twgd.first": strconv.FormatInt(first, 10),
		"twgd.nonce": hex.EncodeToString(nonce[:]),
	}
}

func (o *objects) open(ctx context.Context, c chainID) (writer, sinks.Head, error) {
	head, err := o.head(ctx, c)
	if err != nil {
		return nil, head, err
	}
	return &objectWriter{o: o, c: c, log: o.log(c.dir), rule: chain.NewWriter(head.Next)}, head, nil
}

func (o *objects) head(ctx context.Context, c chainID) (sinks.Head, error) {
	head := sinks.Head{Genesis: c.genesis, Last: c.genesis, Next: c.genesis, LeaderEpoch: -1}
	first, found, err := o.log(c.dir).Last(ctx, c.genesis)
	if err != nil || !found {
		return head, err
	}
	b, err := o.bucket.ReadRange(ctx, o.log(c.dir).Key(first), 0, headerPeek)
	if err != nil {
		return head, err
	}
	link, err := parseLink(first, b)
	if err != nil {
		return head, fmt.Errorf("segment %d of %v: %w", first, c.partition, err)
	}
	h, _ := avrofile.ParseHeader(b)
	epoch, _ := strconv.ParseInt(h.Meta["twgd.leader_epoch"], 10, 32)
	head.Last, head.Next, head.LeaderEpoch = first, link.Next, int32(epoch)
	return head, nil
}

// objectWriter extends a chain by objects.
type objectWriter struct {
	o    *objects
	c    chainID
	log  *chain.Log
	rule *chain.Writer
}

func (w *objectWriter) commit(ctx context.Context, b block) (chain.Link, bool, int64, error) {
	var size int64
	link, ours, err := w.log.Commit(ctx, w.rule, b.next, func(l chain.Link) ([]byte, error) {
		body := w.o.object(w.c, b, l)
		size = int64(len(body))
		return body, nil
	})
	return link, ours, size, err
}

func (w *objectWriter) close() error { return nil }

// object lays out a commit as an object of its own. The nonce of the attempt serves as the container's sync marker, which has to
// be random and differ from file to file.
func (o *objects) object(c chainID, b block, l chain.Link) []byte {
	m := meta(o.stream, c.partition, l.First, l.Nonce)
	m["twgd.next"] = strconv.FormatInt(l.Next, 10)
	m["twgd.leader_epoch"] = strconv.Itoa(int(b.epoch))
	m["twgd.written"] = b.written.UTC().Format(time.RFC3339Nano)
	h := avrofile.Header{Codec: o.codec, Sync: l.Nonce}
	out := avrofile.AppendHeader((*b.out)[:0], schema, o.codec, m, h.Sync)
	out = h.AppendBlock(out, b.count, b.packed)
	*b.out = out
	return out
}

func (o *objects) read(ctx context.Context, c chainID, s checkpoint.Span, f func(commit) error) error {
	log := o.log(c.dir)
	first, found, err := log.Before(ctx, c.genesis, max(s.From, c.genesis))
	if err != nil || !found {
		return err
	}
	for first < s.To {
		got, err := o.segment(ctx, log, first)
		if errors.Is(err, store.ErrNotFound) {
			return nil
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

// segment reads and checks one whole object.
func (o *objects) segment(ctx context.Context, log *chain.Log, first int64) (commit, error) {
	key := log.Key(first)
	b, err := o.bucket.Read(ctx, key)
	if err != nil {
		return commit{}, fmt.Errorf("reading segment %s: %w", key, err)
	}
	got, err := parseSegment(b)
	if err != nil {
		return commit{}, fmt.Errorf("segment %s: %w", key, err)
	}
	if got.first != first {
		return commit{}, fmt.Errorf("%w: segment %s holds [%d, %d)", avrofile.ErrDamaged, key, got.first, got.next)
	}
	return got, nil
}

// parseSegment reads an object that holds one block.
func parseSegment(b []byte) (commit, error) {
	h, err := avrofile.ParseHeader(b)
	if err != nil {
		return commit{}, fmt.Errorf("%w (its header)", err)
	}
	r := bytes.NewReader(b)
	f, err := h.NextFrame(r, h.Size, int64(len(b)))
	if err != nil {
		return commit{}, fmt.Errorf("%w: no whole block behind the header", avrofile.ErrDamaged)
	}
	if f.End() != int64(len(b)) {
		return commit{}, fmt.Errorf("%w: %d bytes follow its block", avrofile.ErrDamaged, int64(len(b))-f.End())
	}
	entries, _, err := h.ReadBlock(r, f, nil, nil)
	if err != nil {
		return commit{}, err
	}
	got, err := parseCommit(entries, f.Count)
	if err != nil {
		return commit{}, fmt.Errorf("%w: %v", avrofile.ErrDamaged, err)
	}
	return got, nil
}
