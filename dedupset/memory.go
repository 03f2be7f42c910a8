package dedupset

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// region is a piece of zeroed memory that the collector neither scans nor counts, where the platform has such: a heap of a few
// megabytes beside gigabytes of claims would else be let grow to their size before it is collected.
//
// It goes back to the system once nobody points at the region, so whoever uses a slice of it keeps the region itself alive.
type region struct {
	mem   []byte
	ready atomic.Bool // every page is there, or nothing can be done about it
}

// heapOnly is set by tests: the race detector does not see memory off the heap.
var heapOnly bool

func newRegion(size int) *region {
	r := &region{}
	if !heapOnly {
		r.mem = mapMemory(size)
	}
	if r.mem == nil {
		r.mem = make([]byte, size)
		r.ready.Store(true)
		return r
	}
	runtime.AddCleanup(r, unmapMemory, r.mem)
	return r
}

// pieceSize is how much a helper readies at once: a system call that is not interruptible takes some milliseconds for it.
const pieceSize = 2 << 20

// prepare has a helper touch every page, which the kernel would else do inside an Apply: 1.5–12 µs a page of 4 KiB, milliseconds one
// of 2 MiB. The helper asks the kernel for it and writes nothing itself, so it may run beside anything. It ends by itself.
func (r *region) prepare() {
	if r.ready.Load() {
		return
	}
	go func() {
		for rest := r.mem; len(rest) > 0; rest = rest[min(len(rest), pieceSize):] {
			if !populate(rest[:min(len(rest), pieceSize)]) {
				break
			}
		}
		r.ready.Store(true)
	}()
}

// chunkBits is how many rows a chunk has, as a power of two.
const chunkBits = 16

const chunkRows = 1 << chunkBits

// chunk is room for rows. A row that has been written does not change until its chunk is used anew, and that never happens while a
// snapshot has it pinned.
type chunk struct {
	rows *[chunkRows][rowSize]byte // in region
	mem  *region
	pins atomic.Int32 // snapshots that have yet to write it
}

func newChunk() *chunk {
	r := newRegion(chunkRows * rowSize)
	return &chunk{rows: (*[chunkRows][rowSize]byte)(unsafe.Pointer(unsafe.SliceData(r.mem))), mem: r}
}
