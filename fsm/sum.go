package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Mark is the sum of all that was applied, as it stood after the entry of an index. Replicas that differ at one index have parted:
// a fault of the program or of a machine, which no Raft notices.
type Mark struct {
	Index uint64
	Sum   [32]byte
}

// chain is the sum after one more entry. Lengths stand in front of what varies, so that nothing can be shifted between parts.
func chain(sum [32]byte, index uint64, entry, reply []byte, known bool) (out [32]byte) {
	h := sha256.New()
	h.Write(sum[:])
	var head [17]byte
	binary.BigEndian.PutUint64(head[0:], index)
	binary.BigEndian.PutUint64(head[8:], uint64(len(entry)))
	if known {
		head[16] = 1
	}
	h.Write(head[:])
	h.Write(entry)
	h.Write(reply)
	h.Sum(out[:0])
	return out
}

// ringSize is how many marks either half of a ring keeps.
const ringSize = 64

// block is 2^8 indexes: the ring keeps the first mark in each of the latest blocks.
const blockBits = 8

// ring keeps marks that replicas can be compared at, though one is ahead of another: the latest of all, and behind them the first of
// each block. Which are kept depends on nothing but the indexes applied, so replicas that are less than about 16,000 entries apart
// have one in common.
type ring struct {
	latest, blocks []Mark // by index
}

func (r *ring) note(m Mark) {
	if n := len(r.blocks); n == 0 || r.blocks[n-1].Index>>blockBits != m.Index>>blockBits {
		r.blocks = push(r.blocks, m)
	}
	r.latest = push(r.latest, m)
}

// push appends, and lets go of the oldest where there are enough.
func push(marks []Mark, m Mark) []Mark {
	if len(marks) == ringSize {
		copy(marks, marks[1:])
		marks = marks[:ringSize-1]
	}
	return append(marks, m)
}

func (r *ring) all() []Mark {
	out := slices.Concat(r.blocks, r.latest)
	slices.SortFunc(out, func(a, b Mark) int { return int(int64(a.Index - b.Index)) })
	return slices.CompactFunc(out, func(a, b Mark) bool { return a.Index == b.Index })
}

// Sum is the sum after the last entry applied, and that entry's index.
func (f *FSM) Sum() (index uint64, sum [32]byte) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.mu.index, f.mu.sum
}

// Sums are the marks that this replica still has, by index: at most 128.
func (f *FSM) Sums() []Mark {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.mu.sums.all()
}

// Compare looks at the greatest index that both have a mark of. ok is false where there is none: nothing is known then.
func Compare(a, b []Mark) (index uint64, same, ok bool) {
	for i, j := len(a)-1, len(b)-1; i >= 0 && j >= 0; {
		switch {
		case a[i].Index == b[j].Index:
			return a[i].Index, a[i].Sum == b[j].Sum, true
		case a[i].Index > b[j].Index:
			i--
		default:
			j--
		}
	}
	return 0, false, false
}
