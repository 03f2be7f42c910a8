package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/fsm"
)

const (
	snapshotAgain = 5 * time.Second        // after one that failed
	lookAgain     = 200 * time.Millisecond // while a server catches up
	patience      = 4                      // times Limits.Snapshot: more log is not kept for one that catches up, unless the tables are larger
	roomAgain     = 2 * time.Second        // between two tries whether a full disk has room
)

// takeSnapshots takes one each time enough log has come together, see journal. While another server catches up, from a snapshot or behind one,
// the next waits: it would take away the entries that the other is about to ask for, and the whole way would begin again.
func (q *Quorum) takeSnapshots() {
	for {
		select {
		case <-q.journal.due:
		case <-q.ctx.Done():
			return
		}
		for q.ctx.Err() == nil && q.postponed() {
			q.sleep(lookAgain)
		}
		if err := q.compact(q.ctx); err != nil && q.ctx.Err() == nil {
			q.log.Error("failed to take snapshot", "error", err)
			q.sleep(snapshotAgain)
		}
	}
}

func (q *Quorum) postponed() bool { return q.journal.patient() && q.transport.catching() }

func (q *Quorum) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-q.ctx.Done():
	}
}

// compact takes a snapshot and drops the log behind it, up to Limits.Trailing. Where it fails, or where it did not take in enough, it is
// due again.
func (q *Quorum) compact(ctx context.Context) error {
	bytes, trailing := q.journal.pending()
	if q.raft.AppliedIndex() <= q.journal.boundary().index {
		q.journal.settled(bytes) // all of it is not committed
		return nil
	}
	f, err := q.snapshot(ctx, trailing)
	if err != nil {
		q.journal.settled(0)
		return err
	}
	q.journal.settled(bytes)
	return discard(f)
}

func discard(f raft.SnapshotFuture) error {
	_, r, err := f.Open()
	if err != nil {
		return err
	}
	return r.Close()
}

// snapshot makes raft take one. Raft refuses right after a change of the configuration, while that is committed and has not come to the
// tables; on a leader a barrier waits for that, others wait for the next try.
func (q *Quorum) snapshot(ctx context.Context, trailing uint64) (raft.SnapshotFuture, error) {
	rc := q.raft.ReloadableConfig()
	rc.TrailingLogs = trailing
	if err := q.raft.ReloadConfig(rc); err != nil {
		return nil, err
	}
	var f raft.SnapshotFuture
	err := q.wait(ctx, func() error {
		f = q.raft.Snapshot()
		err := f.Error()
		if err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) || q.raft.Barrier(0).Error() != nil {
			return err
		}
		f = q.raft.Snapshot()
		return f.Error()
	})
	if err != nil {
		return nil, err // f may be written yet
	}
	return f, nil
}

// Snapshot gives the tables as they are now, or later, as bytes that fsm.Verify and Restore take. Any server does. The reader is closed
// by the caller, before Close.
func (q *Quorum) Snapshot(ctx context.Context) (io.ReadCloser, Meta, error) {
	if err := q.gate.enter(ctx); err != nil {
		return nil, Meta{}, err
	}
	defer q.gate.leave()
	bytes, trailing := q.journal.pending()
	f, err := q.snapshot(ctx, trailing)
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil, Meta{}, fmt.Errorf("taking a snapshot: %w", err)
	}
	open := q.latest
	if err == nil {
		q.journal.settled(bytes)
		open = f.Open
	}
	m, r, err := open()
	if err != nil {
		return nil, Meta{}, fmt.Errorf("opening a snapshot: %w", err)
	}
	return r, Meta{Index: m.Index, Term: m.Term, Size: m.Size}, nil
}

// latest opens the snapshot that is there already.
func (q *Quorum) latest() (*raft.SnapshotMeta, io.ReadCloser, error) {
	metas, err := q.disk.snaps.List()
	if err != nil {
		return nil, nil, err
	}
	if len(metas) == 0 {
		return nil, nil, errors.New("nothing was applied yet")
	}
	return q.disk.snaps.Open(metas[0].ID)
}

// Restore replaces the tables of all servers by a snapshot of size bytes; the configuration stays. The leader does, and proposals wait
// meanwhile. The snapshot is read to its end and verified before anything is touched, because raft panics where the tables refuse it.
func (q *Quorum) Restore(ctx context.Context, r io.Reader, size int64) error {
	if err := q.restore(ctx, r, size); err != nil {
		return fmt.Errorf("restoring the tables: %w", err)
	}
	return nil
}

func (q *Quorum) restore(ctx context.Context, r io.Reader, size int64) error {
	if err := q.begin(ctx); err != nil {
		return err
	}
	defer q.end()
	spool, head, err := q.spool(r, size)
	if err != nil {
		return err
	}
	defer func() { spool.Close(); os.Remove(spool.Name()) }()
	if err := q.gate.close(ctx); err != nil {
		return err
	}
	defer q.gate.reopen()
	o := q.office.Load()
	if o == nil {
		return q.notLeader()
	}
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: head.Index, Term: o.term, Size: size}
	err = q.wait(context.Background(), func() error { // who reads the spool holds the gate
		if err := q.raft.Barrier(0).Error(); err != nil {
			return err
		}
		return q.raft.Restore(meta, spool, 0)
	})
	if err != nil {
		return q.outcome(err)
	}
	q.rebase(o)
	return nil
}

// spool keeps the snapshot in a file, verified and ready to be read.
func (q *Quorum) spool(r io.Reader, size int64) (*os.File, fsm.Header, error) {
	f, err := os.Create(filepath.Join(q.disk.dir, spoolName))
	if err != nil {
		return nil, fsm.Header{}, naming(err)
	}
	head, err := fill(f, r, size)
	if err != nil {
		return nil, head, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, head, nil
}

func fill(f *os.File, r io.Reader, size int64) (fsm.Header, error) {
	n, err := io.Copy(f, r)
	if err != nil {
		return fsm.Header{}, naming(err)
	}
	if n != size {
		return fsm.Header{}, fmt.Errorf("the snapshot has %d bytes instead of %d", n, size)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fsm.Header{}, err
	}
	head, err := fsm.Verify(f)
	if err != nil {
		return head, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return head, err
}

// watchRoom finds out when a disk that was full has room again, and before that makes another server the leader that holds as much as
// this one: raft steps down where an entry cannot be stored, and without a word the others would wait for a heartbeat timeout.
func (q *Quorum) watchRoom() {
	for q.ctx.Err() == nil {
		rung := q.bell.wait()
		if full, _ := q.health.look(); full {
			q.log.Error("the disk of the raft directory is full", "dir", q.disk.dir)
			q.pass()
			q.awaitRoom()
			continue
		}
		select {
		case <-rung:
		case <-q.ctx.Done():
			return
		}
	}
}

// pass tells the server that holds all of our log to stand. Only who takes us for its leader listens.
func (q *Quorum) pass() {
	last := q.journal.lastEntry().index
	for _, s := range q.servers() {
		f := q.Follower(s.ID)
		if !s.Voter || f.LastIndex < last || time.Since(f.Contact) > heartbeat {
			continue
		}
		id := raft.ServerID(s.ID)
		req := &raft.TimeoutNowRequest{RPCHeader: q.transport.header()}
		if q.transport.TimeoutNow(id, raft.ServerAddress(id), req, &raft.TimeoutNowResponse{}) == nil {
			return
		}
	}
}

func (q *Quorum) awaitRoom() {
	for q.ctx.Err() == nil {
		if q.disk.room() == nil {
			q.health.roomAgain()
			return
		}
		q.sleep(roomAgain)
	}
}
