package parquet

import (
	"encoding/binary"
	"sync"
)

// chunkSize is small, so that a load of few rows in one of many partitions costs little: five chunks and a block.
const chunkSize = 16 << 10

// pools are shared by the loads of a sink.
type pools struct{ chunks, blocks, scratch sync.Pool }

func newPools() *pools {
	return &pools{
		chunks:  sync.Pool{New: func() any { return new([chunkSize]byte) }},
		blocks:  sync.Pool{New: func() any { return new(block) }},
		scratch: sync.Pool{New: func() any { return new(scratch) }},
	}
}

// bytesColumn gathers one column of byte strings in the form that a plainly encoded page has, so that a page is made by copying
// a few dozen chunks.
//
// Invariant: a value lies in one chunk, and the levels of the chunks add up to len(defs), or to the number of values where the
// column has no levels.
type bytesColumn struct {
	pools    *pools
	prefixed bool // four bytes of length before each value
	chunks   []chunk
	defs     []uint8
	values   int
	held     int64 // bytes of memory in chunks
	raw      int64 // bytes used in them
}

type chunk struct {
	data   []byte
	pooled *[chunkSize]byte // nil where a large value has memory of its own
	levels int
	row    bool // the first level begins a row
}

// put appends a value. begins says that it is the first of its row.
func (c *bytesColumn) put(v []byte, def uint8, begins bool) {
	at := c.room(len(v)+4, begins)
	if c.prefixed {
		at.data = binary.LittleEndian.AppendUint32(at.data, uint32(len(v)))
	}
	before := len(at.data)
	at.data = append(at.data, v...)
	at.levels++
	c.raw += int64(len(at.data) - before + 4)
	c.values++
	c.defs = append(c.defs, def)
}

// null appends a level without a value: a null, or an empty list.
func (c *bytesColumn) null(def uint8, begins bool) {
	c.room(0, begins).levels++
	c.defs = append(c.defs, def)
}

// room is the chunk that has n bytes left.
func (c *bytesColumn) room(n int, begins bool) *chunk {
	if last := len(c.chunks) - 1; last >= 0 && cap(c.chunks[last].data)-len(c.chunks[last].data) >= n {
		return &c.chunks[last]
	}
	next := chunk{row: begins}
	if n > chunkSize/2 {
		next.data = make([]byte, 0, n)
	} else {
		next.pooled = c.pools.chunks.Get().(*[chunkSize]byte)
		next.data = next.pooled[:0]
	}
	c.held += int64(cap(next.data))
	c.chunks = append(c.chunks, next)
	return &c.chunks[len(c.chunks)-1]
}

// memory is what the column holds.
func (c *bytesColumn) memory() int64 { return c.held + int64(cap(c.defs)) + int64(cap(c.chunks))*48 }

// reset gives the chunks back.
func (c *bytesColumn) reset() {
	for i := range c.chunks {
		if c.chunks[i].pooled != nil {
			c.pools.chunks.Put(c.chunks[i].pooled)
		}
		c.chunks[i] = chunk{}
	}
	c.chunks, c.defs = c.chunks[:0], c.defs[:0]
	c.values, c.held, c.raw = 0, 0, 0
}

// blockRows is the number of rows whose numbers lie together.
const blockRows = 256

// block holds the numbers of up to blockRows rows in the types that arrow-go's column writers take.
type block struct {
	rows          int
	timestamps    int // of the rows that have one
	offset        [blockRows]int64
	timestamp     [blockRows]int64
	producerID    [blockRows]int64
	timestampDef  [blockRows]int16
	timestampType [blockRows]int32
	leaderEpoch   [blockRows]int32
	producerEpoch [blockRows]int32
}

const blockSize = blockRows*(3*8+2+3*4) + 16
