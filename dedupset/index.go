package dedupset

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// index finds rows by their content. It is an array of buckets that never grows: a set that needs a larger one moves into it, see
// growth.go.
//
// An entry lies in its home bucket, or in the first behind it that had room. Each bucket that was full when an entry went past it
// counts that entry, so a search ends at the first bucket that nobody went past, and what is taken out leaves no trace behind.
//
// The entry itself is 5 bytes, the tag and the row's number: whether a row of the same tag has the content is seen in the row.
type index struct {
	buckets []bucket // in mem
	mem     *region
	limit   int64 // how many entries it is made for; there are slots for two fifths more
}

// bucket is one cache line.
type bucket struct {
	tags [slots]byte   // 0: the slot is free
	over uint32        // how many entries went past, and lie further on
	rows [slots]uint32 // the low 32 bits of the row's place in the sequence
}

const (
	slots      = 12
	bucketSize = 64
)

// bucketsFor is how many buckets serve so many entries: 8.5 of 12 slots are taken then. A fuller index is smaller, and slower: with
// 8.5 every tenth bucket is full, with 10 every fourth.
func bucketsFor(entries int64) int { return int((entries*2 + 16) / 17) }

// newIndex is an empty index. Unless it is small, a helper readies its pages.
func newIndex(limit int64) *index {
	n := bucketsFor(limit)
	mem := newRegion(n * bucketSize)
	if limit <= firstLimit {
		mem.ready.Store(true) // too small to need a helper
	}
	mem.prepare()
	return &index{buckets: unsafe.Slice((*bucket)(unsafe.Pointer(unsafe.SliceData(mem.mem))), n), mem: mem, limit: limit}
}

// home is where a content's entry would lie. Contents are keyed hashes: any 64 bits of them are as good as random.
func (x *index) home(content []byte) int {
	hi, _ := bits.Mul64(binary.LittleEndian.Uint64(content), uint64(len(x.buckets)))
	return int(hi)
}

// tagOf is the entry's tag, of other bits than its home.
func tagOf(content []byte) byte { return max(content[8], 1) }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// equal marks, in the high bits of their bytes, the slots with a tag: slots 0–7 in lo, 8–11 in hi. It may mark a slot behind a
// marked one that has tag^1: whoever takes it at its word looks at the row.
func (b *bucket) equal(tag byte) (lo uint64, hi uint32) {
	x := binary.LittleEndian.Uint64(b.tags[:8]) ^ (ones * uint64(tag))
	y := binary.LittleEndian.Uint32(b.tags[8:]) ^ (ones & 0xffffffff * uint32(tag))
	return (x - ones) &^ x & highs, (y - ones&0xffffffff) &^ y & (highs & 0xffffffff)
}

// first is the first slot with a tag, or slots.
func (b *bucket) first(tag byte) int {
	lo, hi := b.equal(tag)
	if lo != 0 {
		return bits.TrailingZeros64(lo) >> 3
	}
	return min(8+bits.TrailingZeros32(hi)>>3, slots)
}

// add makes an entry. The index has room.
func (x *index) add(content []byte, row uint32) {
	for i := x.home(content); ; i = x.after(i) {
		b := &x.buckets[i]
		if slot := b.first(0); slot < slots {
			b.tags[slot], b.rows[slot] = tagOf(content), row
			return
		}
		b.over++
	}
}

// remove takes an entry out. It is there.
func (x *index) remove(content []byte, row uint32) {
	tag := tagOf(content)
	for i := x.home(content); ; i = x.after(i) {
		b := &x.buckets[i]
		if slot := b.slotOf(tag, row); slot < slots {
			b.tags[slot] = 0
			return
		}
		if b.over == 0 {
			panic("dedupset: a row has no entry in the index")
		}
		b.over--
	}
}

func (b *bucket) slotOf(tag byte, row uint32) int {
	lo, hi := b.equal(tag)
	for ; lo != 0; lo &= lo - 1 {
		if slot := bits.TrailingZeros64(lo) >> 3; b.tags[slot] == tag && b.rows[slot] == row {
			return slot
		}
	}
	for ; hi != 0; hi &= hi - 1 {
		if slot := 8 + bits.TrailingZeros32(hi)>>3; b.tags[slot] == tag && b.rows[slot] == row {
			return slot
		}
	}
	return slots
}

func (x *index) after(i int) int {
	if i++; i < len(x.buckets) {
		return i
	}
	return 0
}
