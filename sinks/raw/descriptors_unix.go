//go:build unix

package raw

import "syscall"

// descriptorLimit is how many files the chains of one store keep open: a quarter of what the process may have.
func descriptorLimit() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 64
	}
	return int(max(64, min(r.Cur/4, 1<<16)))
}
