package quorum

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// journal is the log as raft sees it: the Bolt file, with the newest entries in memory, and with an account of bytes. Raft counts
// entries, which may be of 100 bytes or of 256 KiB; here bytes say when a snapshot is due, how much log is kept behind it, and how much
// is cached. Without the cache Bolt reads back every entry that is sent to a follower.
//
// A snapshot is due when the log has grown as large as the last one was. So however large the tables are, at most as much is written for
// snapshots as for the log itself, and the log is never larger than the tables by much. What is kept behind a snapshot is a quarter of it: a
// server that lags by less is brought up with less than a snapshot would take.
type journal struct {
	store  raft.LogStore
	health *health
	limits Limits
	due    chan struct{} // holds a token when a snapshot is due
	ring   func()        // the configuration changed

	mu struct {
		sync.Mutex
		last    mark // the last entry of the log; zero where it is empty
		snap    mark // the newest snapshot
		configs []uint64
		cut     bool // the end was truncated, and nothing stored since
		loading bool // raft reads the log at its start: what it reads is counted as if it were written
		since   int64
		weight  int64 // bytes of the newest snapshot
		cache   window
		tail    tail
	}
}

var _ raft.LogStore = (*journal)(nil)

// mark names an entry of the log, or the last one in a snapshot.
type mark struct{ index, term uint64 }

// entrySize is what an entry costs beside its data.
const entrySize = 64

func size(e *raft.Log) int64 { return int64(len(e.Data)+len(e.Extensions)) + entrySize }

// newJournal also makes the log fit the newest snapshot, as snapshotted does: there may have been a crash between the two.
func newJournal(store raft.LogStore, h *health, l Limits, found lookout, ring func()) (*journal, error) {
	j := &journal{store: store, health: h, limits: l, due: make(chan struct{}, 1), ring: ring}
	last, err := store.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("reading the log: %w", err)
	}
	if last > 0 {
		var e raft.Log
		if err := store.GetLog(last, &e); err != nil {
			return nil, fmt.Errorf("reading entry %d of the log: %w", last, err)
		}
		j.mu.last = mark{e.Index, e.Term}
	}
	j.mu.cache.limit = l.Cache
	j.weigh(found.snapSize)
	j.mu.loading = true
	if found.snap.index == 0 {
		return j, nil
	}
	return j, j.snapshotted(found.snap, found.snapConfig, found.snapSize)
}

// loaded says that raft has started.
func (j *journal) loaded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.loading = false
	j.ringIfDue()
}

func (j *journal) FirstIndex() (uint64, error) { return j.store.FirstIndex() }
func (j *journal) LastIndex() (uint64, error)  { return j.store.LastIndex() }

// GetLog fills in an entry, which shares its bytes with the cache: nobody changes them.
func (j *journal) GetLog(index uint64, e *raft.Log) error {
	j.mu.Lock()
	cached := j.mu.cache.get(index)
	j.mu.Unlock()
	if cached != nil {
		*e = *cached
		return nil
	}
	if err := j.store.GetLog(index, e); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.loading && index > j.mu.snap.index {
		j.account(e)
	}
	return nil
}

func (j *journal) StoreLog(e *raft.Log) error { return j.StoreLogs([]*raft.Log{e}) }

// StoreLogs fails where the disk is full, and raft steps down, or refuses. Only after the end of the log was truncated it waits for room:
// raft takes no notice of the truncation until entries are stored in its place, and would look for ever for what is gone.
func (j *journal) StoreLogs(logs []*raft.Log) error {
	for {
		err := j.append(logs)
		j.mu.Lock()
		wait := j.mu.cut && isFull(err)
		j.mu.Unlock()
		if !wait || j.health.waitForRoom() {
			return err
		}
	}
}

func (j *journal) append(logs []*raft.Log) error {
	if err := j.health.refuses(); err != nil {
		return err
	}
	if err := j.store.StoreLogs(logs); err != nil {
		j.health.note(err)
		return naming(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.cut = false
	for _, e := range logs {
		kept := *e
		j.mu.cache.add(&kept)
		j.mu.last = mark{e.Index, e.Term}
		j.account(e)
	}
	j.ringIfDue()
	return nil
}

// account is called with mu held.
func (j *journal) account(e *raft.Log) {
	j.mu.since += size(e)
	j.mu.tail.add(e.Index, size(e))
	if e.Type == raft.LogConfiguration {
		j.mu.configs = append(j.mu.configs, e.Index)
		j.ring()
	}
}

// weigh takes in how large a snapshot is.
func (j *journal) weigh(size int64) {
	j.mu.weight = size
	j.mu.tail.limit = max(j.limits.Trailing, size/4)
}

// enough is how many bytes of log make a snapshot due.
func (j *journal) enough() int64 { return max(j.limits.Snapshot, j.mu.weight) }

func (j *journal) ringIfDue() {
	if j.mu.since < j.enough() {
		return
	}
	select {
	case j.due <- struct{}{}:
	default:
	}
}

// chunk is how many entries are deleted in one transaction: raft's main loop must not wait long for Bolt's lock.
const chunk = 2048

// DeleteRange deletes entries, both ends included. From the beginning of the log it goes in steps, low ones first: a crash between two
// leaves a log that begins later. The end of the log goes at once: half of it would leave a hole.
func (j *journal) DeleteRange(low, high uint64) error {
	if j.health.isHalted() {
		return ErrClosed
	}
	j.mu.Lock()
	last := j.mu.last
	j.mu.Unlock()
	if high >= last.index {
		return j.truncate(low, high)
	}
	for ; low <= high; low += chunk {
		if err := j.store.DeleteRange(low, min(high, low+chunk-1)); err != nil {
			j.health.note(err)
			return naming(err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.cache.dropTo(high)
	return nil
}

func (j *journal) truncate(low, high uint64) error {
	if err := j.store.DeleteRange(low, high); err != nil {
		j.health.note(err)
		return naming(err)
	}
	last, err := j.end()
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.last, j.mu.cut = last, last.index > 0
	j.mu.cache.clear()
	j.mu.tail.clear()
	for n := len(j.mu.configs); n > 0 && j.mu.configs[n-1] >= low && j.mu.configs[n-1] > j.mu.snap.index; n-- {
		j.mu.configs = j.mu.configs[:n-1]
	}
	j.ring()
	return nil
}

// end reads what the last entry is now.
func (j *journal) end() (mark, error) {
	last, err := j.store.LastIndex()
	if err != nil || last == 0 {
		return mark{}, err
	}
	var e raft.Log
	if err := j.store.GetLog(last, &e); err != nil {
		return mark{}, err
	}
	return mark{e.Index, e.Term}, nil
}

// snapshotted takes in that a snapshot is durable, and makes the log fit it. Where the log does not hold the snapshot's last entry it
// came from somebody else, and nothing is known of the entries up to there: they may be such as were never committed. Raft would keep
// some of them and might hand them on as a leader. What lies above stays: a leader truncates it.
func (j *journal) snapshotted(snap mark, config uint64, size int64) error {
	j.mu.Lock()
	j.mu.snap = snap
	j.weigh(size)
	j.mu.configs = append([]uint64{config}, after(j.mu.configs, config)...)
	last := j.mu.last.index
	j.mu.Unlock()
	first, err := j.store.FirstIndex()
	if err != nil || first == 0 || first > snap.index {
		return err
	}
	var e raft.Log
	err = j.store.GetLog(snap.index, &e)
	if err == nil && e.Term == snap.term {
		return nil
	}
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	j.mu.Lock()
	j.mu.cache.clear()
	j.mu.tail.clear()
	j.mu.Unlock()
	return j.DeleteRange(first, min(snap.index, last))
}

// after is what of configs came later than config.
func after(configs []uint64, config uint64) []uint64 {
	for i, c := range configs {
		if c > config {
			return configs[i:]
		}
	}
	return nil
}

// lastEntry is the last that this server holds, in its log or in a snapshot, as raft reckons it.
func (j *journal) lastEntry() mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.last.index >= j.mu.snap.index {
		return j.mu.last
	}
	return j.mu.snap
}

// boundary is the last entry in the newest snapshot.
func (j *journal) boundary() mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.snap
}

// config is the index of the latest configuration.
func (j *journal) config() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.mu.configs); n > 0 {
		return j.mu.configs[n-1]
	}
	return 0
}

// pending is how many bytes were appended since the last snapshot, and how many entries the next one is to leave behind it.
func (j *journal) pending() (bytes int64, trailing uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.since, j.mu.tail.entries()
}

// patient says whether the log is short enough to wait with a snapshot that is due.
func (j *journal) patient() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.since < max(patience*j.limits.Snapshot, 2*j.mu.weight)
}

// settled takes off what a snapshot took in.
func (j *journal) settled(bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.since -= bytes
	j.ringIfDue()
}
