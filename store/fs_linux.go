package store

import (
	"os"
	"runtime"
	"syscall"
)

// Datasync is fdatasync, which on Linux writes the inode too where the data could not be read back without it: a size
// that grew, blocks newly allocated. What it leaves out is times, which saves a journal commit where the size stays.
func (f osFile) Datasync() error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		runtime.KeepAlive(f.File)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		return nil
	}
}
