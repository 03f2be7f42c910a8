package parquet

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// Leaf columns in the order of the schema.
const (
	colID = iota
	colTopic
	colPartition
	colOffset
	colTimestamp
	colTimestampType
	colLeaderEpoch
	colProducerID
	colProducerEpoch
	colHeaderKey
	colHeaderValue
	colKey
	colValue
	columns
)

// newSchema is the schema of every file, drawn in docs/formats/parquet.md.
func newSchema() (*schema.Schema, error) {
	req, opt := parquet.Repetitions.Required, parquet.Repetitions.Optional
	b := builder{}
	element := b.group("element", req, nil,
		b.logical("key", req, schema.StringLogicalType{}, parquet.Types.ByteArray, -1),
		b.plain("value", opt, parquet.Types.ByteArray))
	list := b.group("list", parquet.Repetitions.Repeated, nil, element)
	root := b.group("schema", req, nil,
		b.logical("_twg_record_id", req, schema.UUIDLogicalType{}, parquet.Types.FixedLenByteArray, 16),
		b.logical("__kafka_topic", req, schema.StringLogicalType{}, parquet.Types.ByteArray, -1),
		b.plain("__kafka_partition", req, parquet.Types.Int32),
		b.plain("__kafka_offset", req, parquet.Types.Int64),
		b.logical("__kafka_timestamp", opt, schema.NewTimestampLogicalType(true, schema.TimeUnitMillis), parquet.Types.Int64, -1),
		b.plain("__kafka_timestamp_type", req, parquet.Types.Int32),
		b.plain("__kafka_leader_epoch", req, parquet.Types.Int32),
		b.plain("__kafka_producer_id", req, parquet.Types.Int64),
		b.plain("__kafka_producer_epoch", req, parquet.Types.Int32),
		b.group("__kafka_headers", req, schema.NewListLogicalType(), list),
		b.plain("__kafka_key", opt, parquet.Types.ByteArray),
		b.plain("__kafka_value", opt, parquet.Types.ByteArray))
	if b.err != nil {
		return nil, fmt.Errorf("build the schema: %w", b.err)
	}
	return schema.NewSchema(root), nil
}

// builder makes nodes and keeps the first error.
type builder struct{ err error }

func (b *builder) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) plain(name string, rep parquet.Repetition, t parquet.Type) schema.Node {
	n, err := schema.NewPrimitiveNode(name, rep, t, -1, -1)
	b.note(err)
	return n
}

func (b *builder) logical(name string, rep parquet.Repetition, l schema.LogicalType, t parquet.Type, length int) schema.Node {
	n, err := schema.NewPrimitiveNodeLogical(name, rep, l, t, length, -1)
	b.note(err)
	return n
}

func (b *builder) group(name string, rep parquet.Repetition, l schema.LogicalType, fields ...schema.Node) *schema.GroupNode {
	var n *schema.GroupNode
	var err error
	if l != nil {
		n, err = schema.NewGroupNodeLogical(name, rep, fields, l, -1)
	} else {
		n, err = schema.NewGroupNode(name, rep, fields, -1)
	}
	b.note(err)
	return n
}

// pageSize is the size of a page before compression.
const pageSize = 1 << 20

// codecs are the values that the configuration may name.
var codecs = map[string]compress.Compression{
	"zstd":   compress.Codecs.Zstd,
	"snappy": compress.Codecs.Snappy,
	"none":   compress.Codecs.Uncompressed,
}

// zstdFastest is the level that arrow-go takes for klauspost's SpeedFastest.
const zstdFastest = 1

// properties say how the columns are encoded: offsets and timestamps as differences, constants and what is nearly constant by a
// dictionary, and what is different in each row plainly. Ids are noise and stay uncompressed.
func properties(codec compress.Compression) *parquet.WriterProperties {
	options := []parquet.WriterProperty{
		parquet.WithCreatedBy("twgd"),
		parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithDataPageSize(pageSize),
		parquet.WithCompression(codec),
		parquet.WithCompressionLevel(zstdFastest),
		parquet.WithCompressionFor("_twg_record_id", compress.Codecs.Uncompressed),
	}
	for _, path := range []string{"_twg_record_id", "__kafka_headers.list.element.key", "__kafka_headers.list.element.value", "__kafka_key", "__kafka_value"} {
		options = append(options, parquet.WithDictionaryFor(path, false))
	}
	for _, path := range []string{"__kafka_offset", "__kafka_timestamp"} {
		options = append(options, parquet.WithDictionaryFor(path, false), parquet.WithEncodingFor(path, parquet.Encodings.DeltaBinaryPacked))
	}
	return parquet.NewWriterProperties(options...)
}
