package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

const magic = "PAR1"

// formatVersion is what docs/formats/parquet.md draws.
const formatVersion = 1

// layout is what all files of a sink have in common.
type layout struct {
	stream string
	schema *schema.Schema
	props  *parquet.WriterProperties
	zstd   *encoderPool // nil for other codecs
}

// fileWriter writes one file into a spool, row group by row group. Numbers and constants go through arrow-go's column writers;
// pages of ids, keys, values and headers are put together here and handed to its page writer, because its column writers can
// only keep or drop minimum, maximum and null count together, and of these columns a reader wants the null count alone.
type fileWriter struct {
	*layout
	out       *spool
	partition record.Partition
	meta      *metadata.FileMetaDataBuilder
	pager     file.PageWriter
	rowGroups int16
	rows      int64
	topic     [blockRows]parquet.ByteArray
	number    [blockRows]int32
	*scratch  // while a row group is written
}

// scratch is memory for one page, before and after compression.
type scratch struct{ page, packed []byte }

// maxScratch is what is kept; a page with a large value may need more.
const maxScratch = 4 * pageSize

// borrow takes scratch memory from the pool until what it returns is called.
func (w *fileWriter) borrow(p *pools) (giveBack func()) {
	w.scratch = p.scratch.Get().(*scratch)
	return func() {
		if cap(w.page)+cap(w.packed) <= maxScratch {
			p.scratch.Put(w.scratch)
		}
		w.scratch = nil
	}
}

func newFileWriter(l *layout, out *spool, p record.Partition) *fileWriter {
	w := &fileWriter{layout: l, out: out, partition: p,
		meta: metadata.NewFileMetadataBuilder(l.schema, l.props, metadata.NewKeyValueMetadata())}
	for i := range w.topic {
		w.topic[i], w.number[i] = parquet.ByteArray(p.Topic), p.Number
	}
	return w
}

// write appends g as a row group. An error is a fault of the program: the spool never fails.
func (w *fileWriter) write(g *group) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("write a row group: %v", r)
		}
	}()
	defer w.borrow(g.pools)()
	if w.rowGroups < 0 {
		return errors.New("write a row group: a file has at most 32768 of them")
	}
	if w.out.total == 0 {
		w.out.Write([]byte(magic))
	}
	before := w.out.total
	rg := w.meta.AppendRowGroup()
	for i := range columns {
		if err := w.column(g, rg.NextColumnChunk(), i); err != nil {
			return fmt.Errorf("write column %s: %w", w.schema.Column(i).Path(), err)
		}
	}
	rg.SetNumRows(int(g.rows))
	if err := rg.Finish(w.out.total-before, w.rowGroups); err != nil {
		return fmt.Errorf("finish a row group: %w", err)
	}
	w.rowGroups++
	w.rows += g.rows
	return nil
}

func (w *fileWriter) column(g *group, meta *metadata.ColumnChunkMetaDataBuilder, i int) error {
	if err := w.begin(meta, i); err != nil {
		return err
	}
	switch i {
	case colID:
		return w.bytes(meta, &g.ids, nil, 0)
	case colHeaderKey:
		return w.bytes(meta, &g.headerKeys, g.reps, 1)
	case colHeaderValue:
		return w.bytes(meta, &g.headerValues, g.reps, 2)
	case colKey:
		return w.bytes(meta, &g.keys, nil, 1)
	case colValue:
		return w.bytes(meta, &g.values, nil, 1)
	}
	return w.numbers(g, file.NewColumnChunkWriter(meta, w.pager, w.props), i)
}

// begin makes the page writer ready for column i.
func (w *fileWriter) begin(meta *metadata.ColumnChunkMetaDataBuilder, i int) (err error) {
	codec := w.props.CompressionFor(meta.Descr().Path())
	if w.pager == nil {
		w.pager, err = file.NewPageWriter(w.out, codec, zstdFastest, meta, w.rowGroups, int16(i), memory.DefaultAllocator, false, nil, nil)
		return err
	}
	return w.pager.Reset(w.out, codec, zstdFastest, meta, w.rowGroups, int16(i), nil, nil)
}

// numbers writes a column of numbers, or the topic, a block at a time.
func (w *fileWriter) numbers(g *group, column file.ColumnChunkWriter, i int) error {
	for _, b := range g.blocks {
		var err error
		switch c := column.(type) {
		case *file.Int32ColumnChunkWriter:
			_, err = c.WriteBatch(w.int32s(b, i)[:b.rows], nil, nil)
		case *file.Int64ColumnChunkWriter:
			err = writeInt64s(c, b, i)
		case *file.ByteArrayColumnChunkWriter:
			_, err = c.WriteBatch(w.topic[:b.rows], nil, nil)
		}
		if err != nil {
			return err
		}
	}
	return column.Close()
}

func (w *fileWriter) int32s(b *block, i int) []int32 {
	switch i {
	case colTimestampType:
		return b.timestampType[:]
	case colLeaderEpoch:
		return b.leaderEpoch[:]
	case colProducerEpoch:
		return b.producerEpoch[:]
	}
	return w.number[:]
}

func writeInt64s(c *file.Int64ColumnChunkWriter, b *block, i int) (err error) {
	switch i {
	case colTimestamp:
		_, err = c.WriteBatch(b.timestamp[:b.timestamps], b.timestampDef[:b.rows], nil)
	case colProducerID:
		_, err = c.WriteBatch(b.producerID[:b.rows], nil, nil)
	default:
		_, err = c.WriteBatch(b.offset[:b.rows], nil, nil)
	}
	return err
}

// bytes writes a column of byte strings. maxDef is the definition level of a value; 0 where every row has one.
func (w *fileWriter) bytes(meta *metadata.ColumnChunkMetaDataBuilder, c *bytesColumn, reps []uint8, maxDef int) error {
	compressed := w.props.CompressionFor(meta.Descr().Path()) != compress.Codecs.Uncompressed
	defs := c.defs
	for rest := c.chunks; len(rest) > 0; {
		n, levels := nextPage(rest)
		w.page = w.page[:0]
		if reps != nil {
			w.page = appendLevels(w.page, reps[:levels], 1)
			reps = reps[levels:]
		}
		if maxDef > 0 {
			w.page = appendLevels(w.page, defs[:levels], maxDef)
		}
		for _, part := range rest[:n] {
			w.page = append(w.page, part.data...)
		}
		if err := w.flush(levels, nulls(defs[:levels], maxDef), compressed); err != nil {
			return err
		}
		defs, rest = defs[levels:], rest[n:]
	}
	meta.SetStats(nullCount(nulls(c.defs, maxDef)))
	return w.pager.Close(false, false)
}

// nextPage is the number of chunks, and of levels in them, that the next page has: as many as pageSize allows, at least one, and
// so many more that the page behind it begins with a row.
func nextPage(rest []chunk) (n, levels int) {
	size := 0
	for _, c := range rest {
		if n > 0 && size+len(c.data) > pageSize && c.row {
			break
		}
		n++
		levels += c.levels
		size += len(c.data)
	}
	return n, levels
}

// flush writes the scratch as a page.
func (w *fileWriter) flush(levels int, nulls int64, compressed bool) error {
	data := w.page
	if compressed {
		w.packed = w.compress(w.packed[:0], data)
		data = w.packed
	}
	page := file.NewDataPageV1WithConfig(memory.NewBufferBytes(data), parquet.Encodings.RLE, parquet.Encodings.RLE, file.DataPageConfig{
		Num: int32(levels), Encoding: parquet.Encodings.Plain, UncompressedSize: int32(len(w.page)), Stats: nullCount(nulls)})
	defer page.Release()
	_, err := w.pager.WriteDataPage(page)
	return err
}

func nulls(defs []uint8, maxDef int) (n int64) {
	if maxDef == 0 {
		return 0
	}
	for _, d := range defs {
		if int(d) != maxDef {
			n++
		}
	}
	return n
}

// nullCount are statistics without minimum and maximum.
func nullCount(n int64) (s metadata.EncodedStatistics) {
	s.SetNullCount(n)
	return s
}

// finish writes the footer.
func (w *fileWriter) finish(span checkpoint.Span) error {
	for _, kv := range w.describe(span) {
		if err := w.meta.AppendKeyValueMetadata(kv[0], kv[1]); err != nil {
			return fmt.Errorf("describe the file: %w", err)
		}
	}
	meta, err := w.meta.Snapshot()
	if err != nil {
		return fmt.Errorf("build the footer: %w", err)
	}
	before := w.out.total
	if _, err := meta.WriteTo(w.out, nil); err != nil {
		return fmt.Errorf("write the footer: %w", err)
	}
	tail := binary.LittleEndian.AppendUint32(nil, uint32(w.out.total-before))
	w.out.Write(append(tail, magic...))
	return nil
}

// describe is what the footer says of the file in keys and values.
func (w *fileWriter) describe(span checkpoint.Span) [][2]string {
	p := w.partition
	return [][2]string{
		{keyFormat, strconv.Itoa(formatVersion)},
		{keyStream, w.stream},
		{keyCluster, p.Cluster},
		{keyTopic, p.Topic},
		{keyTopicID, fmt.Sprintf("%x", p.TopicID)},
		{keyPartition, strconv.Itoa(int(p.Number))},
		{keyGeneration, strconv.Itoa(int(p.Generation))},
		{keyFirst, strconv.FormatInt(span.From, 10)},
		{keyNext, strconv.FormatInt(span.To, 10)},
		{keyRows, strconv.FormatInt(w.rows, 10)},
	}
}

// Keys of the footer.
const (
	keyFormat     = "twgd.format"
	keyStream     = "twgd.stream"
	keyCluster    = "twgd.cluster"
	keyTopic      = "twgd.topic"
	keyTopicID    = "twgd.topic_id"
	keyPartition  = "twgd.partition"
	keyGeneration = "twgd.generation"
	keyFirst      = "twgd.first"
	keyNext       = "twgd.next"
	keyRows       = "twgd.rows"
)
