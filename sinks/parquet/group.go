package parquet

import (
	"github.com/stream-arrow/twgd/record"
)

// group is a row group in memory, by columns. It allocates nothing for a row: bytes go into pooled chunks, numbers into pooled
// blocks.
type group struct {
	pools        *pools
	rows         int64
	blocks       []*block
	ids          bytesColumn
	headerKeys   bytesColumn
	headerValues bytesColumn
	keys         bytesColumn
	values       bytesColumn
	reps         []uint8 // repetition levels, of both columns of headers
}

func newGroup(p *pools) *group {
	return &group{
		pools:        p,
		ids:          bytesColumn{pools: p},
		headerKeys:   bytesColumn{pools: p, prefixed: true},
		headerValues: bytesColumn{pools: p, prefixed: true},
		keys:         bytesColumn{pools: p, prefixed: true},
		values:       bytesColumn{pools: p, prefixed: true},
	}
}

func (g *group) add(id *record.ID, r *record.Record) {
	g.rows++
	g.addNumbers(r)
	g.ids.put(id[:], 0, true)
	putNullable(&g.keys, r.Key)
	putNullable(&g.values, r.Value)
	g.addHeaders(r.Headers)
}

func (g *group) addNumbers(r *record.Record) {
	if n := len(g.blocks); n == 0 || g.blocks[n-1].rows == blockRows {
		g.blocks = append(g.blocks, g.pools.blocks.Get().(*block))
	}
	b := g.blocks[len(g.blocks)-1]
	i := b.rows
	b.offset[i] = r.Offset
	b.producerID[i] = r.ProducerID
	b.timestampType[i] = int32(r.TimestampType)
	b.leaderEpoch[i] = r.LeaderEpoch
	b.producerEpoch[i] = int32(r.ProducerEpoch)
	b.timestampDef[i] = 0
	if r.TimestampType != record.TimestampNone {
		b.timestampDef[i] = 1
		b.timestamp[b.timestamps] = r.Timestamp
		b.timestamps++
	}
	b.rows++
}

// addHeaders writes a list. Definition levels: 0 the list is empty, 1 an element, which for a value is a null, 2 a value.
func (g *group) addHeaders(headers []record.Header) {
	if len(headers) == 0 {
		g.reps = append(g.reps, 0)
		g.headerKeys.null(0, true)
		g.headerValues.null(0, true)
		return
	}
	for i := range headers {
		rep := uint8(1)
		if i == 0 {
			rep = 0
		}
		g.reps = append(g.reps, rep)
		g.headerKeys.put([]byte(headers[i].Key), 1, i == 0)
		if headers[i].Value == nil {
			g.headerValues.null(1, i == 0)
		} else {
			g.headerValues.put(headers[i].Value, 2, i == 0)
		}
	}
}

func putNullable(c *bytesColumn, v []byte) {
	if v == nil {
		c.null(0, true)
	} else {
		c.put(v, 1, true)
	}
}

// memory is what the group holds now.
func (g *group) memory() int64 {
	n := int64(len(g.blocks))*blockSize + int64(cap(g.reps))
	for _, c := range g.bytes() {
		n += c.memory()
	}
	return n
}

// raw is about what the group would have in a file without compression.
func (g *group) raw() int64 {
	n := g.rows * 4 // what is left of the numbers
	for _, c := range g.bytes() {
		n += c.raw
	}
	return n
}

func (g *group) bytes() [5]*bytesColumn {
	return [5]*bytesColumn{&g.ids, &g.headerKeys, &g.headerValues, &g.keys, &g.values}
}

// reset empties the group and gives its memory back.
func (g *group) reset() {
	for i, b := range g.blocks {
		b.rows, b.timestamps = 0, 0
		g.pools.blocks.Put(b)
		g.blocks[i] = nil
	}
	g.blocks, g.reps, g.rows = g.blocks[:0], g.reps[:0], 0
	for _, c := range g.bytes() {
		c.reset()
	}
}
