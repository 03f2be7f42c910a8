// Package quorum is Raft as twgd uses it: one server of the quorum that holds the replicated tables. It hides what the library does by
// default and must not: see docs/adr/0014-raft-as-we-use-it.md. Who holds a seat is decided elsewhere; here a decision is carried out.
package quorum

import (
	"errors"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/fsm"
)

var (
	// ErrUnknown says that a command may have been carried out, or may yet be. Whoever proposed it asks or repeats it: commands are
	// idempotent by the id of their request.
	ErrUnknown = errors.New("the outcome is unknown")
	// ErrTooLarge says that a command exceeds what one entry of the log holds. It was not proposed.
	ErrTooLarge = fsm.ErrTooLarge
	// ErrDiskFull says that this server's disk has no room. Nothing was proposed.
	ErrDiskFull = errors.New("the disk of the raft directory is full")
	// ErrClosed says that the server was put down. Nothing was proposed.
	ErrClosed = errors.New("the raft server is closed")
	// ErrRefused says that a change would break a rule that keeps the quorum alive. It was not proposed.
	ErrRefused = errors.New("the change is refused")
)

// ErrNotLeader says that this server does not lead, and who does as far as it knows. Nothing was proposed.
type ErrNotLeader struct{ Leader string } // a server id, empty where unknown

func (e ErrNotLeader) Error() string {
	if e.Leader == "" {
		return "not the leader, and none is known"
	}
	return "not the leader, that is " + e.Leader
}

// Options of one server.
type Options struct {
	Dir       string           // <data_dir>/raft, where Create has made an id
	FSM       *fsm.FSM         // fresh
	Stream    raft.StreamLayer // connections between servers: the addresses that it dials are server ids. Closed by Close
	Transport raft.Transport   // instead of Stream: a whole transport, its addresses are server ids
	Log       *slog.Logger     // nil: slog.Default
	Limits    Limits
}

// Limits bound what Raft keeps. Zero values mean the defaults. Where the last snapshot is larger than Snapshot, its size counts instead, and a
// quarter of it instead of Trailing, if that is more: the log is then up to one and a quarter times as large as the tables, and twice while
// a server catches up.
type Limits struct {
	Snapshot int64 // bytes of log after which a snapshot is taken; default 8 MiB
	Trailing int64 // bytes of log kept behind a snapshot for servers that lag; default 8 MiB
	Cache    int64 // bytes of recent entries kept in memory; default 8 MiB
}

// Role is what a server is in the latest configuration that it holds, committed or not.
type Role uint8

const (
	None Role = iota
	Nonvoter
	Voter
)

// Server is one server of the configuration.
type Server struct {
	ID    string
	Voter bool
}

// State is what a server knows of itself and its quorum at one moment.
type State struct {
	ID              string
	Role            Role   // in the latest configuration
	Leader          bool   // leads, as far as it knows
	Ready           bool   // leads, and has applied all that it held when it took office
	LeaderID        string // empty where unknown
	Term            uint64
	LastIndex       uint64 // of the last entry held
	LastTerm        uint64
	Applied         uint64
	Servers         []Server // the latest configuration
	ConfigIndex     uint64   // of the latest configuration
	ConfigCommitted bool
	DiskFull        bool
	Failed          error // the disk failed otherwise: the server is of no use until it is opened again
}

// Follower is what a leader last heard of another server.
type Follower struct {
	Contact   time.Time // when it last answered; zero: never. Of this process's monotonic clock
	LastIndex uint64    // what it said to hold then
}

// Meta describes a snapshot.
type Meta struct {
	Index, Term uint64
	Size        int64 // bytes
}

// Disk is what lies in a raft directory.
type Disk struct {
	ID          string // name~birth; empty where nothing was made yet
	Name, Birth string
	HasState    bool // has a term, a log or snapshots; false where snapshots do not reach the log's first entry
	LastIndex   uint64
	LastTerm    uint64
	Servers     []Server // the latest configuration that it holds
	Broken      string   // why what lies there counts as an empty disk; nothing else is set then
}
