package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// fileBucket is a directory of a local or shared file system. An object is a file; the way there is always
//
//	temporary file in the root → write → fsync → link(2) to its name → fsync of the directory → remove the temporary name
//
// link and not rename, because rename replaces what has the name. The data is synced before it has a name, so a name
// never leads to less than the whole object, whatever fails. The directory is synced after: where that fails, the name
// is there but may be gone after a power loss. Such a directory is remembered in unsynced, and nothing is read from it
// or found in it until a later sync has succeeded: else the caller, told ErrUnknown, would read its object back, go on,
// and lose it. For the same reason a loser syncs the directory before it is told ErrExists: the winner may not have yet.
//
// Two processes may share the directory; nothing here needs a lock between them.
type fileBucket struct {
	fs   FS
	root string

	mu struct {
		sync.RWMutex
		made     map[string]bool // directories that exist and whose names on the way to them are durable
		unsynced map[string]bool // directories whose last sync failed
	}
}

func openFile(dir string, opt Options) (Bucket, error) {
	b := &fileBucket{fs: opt.FS, root: filepath.Clean(dir)}
	if b.fs == nil {
		b.fs = OS
	}
	b.mu.made = map[string]bool{}
	b.mu.unsynced = map[string]bool{}
	if err := makePath(b.fs, b.root); err != nil {
		return nil, refuseMissing("open", b.root, err)
	}
	sweep(b.fs, b.root)
	return b, nil
}

// refuseMissing is fileError for places where "not found" is no answer about an object.
func refuseMissing(op, key string, err error) error {
	kind := fileKind(err)
	if kind == ErrNotFound || kind == ErrExists {
		kind = nil
	}
	return &Error{Op: op, Key: key, Kind: kind, Err: err}
}

func (b *fileBucket) path(key string) string { return filepath.Join(b.root, filepath.FromSlash(key)) }

func (b *fileBucket) Local() (string, bool) { return b.root, true }

func (b *fileBucket) Close() error { return nil }

func (b *fileBucket) Create(ctx context.Context, key string, body []byte) error {
	return b.put(ctx, "create", key, body, b.link)
}

func (b *fileBucket) Replace(ctx context.Context, key string, body []byte) error {
	return b.put(ctx, "replace", key, body, b.rename)
}

func (b *fileBucket) put(ctx context.Context, op, key string, body []byte, name func(t *temp, path string) error) error {
	if err := begin(ctx, op, key); err != nil {
		return err
	}
	t, err := createTemp(b.fs, b.root)
	if err != nil {
		return refuseMissing(op, key, err)
	}
	defer t.discard()
	if _, err := t.write(body); err != nil {
		return refuseMissing(op, key, err)
	}
	return b.publish(op, key, t, name)
}

// begin is what every operation on a key does first.
func begin(ctx context.Context, op, key string) error {
	if err := badKey(op, key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &Error{Op: op, Key: key, Err: context.Cause(ctx)}
	}
	return nil
}

// publish syncs the temporary file and gives it its name. A stage whose sync failed must not be synced again, since the
// kernel may have dropped the pages and would say yes; its content is gone, and every further publish fails.
func (b *fileBucket) publish(op, key string, t *temp, name func(t *temp, path string) error) error {
	if err := t.sync(); err != nil {
		return refuseMissing(op, key, err)
	}
	path := b.path(key)
	dir := filepath.Dir(path)
	linked, err := b.inDir(dir, func() error { return name(t, path) })
	exists := errors.Is(err, fs.ErrExist)
	switch {
	case err == nil || exists:
	case linked && !surelyNot(err):
		b.distrust(dir)
		return &Error{Op: op, Key: key, Kind: ErrUnknown, Err: err}
	default:
		return refuseMissing(op, key, err)
	}
	if err := b.syncDir(dir); err != nil {
		return &Error{Op: op, Key: key, Kind: ErrUnknown, Err: err}
	}
	if exists {
		return &Error{Op: op, Key: key, Kind: ErrExists}
	}
	return nil
}

// surelyNot tells that a link or rename that failed has not happened. Of other errors (EIO, ESTALE, a timeout) a
// network file system may only have lost the reply.
func surelyNot(err error) bool {
	return fileKind(err) != nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EMLINK)
}

// inDir makes the directory and then does f in it; once more if somebody has removed the directory in between. Done
// tells whether it was f that failed.
func (b *fileBucket) inDir(dir string, f func() error) (done bool, err error) {
	if err := b.makeDir(dir); err != nil {
		return false, err
	}
	if err := f(); !errors.Is(err, fs.ErrNotExist) {
		return true, err
	}
	b.mu.Lock()
	clear(b.mu.made)
	b.mu.Unlock()
	if err := b.makeDir(dir); err != nil {
		return false, err
	}
	return true, f()
}

// distrust remembers that names in a directory may not be durable.
func (b *fileBucket) distrust(dir string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.unsynced[dir] = true
}

func (b *fileBucket) makeDir(dir string) error {
	b.mu.RLock()
	made := b.mu.made[dir]
	b.mu.RUnlock()
	if made {
		return nil
	}
	if err := makeDir(b.fs, b.root, dir); err != nil {
		return err
	}
	b.mu.Lock()
	b.mu.made[dir] = true
	b.mu.Unlock()
	return nil
}

func (b *fileBucket) link(t *temp, path string) error { return b.fs.Link(t.path, path) }

func (b *fileBucket) rename(t *temp, path string) error { return b.fs.Rename(t.path, path) }

// syncDir syncs a directory and keeps book of those where that failed.
func (b *fileBucket) syncDir(dir string) error {
	if err := b.fs.SyncDir(dir); err != nil {
		b.distrust(dir)
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.unsynced, dir)
	return nil
}

// settle syncs a directory whose last sync failed, before anything in it is believed.
func (b *fileBucket) settle(dir string) error {
	b.mu.RLock()
	bad := len(b.mu.unsynced) > 0 && b.mu.unsynced[dir]
	b.mu.RUnlock()
	if !bad {
		return nil
	}
	return b.syncDir(dir)
}

func (b *fileBucket) Read(ctx context.Context, key string) ([]byte, error) {
	return b.ReadRange(ctx, key, 0, -1)
}

func (b *fileBucket) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := begin(ctx, "read", key); err != nil {
		return nil, err
	}
	path := b.path(key)
	if err := b.settle(filepath.Dir(path)); err != nil {
		return nil, refuseMissing("read", key, err)
	}
	p, err := readRange(b.fs, path, off, n)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) {
		// The key lies below an object, or is a directory of others: an object store has no object there.
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fileError("read", key, err)
	}
	return p, nil
}

// readRange reads up to the size that the file has at the start: an append file may be growing.
func readRange(fsys FS, path string, off, n int64) ([]byte, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, syscall.EISDIR
	}
	p := make([]byte, rangeLen(info.Size(), off, n))
	got, err := f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return p[:got], err
}

// rangeLen is how many bytes an object of this size has in a range.
func rangeLen(size, off, n int64) int64 {
	rest := max(0, size-off)
	if n < 0 || n > rest {
		return rest
	}
	return n
}

func (b *fileBucket) Delete(ctx context.Context, key string) error {
	if err := begin(ctx, "delete", key); err != nil {
		return err
	}
	path := b.path(key)
	info, err := b.fs.Stat(path)
	if err == nil && !info.IsDir() {
		err = b.fs.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err == nil {
		err = b.syncDir(filepath.Dir(path))
	}
	if err != nil {
		return refuseMissing("delete", key, err)
	}
	return nil
}

func (b *fileBucket) Probe(ctx context.Context) error { return probe(ctx, b) }
