package dedupset

// chunks holds rows by their place: a ring of chunks, of which those whose rows nobody needs come back as room for later ones.
type chunks struct {
	ring   []*chunk // by number modulo its length, which is a power of two
	first  uint64   // number of the first chunk there is
	end    uint64   // and the one behind the last
	spares []*chunk // used before, and not pinned: their pages are there
	ahead  *chunk   // the next one, which a helper readies
}

const maxSpares = 4

// reset lets go of everything; the next row has the place next.
func (c *chunks) reset(next uint64) {
	*c = chunks{ring: make([]*chunk, 2), first: next >> chunkBits, end: next >> chunkBits}
}

// row is what lies at a place that was given out.
func (c *chunks) row(place uint64) *[rowSize]byte {
	return &c.ring[int(place>>chunkBits)&(len(c.ring)-1)].rows[place&(chunkRows-1)]
}

// place is the room at the place behind the last one.
func (c *chunks) place(place uint64) *[rowSize]byte {
	if place>>chunkBits == c.end {
		c.push()
	}
	return c.row(place)
}

func (c *chunks) push() {
	if int(c.end-c.first) == len(c.ring) {
		c.widen()
	}
	c.ring[int(c.end)&(len(c.ring)-1)] = c.take()
	c.end++
	if c.end-c.first > 1 && len(c.spares) == 0 && c.ahead == nil {
		c.ahead = newChunk()
		c.ahead.mem.prepare()
	}
}

func (c *chunks) widen() {
	ring := make([]*chunk, 2*len(c.ring))
	for i := c.first; i < c.end; i++ {
		ring[int(i)&(len(ring)-1)] = c.ring[int(i)&(len(c.ring)-1)]
	}
	c.ring = ring
}

func (c *chunks) take() (out *chunk) {
	switch n := len(c.spares); {
	case n > 0:
		out, c.spares = c.spares[n-1], c.spares[:n-1]
	case c.ahead != nil:
		out, c.ahead = c.ahead, nil
	default:
		out = newChunk()
	}
	return out
}

// trim lets go of chunks all of whose rows lie before place. One that a snapshot has pinned is left to the collector, which comes for
// it when the snapshot has been written.
func (c *chunks) trim(place uint64) {
	for ; c.first < min(place>>chunkBits, c.end); c.first++ {
		at := &c.ring[int(c.first)&(len(c.ring)-1)]
		if (*at).pins.Load() == 0 && len(c.spares) < maxSpares {
			c.spares = append(c.spares, *at)
		}
		*at = nil
	}
}

// pin keeps the chunks with the rows [from, to) from being used anew.
func (c *chunks) pin(from, to uint64) (out []*chunk) {
	if from == to {
		return nil
	}
	for i := from >> chunkBits; i <= (to-1)>>chunkBits; i++ {
		p := c.ring[int(i)&(len(c.ring)-1)]
		p.pins.Add(1)
		out = append(out, p)
	}
	return out
}

func (c *chunks) bytes() int64 {
	n := int64(c.end-c.first) + int64(len(c.spares))
	if c.ahead != nil {
		n++
	}
	return n * chunkRows * rowSize
}
