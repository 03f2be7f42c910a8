package quorum

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faults stand between the bare disk and what is wrapped around it.
type faults struct {
	mu       sync.Mutex
	err      error         // every write fails with it
	storeErr error         // storing entries fails with it
	hold     chan struct{} // storing entries waits for it
	stores   atomic.Int64  // commits of entries
	stored   atomic.Int64  // entries
	reads    atomic.Int64  // entries read back
	writes   atomic.Int64  // everything that is written, commits of entries included
	keys     []string      // written beside the log, in order
	after    int           // writes beside the log that still succeed before err; -1: all fail
}

func (f *faults) on(d *disk) {
	f.after = -1
	d.logs = &faultyLogs{d.logs, f}
	d.kv = &faultyKV{d.kv, f}
	d.snaps = &faultySnaps{d.snaps, f}
	d.room = f.check
}

func (f *faults) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faults) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.err, f.storeErr)
}

// errFull is how the system says it, from inside Bolt when it grows its file.
var errFull = fmt.Errorf("file resize error: %s", error(syscall.ENOSPC))

type faultyLogs struct {
	raft.LogStore
	*faults
}

func (l *faultyLogs) StoreLogs(logs []*raft.Log) error {
	l.mu.Lock()
	hold, storeErr := l.hold, l.storeErr
	l.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if err := errors.Join(l.check(), storeErr); err != nil {
		return err
	}
	l.stores.Add(1)
	l.writes.Add(1)
	l.stored.Add(int64(len(logs)))
	return l.LogStore.StoreLogs(logs)
}

func (l *faultyLogs) GetLog(i uint64, e *raft.Log) error {
	l.reads.Add(1)
	return l.LogStore.GetLog(i, e)
}

func (l *faultyLogs) DeleteRange(a, b uint64) error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return err
	}
	l.writes.Add(1)
	return l.LogStore.DeleteRange(a, b)
}

type faultyKV struct {
	kv
	*faults
}

func (k *faultyKV) write(key []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil && k.after <= 0 {
		return k.err
	}
	k.after--
	k.keys = append(k.keys, string(key))
	k.writes.Add(1)
	return nil
}

func (k *faultyKV) Set(key, val []byte) error {
	if err := k.write(key); err != nil {
		return err
	}
	return k.kv.Set(key, val)
}

func (k *faultyKV) SetUint64(key []byte, val uint64) error {
	if err := k.write(key); err != nil {
		return err
	}
	return k.kv.SetUint64(key, val)
}

type faultySnaps struct {
	raft.SnapshotStore
	*faults
}

func (s *faultySnaps) Create(v raft.SnapshotVersion, i, t uint64, c raft.Configuration, ci uint64, tr raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(v, i, t, c, ci, tr)
	if err != nil {
		return nil, err
	}
	return &faultySink{sink, s.faults}, nil
}

type faultySink struct {
	raft.SnapshotSink
	*faults
}

func (s *faultySink) Write(p []byte) (int, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	s.writes.Add(1)
	return s.SnapshotSink.Write(p)
}
