package store

import (
	"io"
	"io/fs"
	"os"
)

// FS is the part of a file system that a file: bucket and an AppendFile use. Tests put one in its place that runs out
// of room in the middle of a write, fails to sync once, or loses power ([github.com/stream-arrow/twgd/store/storetest]).
// Names are absolute paths; errors are those of package os, so that errors.Is finds the errno.
type FS interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Link gives a file a second name and fails with fs.ErrExist when the name is taken: the one create-only operation
	// that file systems promise, NFS included.
	Link(old, name string) error
	// Rename replaces what has the new name.
	Rename(old, name string) error
	Remove(name string) error
	Mkdir(name string, perm fs.FileMode) error
	// ReadDir lists a directory in no particular order.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
}

// File is an open file of an FS.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	// Sync makes data and metadata durable (fsync).
	Sync() error
	// Datasync makes the data durable, and of the metadata what reading it back needs, which includes the size
	// (fdatasync).
	Datasync() error
	Stat() (fs.FileInfo, error)
	// TryLock takes the exclusive lock of the file, which ends with the descriptor or the process, or fails at once
	// with an error for which errors.Is(err, ErrLocked) holds.
	TryLock() error
	// Linked tells whether the file still has a name.
	Linked() (bool, error)
}

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

// linkError is os.LinkError under the name that this package's errors use.
type linkError = os.LinkError

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Link(old, name string) error               { return os.Link(old, name) }
func (osFS) Rename(old, name string) error             { return os.Rename(old, name) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }
func (osFS) Stat(name string) (fs.FileInfo, error)     { return os.Stat(name) }

func (osFS) ReadDir(name string) ([]fs.DirEntry, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

type osFile struct{ *os.File }
