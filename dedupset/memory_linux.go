package dedupset

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeFrom is the size from which on pages of 2 MiB are asked for: below, they would be mostly empty.
const hugeFrom = 4 << 20

// mapMemory is zeroed memory off the heap, or nil. It does not use unix.Mmap, whose lock is held while other memory goes back to the
// system: an Apply would wait for that.
func mapMemory(size int) []byte {
	at, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil
	}
	mem := unsafe.Slice((*byte)(at), size)
	if size >= hugeFrom {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // a kernel without them serves small pages
	}
	return mem
}

func unmapMemory(mem []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))) // of what was mapped whole it cannot fail
}

// populate makes the kernel fill in pages; it says whether it could.
func populate(mem []byte) bool {
	for {
		if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != unix.EINTR {
			return err == nil
		}
	}
}
