package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// temp is a file that is not an object yet: `.tmp-` and 16 random hex digits, in the directory it is made in. Its owner
// holds the file's lock for as long as it is open, and a lock dies with its process. So whoever gets the lock of a
// temporary file knows that its owner is dead and may remove it ([sweep]): no age has to be waited out, during which a
// crash loop could fill the disk, and no process id is asked, which would mean nothing in another container or on
// another host of a shared directory.
type temp struct {
	fs   FS
	path string
	file File
	size int64
	lost error // why the content can no longer be made durable; never nil again once set
	done int64 // bytes that are known to be on disk, when complete; -1 before the first sync
}

// createTemp makes a temporary file and locks it. Between the two steps a sweeper may take it for an orphan; then it
// has lost its name, or the sweeper still holds its lock, and another one is made.
func createTemp(fsys FS, dir string) (*temp, error) {
	for range 100 {
		t := &temp{fs: fsys, path: filepath.Join(dir, fmt.Sprintf("%s%016x", tempPrefix, rand.Uint64())), done: -1}
		ours, err := t.open()
		if err != nil || ours {
			return t, err
		}
	}
	return nil, fmt.Errorf("no temporary file to be had in %s: others take each away", dir)
}

func (t *temp) open() (ours bool, err error) {
	t.file, err = t.fs.OpenFile(t.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err = t.file.TryLock(); err == nil {
		ours, err = t.file.Linked()
	}
	if errors.Is(err, ErrLocked) {
		err = nil
	}
	if !ours {
		t.discard()
	}
	return ours, err
}

func (t *temp) write(p []byte) (int, error) {
	n, err := t.file.WriteAt(p, t.size)
	t.size += int64(n)
	return n, err
}

// sync makes the content durable. It never asks twice for the same bytes: after a failed fsync the kernel may have
// dropped the pages, and would say yes to a second one. What is lost stays lost.
func (t *temp) sync() error {
	if t.lost != nil {
		return t.lost
	}
	if t.done == t.size {
		return nil
	}
	if err := t.file.Sync(); err != nil {
		t.lost = fmt.Errorf("what was staged is lost since a sync failed: %w", err)
		return err
	}
	t.done = t.size
	return nil
}

// discard closes and removes the file. What cannot be removed is swept later, so its error is of no use to a caller.
func (t *temp) discard() {
	if t.file == nil {
		return
	}
	t.fs.Remove(t.path)
	t.file.Close()
	t.file = nil
}

// sweep removes the temporary files of dead owners in a directory. It is best effort: what it cannot remove is waste,
// not damage.
func sweep(fsys FS, dir string) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) && e.Type().IsRegular() {
			removeOrphan(fsys, filepath.Join(dir, e.Name()))
		}
	}
}

func removeOrphan(fsys FS, name string) {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if f.TryLock() == nil {
		fsys.Remove(name)
	}
}

// makeDir makes a directory below root, and durable the names on the way to it. A directory that exists already is
// synced as well: who made it may have died before doing so.
func makeDir(fsys FS, root, dir string) error {
	if dir == root {
		return makePath(fsys, root)
	}
	parent := filepath.Dir(dir)
	if err := makeDir(fsys, root, parent); err != nil {
		return err
	}
	_, err := makeOne(fsys, dir)
	if err == nil {
		err = fsys.SyncDir(parent)
	}
	return err
}

// makePath does the same up to the root of the file system. Directories up there that others have made may be closed to
// us, or not able to sync; that is none of our business.
func makePath(fsys FS, dir string) error {
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	if err := makePath(fsys, parent); err != nil {
		return err
	}
	made, err := makeOne(fsys, dir)
	if err != nil {
		return err
	}
	err = fsys.SyncDir(parent)
	if !made && (fileKind(err) == ErrPermission || errors.Is(err, syscall.EINVAL)) {
		err = nil
	}
	return err
}

// makeOne makes a directory whose parent exists.
func makeOne(fsys FS, dir string) (made bool, err error) {
	err = fsys.Mkdir(dir, 0o755)
	if err == nil {
		return true, nil
	}
	info, serr := fsys.Stat(dir)
	switch {
	case serr != nil:
		return false, err
	case !info.IsDir():
		return false, &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	return false, nil
}
