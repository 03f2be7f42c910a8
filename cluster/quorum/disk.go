package quorum

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	boltName  = "raft.db"
	snapsName = "snapshots" // as raft's own store names it
	spoolName = "restore.tmp"
	roomName  = "room.tmp"
)

// retain is how many snapshots are kept: the newest, and one to fall back to where its checksum is wrong.
const retain = 2

// lockWait bounds the wait for another process that has the Bolt file open; it shuts down, or it is a mistake.
const lockWait = 2 * time.Second

// kv is what is kept beside the log: id, term, vote.
type kv interface {
	Set(key, val []byte) error
	Get(key []byte) ([]byte, error)
	SetUint64(key []byte, val uint64) error
	GetUint64(key []byte) (uint64, error)
}

// disk is the bare raft directory, before anything is wrapped around it.
type disk struct {
	dir   string
	logs  raft.LogStore
	kv    kv
	snaps raft.SnapshotStore
	room  func() error // proves that there is room again, by writing
	close func() error
}

// openDisk opens the directory, which exists, and removes what an earlier process left half-written.
//
// The options of Bolt: the freelist is not written with each commit (it is found again at opening), and it is a map, because a list is
// searched from its start. An entry thus costs one fdatasync of two pages and one of the meta page.
func openDisk(dir string, log hclog.Logger) (*disk, error) {
	for _, name := range []string{spoolName, roomName} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("cleaning the raft directory: %w", err)
		}
	}
	if err := sweep(dir, "*"); err != nil {
		return nil, err
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path:        filepath.Join(dir, boltName),
		BoltOptions: &bbolt.Options{Timeout: lockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
	})
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", filepath.Join(dir, boltName), naming(err))
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(dir, retain, log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the snapshots of %s: %w", dir, naming(err)), bolt.Close())
	}
	return &disk{dir: dir, logs: bolt, kv: bolt, snaps: snaps, room: func() error { return tryRoom(dir) }, close: bolt.Close}, nil
}

// naming says in our own words what a library's error means.
func naming(err error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("another process has it open: %w", err)
	}
	return err
}

// sweep removes half-written snapshots. Raft's store leaves them behind where their last bytes found no room.
func sweep(dir, pattern string) error {
	left, err := filepath.Glob(filepath.Join(dir, snapsName, pattern+".tmp"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing a half-written snapshot: %w", err)
		}
	}
	return nil
}

// roomBytes is how much must fit before a full disk counts as usable again: a few of the longest entries.
const roomBytes = 1 << 20

// tryRoom writes, because what statfs says is not what a quota or a reserve allows.
func tryRoom(dir string) error {
	path := filepath.Join(dir, roomName)
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, roomBytes))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
