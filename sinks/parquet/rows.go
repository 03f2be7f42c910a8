package parquet

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/stream-arrow/twgd/record"
)

// groupRows are the columns of one row group as they were read.
type groupRows struct {
	offsets, producerIDs                      []int64
	timestamps                                nullable[int64]
	timestampTypes, leaderEpochs, producerEps []int32
	ids                                       []parquet.FixedLenByteArray
	keys, values, headerKeys, headerValues    nullable[parquet.ByteArray]
}

// nullable is a column with its levels; values has only what is not null.
type nullable[T any] struct {
	values     []T
	defs, reps []int16
}

// readGroup reads the columns named.
func readGroup(rg *file.RowGroupReader, columns ...int) (*groupRows, error) {
	out := &groupRows{}
	for _, i := range columns {
		column, err := rg.Column(i)
		if err != nil {
			return nil, fmt.Errorf("open column %d: %w", i, err)
		}
		meta, err := rg.MetaData().ColumnChunk(i)
		if err != nil {
			return nil, fmt.Errorf("find column %d: %w", i, err)
		}
		if err := out.read(column, i, meta.NumValues()); err != nil {
			return nil, fmt.Errorf("read column %s: %w", column.Descriptor().Path(), err)
		}
	}
	return out, nil
}

// read reads n levels of column i.
func (g *groupRows) read(column file.ColumnChunkReader, i int, n int64) (err error) {
	switch c := column.(type) {
	case *file.Int32ColumnChunkReader:
		var out nullable[int32]
		out, err = readLevels(n, c.ReadBatch)
		*map[int]*[]int32{colTimestampType: &g.timestampTypes, colLeaderEpoch: &g.leaderEpochs, colProducerEpoch: &g.producerEps}[i] = out.values
	case *file.Int64ColumnChunkReader:
		var out nullable[int64]
		out, err = readLevels(n, c.ReadBatch)
		if i == colTimestamp {
			g.timestamps = out
		} else {
			*map[int]*[]int64{colOffset: &g.offsets, colProducerID: &g.producerIDs}[i] = out.values
		}
	case *file.FixedLenByteArrayColumnChunkReader:
		var out nullable[parquet.FixedLenByteArray]
		out, err = readLevels(n, c.ReadBatch)
		g.ids = out.values
	case *file.ByteArrayColumnChunkReader:
		*map[int]*nullable[parquet.ByteArray]{colHeaderKey: &g.headerKeys, colHeaderValue: &g.headerValues, colKey: &g.keys, colValue: &g.values}[i], err = readLevels(n, c.ReadBatch)
	}
	return err
}

// readLevels reads n levels and the values that belong to them.
func readLevels[T any](n int64, read func(int64, []T, []int16, []int16) (int64, int, error)) (nullable[T], error) {
	out := nullable[T]{make([]T, n), make([]int16, n), make([]int16, n)}
	var levels, values int64
	for levels < n {
		l, v, err := read(n-levels, out.values[values:], out.defs[levels:], out.reps[levels:])
		if err != nil {
			return out, err
		}
		if l == 0 {
			return out, io.ErrUnexpectedEOF
		}
		levels, values = levels+l, values+int64(v)
	}
	out.values = out.values[:values]
	return out, nil
}

// readAll reads row group i.
func (r *reader) readAll(i int) (rows *groupRows, err error) {
	defer damaged(r.source.key, r.source, &err)
	rows, err = readGroup(r.file.RowGroup(i), colID, colOffset, colTimestamp, colTimestampType, colLeaderEpoch, colProducerID,
		colProducerEpoch, colHeaderKey, colHeaderValue, colKey, colValue)
	if err != nil {
		return nil, err
	}
	return rows, rows.consistent()
}

// consistent checks that the columns fit together, so that rows can be made of them.
func (g *groupRows) consistent() error {
	n := len(g.offsets)
	for _, other := range []int{len(g.ids), len(g.producerIDs), len(g.timestampTypes), len(g.leaderEpochs), len(g.producerEps),
		len(g.timestamps.defs), len(g.keys.defs), len(g.values.defs), starts(g.headerKeys.reps)} {
		if other != n {
			return fmt.Errorf("a column has %d rows and another %d", n, other)
		}
	}
	if !slices.Equal(g.headerKeys.reps, g.headerValues.reps) {
		return errors.New("the headers' names and values do not fit together")
	}
	if !complete(g.timestamps, 1) || !complete(g.keys, 1) || !complete(g.values, 1) || !complete(g.headerKeys, 1) || !complete(g.headerValues, 2) {
		return errors.New("a column has not the values that its levels promise")
	}
	return nil
}

// starts counts the rows of a column with lists.
func starts(reps []int16) (n int) {
	for _, r := range reps {
		if r == 0 {
			n++
		}
	}
	return n
}

func complete[T any](c nullable[T], maxDef int16) bool {
	n := 0
	for _, d := range c.defs {
		if d == maxDef {
			n++
		}
	}
	return n == len(c.values)
}

// each calls f with the rows in order.
func (g *groupRows) each(f func(record.ID, *record.Record) error) error {
	header := 0
	for i := range g.offsets {
		r := &record.Record{Offset: g.offsets[i], ProducerID: g.producerIDs[i], LeaderEpoch: g.leaderEpochs[i],
			ProducerEpoch: int16(g.producerEps[i]), TimestampType: int8(g.timestampTypes[i]), Timestamp: -1}
		if t := next(&g.timestamps, i, 1); t != nil {
			r.Timestamp = *t
		}
		r.Key, r.Value = own(next(&g.keys, i, 1)), own(next(&g.values, i, 1))
		header = g.headers(r, header)
		if err := f(record.ID(g.ids[i]), r); err != nil {
			return err
		}
	}
	return nil
}

// headers reads the list that begins at level i, and returns where the next one begins.
func (g *groupRows) headers(r *record.Record, i int) int {
	for first := true; i < len(g.headerKeys.reps) && (first || g.headerKeys.reps[i] == 1); i++ {
		first = false
		if k := next(&g.headerKeys, i, 1); k != nil {
			r.Headers = append(r.Headers, record.Header{Key: string(*k), Value: own(next(&g.headerValues, i, 2))})
		}
	}
	return i
}

// next takes the value of level i, nil where the level has none.
func next[T any](c *nullable[T], i int, maxDef int16) *T {
	if c.defs[i] != maxDef {
		return nil
	}
	v := &c.values[0]
	c.values = c.values[1:]
	return v
}

// own is a copy, nil for null.
func own(v *parquet.ByteArray) []byte {
	if v == nil {
		return nil
	}
	return append([]byte{}, *v...)
}
