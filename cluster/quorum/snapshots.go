package quorum

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// shelf is where raft puts its snapshots: the files, seen by journal and health.
type shelf struct {
	raft.SnapshotStore
	dir     string
	journal *journal
	health  *health
}

// Create begins a snapshot: one of our own, or one that a leader sends.
func (s *shelf) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	if s.health.isHalted() {
		return nil, ErrClosed
	}
	sink, err := s.SnapshotStore.Create(v, index, term, c, configIndex, t)
	if err != nil {
		s.health.noteRoom(err)
		return nil, errors.Join(naming(err), sweep(s.dir, fmt.Sprintf("%d-%d-*", term, index)))
	}
	return &binding{SnapshotSink: sink, shelf: s, snap: mark{index, term}, config: configIndex}, nil
}

// binding is one snapshot that is being written. Raft's sink leaves its files behind where it fails for want of room, which is when they
// must go; and it may not be used any more once its server is being put down.
type binding struct {
	raft.SnapshotSink
	shelf  *shelf
	snap   mark
	config uint64
	bytes  int64
}

func (b *binding) Write(p []byte) (int, error) {
	if b.shelf.health.isHalted() {
		return 0, ErrClosed
	}
	n, err := b.SnapshotSink.Write(p)
	b.bytes += int64(n)
	b.shelf.health.noteRoom(err)
	return n, err
}

func (b *binding) Close() error {
	if err := b.SnapshotSink.Close(); err != nil {
		b.shelf.health.noteRoom(err)
		return errors.Join(naming(err), b.sweep())
	}
	return b.shelf.journal.snapshotted(b.snap, b.config, b.bytes)
}

func (b *binding) Cancel() error {
	err := b.SnapshotSink.Cancel()
	b.shelf.health.noteRoom(err)
	return errors.Join(err, b.sweep())
}

func (b *binding) sweep() error { return sweep(b.shelf.dir, b.ID()) }
