package recovery

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// window is a span of one partition.
type window struct {
	p record.Partition
	s checkpoint.Span
}

// claim is the name under which agents claim a window. Agents may see other gaps in it, since one knows of a receipt that the other
// has not asked for; so it is the window's place in the grid that is claimed, and not the gap: cell is the first offset of that place.
func (w window) claim(stream, sink string, grid int64) string {
	cell := w.s.From
	if grid > 0 {
		cell -= cell % grid
	}
	return fmt.Sprintf("recovery/%s/%s/%s/%s", stream, sink, w.p.Path(), record.OffsetName(cell))
}

// apart is how many windows an agent takes for equally urgent: within so many of the oldest, each agent has an order of its own.
const apart = 64

// apartFrom orders windows, the most urgent first, so that agents that look at the same ones begin with others: rendezvous hashing of
// the window's name and the node's. No agent needs to know of another. The order of urgency stays, in steps of apart.
func apartFrom(due []window, node string, name func(window) string) {
	weights := make(map[window]uint64, len(due))
	for _, w := range due {
		weights[w] = weight(name(w), node)
	}
	for group := range slices.Chunk(due, apart) {
		slices.SortStableFunc(group, func(v, w window) int { return cmp.Compare(weights[w], weights[v]) })
	}
}

// weight is what a node weighs in the eyes of a window.
func weight(name, node string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(node))
	return mix(h.Sum64())
}

// mix spreads the difference of two similar names over all bits, which FNV alone does not: it is the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
