//go:build unix

package store

import (
	"errors"
	"fmt"
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

func (f osFile) Linked() (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false, fmt.Errorf("stat %s: no link count", f.Name())
	}
	return st.Nlink > 0, nil
}
