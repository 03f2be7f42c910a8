package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// FileLock keeps a directory or a chain to one process. It is a flock: it ends with the process, however that ends, so
// the file stays where it is and its presence alone means nothing. Its content names the holder, for people.
type FileLock struct {
	file File
}

// Lock takes the lock at path without waiting, making the file and its directory where they are missing. If another
// descriptor holds it, in this or another process, the error is an ErrLocked that names the holder as far as the file
// tells.
func Lock(path string) (*FileLock, error) { return LockIn(OS, path) }

// LockIn is Lock in a file system; nil means the operating system's.
func LockIn(fsys FS, path string) (*FileLock, error) {
	fsys = orOS(fsys)
	if err := makePath(fsys, filepath.Dir(path)); err != nil {
		return nil, refuseMissing("lock", path, err)
	}
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, refuseMissing("lock", path, err)
	}
	if err := f.TryLock(); err != nil {
		defer f.Close()
		if errors.Is(err, ErrLocked) {
			return nil, &Error{Op: "lock", Key: path, Kind: ErrLocked, Err: holder(f)}
		}
		return nil, refuseMissing("lock", path, err)
	}
	if err := sign(f); err != nil {
		f.Close()
		return nil, refuseMissing("lock", path, err)
	}
	return &FileLock{f}, nil
}

// sign writes who holds the lock: the process id, and the host, since the directory may be seen by several.
func sign(f File) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "pid %d on %s\n", os.Getpid(), host), 0)
	return err
}

// holder is what the file says about the process that has locked it; nil where it says nothing (yet).
func holder(f File) error {
	p := make([]byte, 200)
	n, _ := f.ReadAt(p, 0)
	who := strings.TrimSpace(strings.ToValidUTF8(string(p[:n]), ""))
	if who == "" {
		return nil
	}
	return errors.New("held by " + who)
}

// Holds is an ErrLocked when the lock's file has been removed: whoever comes next makes another one, locks that, and believes to
// be alone. One fstat, no allocation.
func (l *FileLock) Holds() error {
	linked, err := l.file.Linked()
	if err == nil && linked {
		return nil
	}
	return &Error{Op: "lock", Key: "lock", Kind: ErrLocked, Err: errors.Join(err, errRemoved)}
}

var errRemoved = errors.New("the lock's file has been removed, so that another process may own what it guards; restart this one")

// Unlock gives the lock up.
func (l *FileLock) Unlock() error { return l.file.Close() }
