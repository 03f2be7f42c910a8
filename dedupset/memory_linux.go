package dedupset

import "golang.org/x/sys/unix"

// hugeFrom is the size from which on pages of 2 MiB are asked for: below, they would be mostly empty.
const hugeFrom = 4 << 20

// mapMemory is zeroed memory off the heap, or nil.
func mapMemory(size int) []byte {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil
	}
	if size >= hugeFrom {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // a kernel without them serves small pages
	}
	return mem
}

func unmapMemory(mem []byte) { _ = unix.Munmap(mem) }

// populate makes the kernel fill in pages; it says whether it could.
func populate(mem []byte) bool {
	for {
		if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != unix.EINTR {
			return err == nil
		}
	}
}
