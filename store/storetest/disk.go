package storetest

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stream-arrow/twgd/store"
)

// Page is the unit in bytes in which a Disk writes back and loses content. It is small, so that a block of a few
// hundred bytes has many.
const Page = 64

// Disk is a file system in memory that forgets as a real one does. What was written is in the page cache, which
// everybody reads, and gets to the disk by a sync; until then a power loss keeps any subset of the dirty pages, the old
// or the new size, and any subset of the names that were made or removed. A sync that fails marks the pages clean all
// the same, as Linux does, having written any subset of them: a second sync finds nothing to do and succeeds.
//
// All randomness comes from the seed. Safe for concurrent use.
type Disk struct {
	mu     sync.Mutex
	rng    *rand.Rand
	inodes map[string]*inode // by name, as processes see it
	stored map[string]*inode // by name, as a power loss leaves it
	epoch  int               // the process: files opened in an earlier one are closed
	fault  func(Op) error
}

// Op is an operation that a fault may befall.
type Op struct {
	Name string // write, sync, truncate, syncdir, link, open, create, mkdir, remove, rename, read
	Path string
	Size int // of a write, in bytes
}

// Late is the error of a link whose reply was lost: it has been done all the same.
type Late struct{ Err error }

func (l Late) Error() string { return l.Err.Error() }
func (l Late) Unwrap() error { return l.Err }

// Partial is the error of a write of which only the first N bytes were written.
type Partial struct {
	N   int
	Err error
}

func (p Partial) Error() string { return p.Err.Error() }
func (p Partial) Unwrap() error { return p.Err }

type inode struct {
	dir    bool
	cache  []byte
	disk   []byte
	dirty  []bool // by page; shorter than the content where the rest is clean
	locked *handle
}

// NewDisk makes an empty disk.
func NewDisk(seed uint64) *Disk {
	root := &inode{dir: true}
	return &Disk{
		rng:    rand.New(rand.NewPCG(seed, 1)),
		inodes: map[string]*inode{"/": root},
		stored: map[string]*inode{"/": root},
	}
}

// Fault asks f before each operation from now on; its error, if any, is what the operation fails with. Nil: no faults.
// F must not use the disk.
func (d *Disk) Fault(f func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Kill ends the process: its files are closed and its locks free, and the page cache stays.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kill()
}

func (d *Disk) kill() {
	d.epoch++
	for _, n := range d.inodes {
		n.locked = nil
	}
}

// PowerLoss ends the process, and with it the page cache.
func (d *Disk) PowerLoss() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kill()
	seen := map[*inode]bool{}
	for _, tree := range []map[string]*inode{d.inodes, d.stored} {
		for _, name := range sorted(tree) {
			if n := tree[name]; !seen[n] {
				seen[n] = true
				n.lose(d.rng)
			}
		}
	}
	d.loseNames()
}

// lose keeps any subset of what was not synced.
func (n *inode) lose(rng *rand.Rand) {
	for p := range (max(len(n.cache), len(n.disk)) + Page - 1) / Page {
		if n.isDirty(p) && rng.IntN(2) == 0 {
			n.writeBack(p)
		}
	}
	if rng.IntN(2) == 0 {
		n.disk = resize(n.disk, len(n.cache))
	}
	n.cache = append([]byte(nil), n.disk...)
	n.dirty = nil
}

func (n *inode) isDirty(p int) bool { return p < len(n.dirty) && n.dirty[p] }

// writeBack puts one page on the disk; the size grows with it.
func (n *inode) writeBack(p int) {
	from, to := p*Page, min((p+1)*Page, len(n.cache))
	if from >= to {
		return
	}
	n.disk = resize(n.disk, max(len(n.disk), to))
	copy(n.disk[from:to], n.cache[from:to])
}

func resize(p []byte, n int) []byte {
	if n <= len(p) {
		return p[:n:n]
	}
	p = slices.Grow(p, n-len(p))
	old := len(p)
	p = p[:n]
	clear(p[old:])
	return p
}

// loseNames lets each change of a name that was not synced survive or not. A name whose directory is lost is lost.
func (d *Disk) loseNames() {
	all := maps.Clone(d.inodes)
	maps.Copy(all, d.stored)
	for _, name := range sorted(all) {
		if d.inodes[name] != d.stored[name] && d.rng.IntN(2) == 0 {
			d.settleName(name)
		}
	}
	for _, name := range sorted(d.stored) {
		if d.stored[filepath.Dir(name)] == nil {
			delete(d.stored, name)
		}
	}
	d.inodes = maps.Clone(d.stored)
}

// settleName makes a name on disk what it is in memory.
func (d *Disk) settleName(name string) {
	if n := d.inodes[name]; n != nil {
		d.stored[name] = n
	} else {
		delete(d.stored, name)
	}
}

func (d *Disk) fails(op Op) error {
	if d.fault == nil {
		return nil
	}
	return d.fault(op)
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// parent says what is wrong with the directory that a name is to be in.
func (d *Disk) parent(name string) error {
	switch dir := d.inodes[filepath.Dir(name)]; {
	case dir == nil:
		return syscall.ENOENT
	case !dir.dir:
		return syscall.ENOTDIR
	}
	return nil
}

// OpenFile knows the flags O_CREATE, O_EXCL and O_TRUNC.
func (d *Disk) OpenFile(name string, flag int, _ fs.FileMode) (store.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.parent(name); err != nil {
		return nil, pathError("open", name, err)
	}
	n := d.inodes[name]
	op := Op{Name: "open", Path: name}
	if n == nil && flag&os.O_CREATE != 0 {
		op.Name = "create"
	}
	if err := d.fails(op); err != nil {
		return nil, pathError("open", name, err)
	}
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, syscall.ENOENT)
	case n != nil && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, syscall.EEXIST)
	case n == nil:
		n = &inode{}
		d.inodes[name] = n
	}
	return &handle{d: d, n: n, name: name, epoch: d.epoch}, nil
}

func (d *Disk) Link(old, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.fails(Op{Name: "link", Path: name})
	late, isLate := err.(Late)
	switch {
	case err != nil && !isLate:
	case d.inodes[old] == nil:
		err = syscall.ENOENT
	case d.inodes[name] != nil:
		err = syscall.EEXIST
	default:
		err = d.parent(name)
	}
	if err == nil {
		d.inodes[name] = d.inodes[old]
		err = late.Err
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: old, New: name, Err: err}
	}
	return nil
}

func (d *Disk) Rename(old, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.fails(Op{Name: "rename", Path: name})
	switch {
	case err != nil:
	case d.inodes[old] == nil:
		err = syscall.ENOENT
	case d.inodes[name] != nil && d.inodes[name].dir:
		err = syscall.EISDIR
	default:
		err = d.parent(name)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: old, New: name, Err: err}
	}
	d.inodes[name] = d.inodes[old]
	delete(d.inodes, old)
	return nil
}

func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fails(Op{Name: "remove", Path: name}); err != nil {
		return pathError("remove", name, err)
	}
	if d.inodes[name] == nil {
		return pathError("remove", name, syscall.ENOENT)
	}
	delete(d.inodes, name)
	return nil
}

func (d *Disk) Mkdir(name string, _ fs.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inodes[name] != nil {
		return pathError("mkdir", name, syscall.EEXIST)
	}
	if err := d.parent(name); err != nil {
		return pathError("mkdir", name, err)
	}
	if err := d.fails(Op{Name: "mkdir", Path: name}); err != nil {
		return pathError("mkdir", name, err)
	}
	d.inodes[name] = &inode{dir: true}
	return nil
}

func (d *Disk) ReadDir(name string) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch n := d.inodes[name]; {
	case n == nil:
		return nil, pathError("open", name, syscall.ENOENT)
	case !n.dir:
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	var out []fs.DirEntry
	for _, child := range sorted(d.inodes) {
		if child != name && filepath.Dir(child) == name {
			out = append(out, fs.FileInfoToDirEntry(d.info(child)))
		}
	}
	return out, nil
}

func (d *Disk) Stat(name string) (fs.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inodes[name] == nil {
		return nil, pathError("stat", name, syscall.ENOENT)
	}
	return d.info(name), nil
}

// SyncDir makes the names directly in a directory durable; one that fails has done so for any subset of them.
func (d *Disk) SyncDir(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inodes[name] == nil {
		return pathError("open", name, syscall.ENOENT)
	}
	err := d.fails(Op{Name: "syncdir", Path: name})
	all := maps.Clone(d.inodes)
	maps.Copy(all, d.stored)
	for _, child := range sorted(all) {
		if child != "/" && filepath.Dir(child) == name && (err == nil || d.rng.IntN(2) == 0) {
			d.settleName(child)
		}
	}
	if err != nil {
		return pathError("sync", name, err)
	}
	return nil
}

// Files names all files, for a test that looks for what was left behind.
func (d *Disk) Files() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, name := range sorted(d.inodes) {
		if !d.inodes[name].dir {
			out = append(out, strings.TrimPrefix(name, "/"))
		}
	}
	return out
}

func (d *Disk) info(name string) fs.FileInfo {
	n := d.inodes[name]
	return info{name: filepath.Base(name), size: int64(len(n.cache)), dir: n.dir}
}

type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Unix(0, 0) }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
