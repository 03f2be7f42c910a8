package parquet

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Footer is what a file says of itself. Rows is counted from its row groups.
type Footer struct {
	Stream    string
	Partition record.Partition
	Span      checkpoint.Span
	Rows      int64
}

func (f Footer) String() string {
	return fmt.Sprintf("stream %s, cluster %s, topic id %x, %v %v, %d rows", f.Stream, f.Partition.Cluster, f.Partition.TopicID, f.Partition, f.Span, f.Rows)
}

// reader reads one file through ranged reads.
type reader struct {
	source *ranges
	file   *file.Reader
	footer Footer
}

// openFile reads the footer of e, and holds it against the file's name and its own row groups. A file that is damaged is an
// error of kind Blocked.
func openFile(ctx context.Context, b ranger, e Entry) (r *reader, err error) {
	source := &ranges{ctx: ctx, bucket: b, key: e.Key, size: e.Size}
	defer damaged(e.Key, source, &err)
	f, err := file.NewParquetReader(io.NewSectionReader(source, 0, e.Size))
	if err != nil {
		return nil, fmt.Errorf("read the footer: %w", err)
	}
	r = &reader{source: source, file: f}
	if r.footer, err = parseFooter(f); err != nil {
		return nil, err
	}
	if r.footer.Span != e.Span {
		return nil, fmt.Errorf("the footer says %v", r.footer.Span)
	}
	return r, nil
}

// damaged turns an error or a panic of the decoder into a Blocked error, unless it was the store that failed.
func damaged(key string, source *ranges, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("decode: %v", p)
	}
	switch {
	case *err == nil:
	case source.err != nil:
		*err = source.err
	default:
		*err = &sinks.Error{Kind: sinks.Blocked, Reason: fmt.Sprintf("%s is damaged or not one of ours: %v", key, *err), Err: *err}
	}
}

// parseFooter reads the keys that describe wrote.
func parseFooter(f *file.Reader) (Footer, error) {
	p := parser{find: func(key string) string {
		if v := f.MetaData().KeyValueMetadata().FindValue(key); v != nil {
			return *v
		}
		return ""
	}}
	out := Footer{Stream: p.find(keyStream), Partition: record.Partition{Cluster: p.find(keyCluster), Topic: p.find(keyTopic),
		Number: int32(p.number(keyPartition)), Generation: int32(p.number(keyGeneration))},
		Span: checkpoint.Span{From: p.number(keyFirst), To: p.number(keyNext)}}
	if id, err := hex.DecodeString(p.find(keyTopicID)); err == nil && len(id) == len(out.Partition.TopicID) {
		copy(out.Partition.TopicID[:], id)
	} else {
		p.err = errors.Join(p.err, fmt.Errorf("the footer has no valid %s", keyTopicID))
	}
	if v := p.number(keyFormat); p.err == nil && v != formatVersion {
		p.err = fmt.Errorf("the file has the format %d, this program knows %d", v, formatVersion)
	}
	for i := range f.NumRowGroups() {
		out.Rows += f.MetaData().RowGroup(i).NumRows()
	}
	if rows := p.number(keyRows); p.err == nil && rows != out.Rows {
		p.err = fmt.Errorf("the footer says %d rows and its row groups have %d", rows, out.Rows)
	}
	return out, p.err
}

type parser struct {
	find func(key string) string
	err  error
}

func (p *parser) number(key string) int64 {
	n, err := strconv.ParseInt(p.find(key), 10, 64)
	if err != nil {
		p.err = errors.Join(p.err, fmt.Errorf("the footer has no valid %s", key))
	}
	return n
}

// ranges reads an object as arrow-go wants to read a file. The end of the object, where the footer is, is read once.
type ranges struct {
	ctx    context.Context
	bucket ranger
	key    string
	size   int64
	tail   []byte
	err    error // of the store
}

// tailSize is what is read first: enough for the footer of a file of some dozen row groups.
const tailSize = 64 << 10

func (r *ranges) ReadAt(p []byte, off int64) (int, error) {
	start := max(0, r.size-tailSize)
	if off >= start && r.tail == nil {
		if r.tail, r.err = r.bucket.ReadRange(r.ctx, r.key, start, -1); r.err != nil {
			return 0, r.err
		}
	}
	data := []byte(nil)
	if off >= start {
		data = r.tail[min(off-start, int64(len(r.tail))):]
	} else if data, r.err = r.bucket.ReadRange(r.ctx, r.key, off, int64(len(p))); r.err != nil {
		return 0, r.err
	}
	n := copy(p, data)
	if n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

// offsets reads the offset column.
func (r *reader) offsets() (out []int64, err error) {
	defer damaged(r.source.key, r.source, &err)
	for i := range r.file.NumRowGroups() {
		rows, err := readGroup(r.file.RowGroup(i), colOffset)
		if err != nil {
			return nil, fmt.Errorf("read the offsets: %w", err)
		}
		out = append(out, rows.offsets...)
	}
	return out, nil
}

// ReadFile calls f with every row of a file in order. What f is given is its own to keep.
func (s *Sink) ReadFile(ctx context.Context, e Entry, f func(record.ID, *record.Record) error) (Footer, error) {
	r, err := openFile(ctx, s.options.Bucket, e)
	if err != nil {
		return Footer{}, classify("read "+e.Key, err)
	}
	for i := range r.file.NumRowGroups() {
		rows, err := r.readAll(i)
		if err != nil {
			return Footer{}, classify("read "+e.Key, err)
		}
		if err := rows.each(f); err != nil {
			return Footer{}, err
		}
	}
	return r.footer, nil
}
