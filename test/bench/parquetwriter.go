package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/stream-arrow/twgd/record"
)

// columnWriter is a minimal writer of the same columns with the same encodings through parquet/file's own column writers, fed a
// row group at a time: what a program would do that has nothing else to do.
type columnWriter struct {
	rows  []record.Record
	ids   []parquet.FixedLenByteArray
	topic parquet.ByteArray
	part  int32

	int32s []int32
	int64s []int64
	bytes  []parquet.ByteArray
	zeros  []int16
	ones   []int16
}

// groupRows is the number of rows in a row group.
const groupRows = 32 << 10

// writeParquet writes a file for each partition.
func writeParquet(dir string, w workload) error {
	schema, err := benchSchema()
	if err != nil {
		return err
	}
	c := newColumnWriter()
	for p := range w {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(p)))
		if err != nil {
			return err
		}
		out := file.NewParquetWriter(f, schema.Root(), file.WithWriterProps(benchProperties()))
		if err := c.writeFile(out, p, w[p]); err != nil {
			return err
		}
		if err := f.Sync(); err != nil { // a file that is published must be durable
			return err
		}
		if err := out.Close(); err != nil { // closes f, too
			return err
		}
	}
	return nil
}

func newColumnWriter() *columnWriter {
	c := &columnWriter{ids: make([]parquet.FixedLenByteArray, groupRows), int32s: make([]int32, groupRows), int64s: make([]int64, groupRows),
		bytes: make([]parquet.ByteArray, groupRows), zeros: make([]int16, groupRows), ones: make([]int16, groupRows), topic: parquet.ByteArray(fullTopic)}
	for i := range c.ones {
		c.ones[i] = 1
	}
	return c
}

func (c *columnWriter) writeFile(out *file.Writer, p int, records []record.Record) error {
	hasher := record.NewHasher(benchPartition(p))
	var ids []record.ID
	c.part = int32(p)
	for at := 0; at < len(records); at += groupRows {
		c.rows = records[at:min(at+groupRows, len(records))]
		ids = hasher.IDs(ids[:0], c.rows)
		for i := range ids {
			c.ids[i] = ids[i][:]
		}
		group, err := out.AppendRowGroupChecked()
		if err != nil {
			return err
		}
		if err := c.writeGroup(group); err != nil {
			return err
		}
	}
	return nil
}

func (c *columnWriter) writeGroup(g file.SerialRowGroupWriter) error {
	for i := range g.NumColumns() {
		column, err := g.NextColumn()
		if err != nil {
			return err
		}
		if err := c.writeColumn(column, i); err != nil {
			return fmt.Errorf("column %d: %w", i, err)
		}
		if err := column.Close(); err != nil {
			return err
		}
	}
	return g.Close()
}

func (c *columnWriter) writeColumn(column file.ColumnChunkWriter, i int) (err error) {
	n := len(c.rows)
	switch w := column.(type) {
	case *file.FixedLenByteArrayColumnChunkWriter:
		_, err = w.WriteBatch(c.ids[:n], nil, nil)
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(c.numbers32(i), nil, nil)
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(c.numbers64(i), c.levels(i), nil)
	case *file.ByteArrayColumnChunkWriter:
		reps := []int16(nil)
		if i == 9 || i == 10 {
			reps = c.zeros[:n]
		}
		_, err = w.WriteBatch(c.strings(i), c.levels(i), reps)
	}
	return err
}

func (c *columnWriter) numbers32(i int) []int32 {
	for k := range c.rows {
		switch r := &c.rows[k]; i {
		case 2:
			c.int32s[k] = c.part
		case 5:
			c.int32s[k] = int32(r.TimestampType)
		case 6:
			c.int32s[k] = r.LeaderEpoch
		case 8:
			c.int32s[k] = int32(r.ProducerEpoch)
		}
	}
	return c.int32s[:len(c.rows)]
}

func (c *columnWriter) numbers64(i int) []int64 {
	for k := range c.rows {
		switch r := &c.rows[k]; i {
		case 3:
			c.int64s[k] = r.Offset
		case 4:
			c.int64s[k] = r.Timestamp
		case 7:
			c.int64s[k] = r.ProducerID
		}
	}
	return c.int64s[:len(c.rows)]
}

// strings are the values of a column of bytes; the lists of headers are empty.
func (c *columnWriter) strings(i int) []parquet.ByteArray {
	if i == 9 || i == 10 {
		return nil
	}
	for k := range c.rows {
		switch i {
		case 1:
			c.bytes[k] = c.topic
		case 11:
			c.bytes[k] = c.rows[k].Key
		case 12:
			c.bytes[k] = c.rows[k].Value
		}
	}
	return c.bytes[:len(c.rows)]
}

// levels are the definition levels of a column, none where it is required.
func (c *columnWriter) levels(i int) []int16 {
	switch i {
	case 4, 11, 12:
		return c.ones[:len(c.rows)]
	case 9, 10:
		return c.zeros[:len(c.rows)]
	}
	return nil
}

// benchSchema has the columns that docs/formats/parquet.md draws, in that order.
func benchSchema() (*schema.Schema, error) {
	req, opt := parquet.Repetitions.Required, parquet.Repetitions.Optional
	var first error
	leaf := func(name string, rep parquet.Repetition, t parquet.Type, length int, l schema.LogicalType) schema.Node {
		n, err := schema.NewPrimitiveNodeLogical(name, rep, l, t, length, -1)
		if first == nil {
			first = err
		}
		return n
	}
	none, bytes := schema.NoLogicalType{}, parquet.Types.ByteArray
	element, err := schema.NewGroupNode("element", req, schema.FieldList{leaf("key", req, bytes, -1, schema.StringLogicalType{}), leaf("value", opt, bytes, -1, none)}, -1)
	if err != nil {
		return nil, err
	}
	list, err := schema.NewGroupNode("list", parquet.Repetitions.Repeated, schema.FieldList{element}, -1)
	if err != nil {
		return nil, err
	}
	headers, err := schema.NewGroupNodeLogical("__kafka_headers", req, schema.FieldList{list}, schema.NewListLogicalType(), -1)
	if err != nil {
		return nil, err
	}
	root, err := schema.NewGroupNode("schema", req, schema.FieldList{
		leaf("_twg_record_id", req, parquet.Types.FixedLenByteArray, 16, schema.UUIDLogicalType{}),
		leaf("__kafka_topic", req, bytes, -1, schema.StringLogicalType{}),
		leaf("__kafka_partition", req, parquet.Types.Int32, -1, none),
		leaf("__kafka_offset", req, parquet.Types.Int64, -1, none),
		leaf("__kafka_timestamp", opt, parquet.Types.Int64, -1, schema.NewTimestampLogicalType(true, schema.TimeUnitMillis)),
		leaf("__kafka_timestamp_type", req, parquet.Types.Int32, -1, none),
		leaf("__kafka_leader_epoch", req, parquet.Types.Int32, -1, none),
		leaf("__kafka_producer_id", req, parquet.Types.Int64, -1, none),
		leaf("__kafka_producer_epoch", req, parquet.Types.Int32, -1, none),
		headers,
		leaf("__kafka_key", opt, bytes, -1, none),
		leaf("__kafka_value", opt, bytes, -1, none),
	}, -1)
	if err != nil || first != nil {
		return nil, fmt.Errorf("schema: %v, %v", err, first)
	}
	return schema.NewSchema(root), nil
}

// benchProperties are the encodings that docs/formats/parquet.md names.
func benchProperties() *parquet.WriterProperties {
	options := []parquet.WriterProperty{parquet.WithDataPageVersion(parquet.DataPageV1), parquet.WithDataPageSize(1 << 20),
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1), parquet.WithCompressionFor("_twg_record_id", compress.Codecs.Uncompressed)}
	for _, path := range []string{"_twg_record_id", "__kafka_headers.list.element.key", "__kafka_headers.list.element.value", "__kafka_key", "__kafka_value"} {
		options = append(options, parquet.WithDictionaryFor(path, false), parquet.WithStatsFor(path, false))
	}
	for _, path := range []string{"__kafka_offset", "__kafka_timestamp"} {
		options = append(options, parquet.WithDictionaryFor(path, false), parquet.WithEncodingFor(path, parquet.Encodings.DeltaBinaryPacked))
	}
	return parquet.NewWriterProperties(options...)
}
