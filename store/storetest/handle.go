package storetest

import (
	"io"
	"io/fs"
	"path/filepath"

	"github.com/stream-arrow/twgd/store"
)

// handle is an open file.
type handle struct {
	d     *Disk
	n     *inode
	name  string
	epoch int
	shut  bool
}

// use locks the disk for an operation on an open file; done must be called when err is nil.
func (h *handle) use(op string) (done func(), err error) {
	h.d.mu.Lock()
	if h.shut || h.epoch != h.d.epoch {
		h.d.mu.Unlock()
		return nil, pathError(op, h.name, fs.ErrClosed)
	}
	return h.d.mu.Unlock, nil
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	done, err := h.use("read")
	if err != nil {
		return 0, err
	}
	defer done()
	if err := h.d.fails(Op{Name: "read", Path: h.name}); err != nil {
		return 0, pathError("read", h.name, err)
	}
	if off >= int64(len(h.n.cache)) {
		return 0, io.EOF
	}
	k := copy(p, h.n.cache[off:])
	if k < len(p) {
		return k, io.EOF
	}
	return k, nil
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	done, err := h.use("write")
	if err != nil {
		return 0, err
	}
	defer done()
	n := len(p)
	err = h.d.fails(Op{Name: "write", Path: h.name, Size: len(p)})
	if err != nil {
		n = 0
		if part, ok := err.(Partial); ok {
			n, err = min(part.N, len(p)), part.Err
		}
	}
	h.n.write(p[:n], off)
	if err != nil {
		return n, pathError("write", h.name, err)
	}
	return n, nil
}

func (n *inode) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	from, to := int(off), int(off)+len(p)
	from = min(from, len(n.cache)) // a hole is zeros, and dirty
	if to > len(n.cache) {
		n.cache = resize(n.cache, to)
	}
	copy(n.cache[off:], p)
	n.touch(from, to)
}

func (n *inode) touch(from, to int) {
	if pages := (to + Page - 1) / Page; pages > len(n.dirty) {
		n.dirty = append(n.dirty, make([]bool, pages-len(n.dirty))...)
	}
	for p := from / Page; p*Page < to; p++ {
		n.dirty[p] = true
	}
}

// Truncate drops the pages behind the new end and dirties the one that it cuts.
func (h *handle) Truncate(size int64) error {
	done, err := h.use("truncate")
	if err != nil {
		return err
	}
	defer done()
	if err := h.d.fails(Op{Name: "truncate", Path: h.name}); err != nil {
		return pathError("truncate", h.name, err)
	}
	n := h.n
	old := len(n.cache)
	n.cache = resize(n.cache, int(size))
	n.dirty = n.dirty[:min(len(n.dirty), (int(size)+Page-1)/Page)]
	if int(size) != old {
		n.touch(min(int(size), old)/Page*Page, max(int(size), min(old, int(size))))
	}
	return nil
}

func (h *handle) Datasync() error { return h.Sync() }

func (h *handle) Sync() error {
	done, err := h.use("sync")
	if err != nil {
		return err
	}
	defer done()
	n := h.n
	err = h.d.fails(Op{Name: "sync", Path: h.name})
	for p := range (len(n.cache) + Page - 1) / Page {
		if n.isDirty(p) && (err == nil || h.d.rng.IntN(2) == 0) {
			n.writeBack(p)
		}
	}
	n.dirty = nil
	if err != nil {
		return pathError("sync", h.name, err)
	}
	n.disk = resize(n.disk, len(n.cache))
	return nil
}

func (h *handle) Stat() (fs.FileInfo, error) {
	done, err := h.use("stat")
	if err != nil {
		return nil, err
	}
	defer done()
	return info{name: filepath.Base(h.name), size: int64(len(h.n.cache)), dir: h.n.dir}, nil
}

func (h *handle) TryLock() error {
	done, err := h.use("flock")
	if err != nil {
		return err
	}
	defer done()
	if h.n.locked != nil && h.n.locked != h {
		return store.ErrLocked
	}
	h.n.locked = h
	return nil
}

func (h *handle) Linked() (bool, error) {
	done, err := h.use("stat")
	if err != nil {
		return false, err
	}
	defer done()
	for _, n := range h.d.inodes {
		if n == h.n {
			return true, nil
		}
	}
	return false, nil
}

func (h *handle) Close() error {
	done, err := h.use("close")
	if err != nil {
		return err
	}
	defer done()
	h.shut = true
	if h.n.locked == h {
		h.n.locked = nil
	}
	return nil
}
