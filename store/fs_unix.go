//go:build unix

package store

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

func (f osFile) TryLock() error {
	for {
		// Fd is harmless here: a regular file is never in the runtime's poller.
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		runtime.KeepAlive(f.File)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		case err != nil:
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// Linked asks the descriptor without an os.FileInfo, which would be allocated.
func (f osFile) Linked() (bool, error) {
	var st syscall.Stat_t
	for {
		err := syscall.Fstat(int(f.Fd()), &st)
		runtime.KeepAlive(f.File)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return false, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
		}
		return st.Nlink > 0, nil
	}
}
