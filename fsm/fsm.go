// Package fsm puts the replicated tables behind one log. It routes commands to the tables, keeps the cluster's time, and carries all
// tables in one snapshot. What a command means is known to its table alone.
package fsm

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/dedupset"
	"github.com/stream-arrow/twgd/lease"
	"github.com/stream-arrow/twgd/roster"
	"github.com/stream-arrow/twgd/tuning"
)

// Section is what a table is to the log. No method is called beside another of the same table, except that what Snapshot returned runs
// beside anything, and that Query may run beside Query and Next.
//
// Replicas must stay equal, byte for byte, also while the nodes of a cluster run different versions of the program. So a table takes
// what it decides from its state, the command and the time that it is handed, and a reply holds codes, not texts that a later version
// might word differently.
type Section interface {
	// Apply carries out a command at the cluster's time now. It is total: a command that is wrong gets a reply that says so.
	Apply(now time.Duration, cmd []byte) (reply []byte)
	// Query answers a question without changing anything.
	Query(q []byte) (reply []byte)
	// Next is the earliest time at which something expires.
	Next() (at time.Duration, ok bool)
	// Expire lets go of what has expired at now. It is called before each Apply, of whichever table, and at ticks.
	Expire(now time.Duration)
	// Snapshot returns at once; what it returns writes the table as it was then, and may run beside later Applies.
	Snapshot() func(w io.Writer) error
	// Restore replaces the table by what Snapshot of that version wrote. It reads to the end of r. Where it fails, the table is
	// not used any more.
	Restore(version uint16, r io.Reader) error
	// Version is what Snapshot writes, and the greatest that Restore reads.
	Version() uint16
}

// Tables are the tables behind the log, one line each. The section tag names the table's row in the list of reserved names, which
// gives it its route; the type gives everything else.
type Tables struct {
	Roster *roster.Table   `section:"roster"`
	Leases *lease.Table    `section:"leases"`
	Tuning *tuning.Table   `section:"tuning"`
	Dedup  *dedupset.Table `section:"dedup"`
}

// FSM is the state machine behind Raft: raft.BatchingFSM. Apply, ApplyBatch, Snapshot and Restore are called by Raft from one
// goroutine; all other methods may be called at any time, from anywhere.
type FSM struct {
	mu struct {
		sync.RWMutex
		state
	}
}

// state is what the log has made so far.
type state struct {
	tables   *Tables
	sections []section     // of tables, by route
	now      time.Duration // cluster time: the greatest that an entry carried. Never goes back
	index    uint64        // of the last entry applied
	sum      [32]byte      // over all entries and replies up to index, see chain
	sums     ring
}

// New is a state machine that has applied nothing.
func New() *FSM {
	f := &FSM{}
	f.mu.state = fresh()
	return f
}

func fresh() state {
	tables := &Tables{}
	return state{tables: tables, sections: bind(tables)}
}

// Reply is what Apply answers where the entry reached its table.
type Reply struct{ Body []byte }

// Apply carries out one entry: its answer is a Reply, or an error where the entry reached no table. An entry that reaches no table
// still moves the time that it carries, and is part of the sum.
func (f *FSM) Apply(log *raft.Log) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.apply(log)
}

// ApplyBatch carries out entries in order, under one lock. Entries of Raft's own are answered with nil.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]any, len(logs))
	for i, log := range logs {
		out[i] = f.mu.apply(log)
	}
	return out
}

func (s *state) apply(log *raft.Log) any {
	if log.Type != raft.LogCommand {
		return nil
	}
	reply, err := s.carry(log.Data)
	s.index = log.Index
	s.sum = chain(s.sum, log.Index, log.Data, reply, err == nil)
	s.sums.note(Mark{Index: log.Index, Sum: s.sum})
	if err != nil {
		return fmt.Errorf("entry %d: %w", log.Index, err)
	}
	return Reply{Body: reply}
}

// carry moves the time, lets go of what has expired, and hands the command to its table.
func (s *state) carry(data []byte) ([]byte, error) {
	e, err := parse(data)
	if err != nil {
		return nil, err
	}
	s.advance(e.at)
	if e.route == routeTick {
		return nil, nil
	}
	for i := range s.sections {
		if s.sections[i].route == e.route {
			return s.sections[i].Apply(s.now, e.cmd), nil
		}
	}
	return nil, fmt.Errorf("%w %d", ErrRoute, e.route)
}

func (s *state) advance(at time.Duration) {
	s.now = max(s.now, at)
	for i := range s.sections {
		if next, ok := s.sections[i].Next(); ok && next <= s.now {
			s.sections[i].Expire(s.now)
		}
	}
}

// Read shows the tables, the cluster's time and the index of the last entry, all of one moment. Apply waits meanwhile: read returns
// soon, changes nothing, keeps no pointer into a table, and calls no method of the FSM.
func (f *FSM) Read(read func(t *Tables, now time.Duration, index uint64)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	read(f.mu.tables, f.mu.now, f.mu.index)
}

// Query puts a question to a table. The error is ErrRoute, wrapped.
func (f *FSM) Query(route byte, q []byte) ([]byte, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i := range f.mu.sections {
		if f.mu.sections[i].route == route {
			return f.mu.sections[i].Query(q), nil
		}
	}
	return nil, fmt.Errorf("a question: %w %d", ErrRoute, route)
}

// Next is the earliest time at which something in any table expires. While there is one, a leader that has proposed nothing for a
// second proposes a Tick: not only at that time, since the time that a leader has not written into the log is lost with it, and its
// successor's clock goes on from the last entry.
func (f *FSM) Next() (at time.Duration, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i := range f.mu.sections {
		if next, has := f.mu.sections[i].Next(); has && (!ok || next < at) {
			at, ok = next, true
		}
	}
	return at, ok
}
