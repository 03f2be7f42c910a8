package roster

import "time"

// How long a leader waits before it believes what it hears, or does not hear.
const (
	ContactFor  = 3 * time.Second  // silent for longer: out of contact
	ConfigGrace = 10 * time.Second // a seat in contact that lacks the configuration for longer counts as out of contact
	SteadyAfter = 10 * time.Second // in contact without a break
	StuckAfter  = 30 * time.Second // a server that is added and gets no further
	StuckPause  = 5 * time.Minute  // how long one that was removed as stuck is left alone, unless its address changes
	GrantGrace  = 5 * time.Second  // how long a granted seat is not demoted by 4d
	CaughtLag   = 256              // entries
)

// CheckIn is what a node tells the leader, each second and at each change.
type CheckIn struct {
	ID, Name string
	Ordinal  int // -1: none
	Addr     string
	Intent   Intent
	// Nonce is made at random (not 0) when the process starts, and sent with every check-in, also while it stays: a mark carries the
	// nonce of the process it was made for, and a check-in that stays with another nonce is a process that has come back.
	Nonce               uint64
	LastTerm, LastIndex uint64 // of its log (its snapshot, where the log is empty)
	Received            uint64 // any number that grows while a snapshot comes in
}

// Server is one line of a Raft configuration.
type Server struct {
	ID    string
	Voter bool
}

// Office is what the leader knows of itself at the moment it looks.
type Office struct {
	Me                           string // server id
	Intent                       Intent // of its own process
	Nonce                        uint64
	Addr                         string
	Ordinal                      int
	Term, LastIndex, ConfigIndex uint64   // ConfigIndex: of the last configuration entry, committed or not
	Servers                      []Server // the latest configuration, committed or not
	Ready                        bool     // has applied all it held when it took office, and the latest configuration is committed
	Proposing                    bool     // a proposal of its own is not applied
	Size                         int
	Settle                       time.Duration
	Rows                         Rows // of the table
}
