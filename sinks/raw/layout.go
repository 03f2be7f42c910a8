package raw

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/store"
)

// A directory is written in one of two layouts, for good. One process alone appends to files, under a lock. Where several nodes see
// the directory, each commit is an object of its own, as on object storage: creating a name is the only thing that two hosts can
// be made to agree on, and no lock has to be believed in.
//
// What is written in the one layout and opened in the other would be torn or damaged, so each leaves a mark: the lock's file, which
// stays, and the object _layout. Both sides look for the other's mark before and after they leave their own: however two first
// starts race, not both go on.
const (
	layoutName = "_layout"
	layoutText = "objects\n"
	lockName   = "lock"
)

// ErrLayout says that the directory is written in the other layout. Nothing was changed.
var ErrLayout = errors.New("written in another layout")

// openShared opens a directory that several nodes see.
func (s *Store) openShared(ctx context.Context, dir string) error {
	if err := s.noFiles(dir); err != nil {
		return err
	}
	if !s.opt.ReadOnly {
		if _, _, err := chain.Once(ctx, s.opt.Bucket, s.opt.Stream+"/"+layoutName, []byte(layoutText)); err != nil {
			return fmt.Errorf("raw store of stream %s: %w", s.opt.Stream, err)
		}
		if err := s.noFiles(dir); err != nil {
			return err
		}
	}
	s.medium = &objects{bucket: s.opt.Bucket, codec: s.codec, stream: s.opt.Stream}
	return nil
}

// openFiles opens a directory that belongs to this process.
func (s *Store) openFiles(ctx context.Context, dir string) error {
	if err := s.noObjects(ctx); err != nil {
		return err
	}
	s.medium = newFiles(s.opt, dir, s.codec)
	if s.opt.ReadOnly {
		return nil
	}
	lock, err := store.LockIn(s.opt.FS, filepath.Join(dir, s.opt.Stream, lockName))
	if err != nil {
		return fmt.Errorf("raw store of stream %s: %w", s.opt.Stream, err)
	}
	if err := s.noObjects(ctx); err != nil {
		return errors.Join(err, lock.Unlock())
	}
	s.lock = lock
	return nil
}

// noFiles makes sure that no process has owned the directory for itself.
func (s *Store) noFiles(dir string) error {
	fsys := s.opt.FS
	if fsys == nil {
		fsys = store.OS
	}
	lock := filepath.Join(dir, s.opt.Stream, lockName)
	switch _, err := fsys.Stat(lock); {
	case err == nil:
		return &store.Error{Op: "open raw of stream " + s.opt.Stream, Kind: store.ErrPermission, Err: fmt.Errorf(
			"%w: %s says that one node alone has written here, and this stream is configured with shared: true; give it another raw location, or shared: false", ErrLayout, lock)}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("raw store of stream %s: %w", s.opt.Stream, err)
	}
	return nil
}

// noObjects makes sure that the directory is not one that several nodes share.
func (s *Store) noObjects(ctx context.Context) error {
	key := s.opt.Stream + "/" + layoutName
	switch _, err := s.opt.Bucket.Read(ctx, key); {
	case err == nil:
		return &store.Error{Op: "open raw of stream " + s.opt.Stream, Kind: store.ErrPermission, Err: fmt.Errorf(
			"%w: %s says that several nodes share this directory, and this stream is configured with shared: false; set shared: true, or give it another raw location", ErrLayout, key)}
	case !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("raw store of stream %s: %w", s.opt.Stream, err)
	}
	return nil
}
