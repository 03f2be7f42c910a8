package store

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// lister walks a directory in the byte order of keys, which is not the order of names: `a-b` comes before `a/c`, and
// `a/c` before `a0`, so a directory is sorted as its name and a slash. Subtrees that cannot hold a wanted key are never
// opened, and only entries that are shown are stat'ed. Symbolic links below the root are not followed and not shown.
type lister struct {
	b      *fileBucket
	ctx    context.Context
	prefix string
	after  string
	limit  int // 0: no limit
	out    []Entry
}

func (b *fileBucket) List(ctx context.Context, prefix, after string, limit int) ([]Entry, error) {
	l := &lister{b: b, ctx: ctx, prefix: prefix, after: after, limit: limit}
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if dir != "" {
		if err := checkDirPrefix(dir); err != nil {
			return nil, &Error{Op: "list", Kind: ErrPermission, Err: err}
		}
	}
	if err := l.walk(dir); err != nil {
		return nil, refuseMissing("list", prefix, err)
	}
	return l.out, nil
}

func (l *lister) full() bool { return l.limit > 0 && len(l.out) >= l.limit }

// wants tells whether a directory (a key with a slash behind it) can hold keys to be shown.
func (l *lister) wants(dir string) bool {
	if !strings.HasPrefix(dir, l.prefix) && !strings.HasPrefix(l.prefix, dir) {
		return false
	}
	return dir > l.after || strings.HasPrefix(l.after, dir)
}

func (l *lister) walk(dir string) error {
	if err := l.ctx.Err(); err != nil {
		return context.Cause(l.ctx)
	}
	entries, err := l.b.readDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if l.full() {
			return nil
		}
		if err := l.visit(dir+sortName(e), e); err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) visit(key string, e fs.DirEntry) error {
	if e.IsDir() {
		if !l.wants(key) {
			return nil
		}
		return l.walk(key)
	}
	if key <= l.after || !strings.HasPrefix(key, l.prefix) {
		return nil
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted since
	}
	if err == nil {
		l.out = append(l.out, Entry{Key: key, Size: info.Size(), Time: info.ModTime()})
	}
	return err
}

// readDir lists one directory ("" or a key and a slash) in key order: files and directories, nothing that is not an
// object yet. A directory that is not there is empty.
func (b *fileBucket) readDir(dir string) ([]fs.DirEntry, error) {
	path := b.path(dir)
	if err := b.settle(path); err != nil {
		return nil, err
	}
	all, err := b.fs.ReadDir(path)
	if dir != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(e fs.DirEntry) bool {
		return strings.HasPrefix(e.Name(), tempPrefix) || !(e.IsDir() || e.Type().IsRegular())
	})
	slices.SortFunc(all, func(x, y fs.DirEntry) int { return strings.Compare(sortName(x), sortName(y)) })
	return all, nil
}

func sortName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

func (b *fileBucket) Dirs(ctx context.Context, prefix string) ([]string, error) {
	if err := checkDirPrefix(prefix); err != nil {
		return nil, &Error{Op: "list", Kind: ErrPermission, Err: err}
	}
	entries, err := b.readDir(prefix)
	if err != nil {
		return nil, refuseMissing("list", prefix, err)
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		first, err := b.List(ctx, filepath.ToSlash(prefix+e.Name()+"/"), "", 1)
		if err != nil {
			return nil, err
		}
		if len(first) > 0 {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}
