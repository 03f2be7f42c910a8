// Package roster decides who holds a seat in the quorum, and how that changes.
//
// A seat is a voter in the Raft configuration. Everything here is pure: Decide looks at a View and answers with one Step; Begin does
// the same for one node that starts or stops; Watch turns what a leader hears into a View; Table is the replicated half. None of them
// has a clock, a goroutine or I/O: times are handed in as readings of one process's monotonic clock.
package roster

import (
	"strings"
	"time"
)

// View is what a leader knows of all nodes at one moment. Decide answers it with one Step.
//
// A node stays if it is in contact and carries no mark. It is away if it was granted or is out of contact. A candidate is a nonvoter
// that stays and is caught up.
type View struct {
	Me     string        // server id of the leader that looks
	Size   int           // how many seats the cluster wants: odd
	Settle time.Duration // how long a silent seat is waited for; already counted into Lost and Seasoned
	Busy   bool          // a proposal of mine is not applied yet, or nothing of my term is committed
	Nodes  []Node        // in any order, each id once; Me among them
}

// Node is one row of a View.
type Node struct {
	ID      string // name~birth: an empty disk under an old name is another server
	Name    string
	Ordinal int    // -1: none; then the order of joining counts, after all ordinals
	Joined  uint64 // the order of joining, from 1; 0: not written down yet, after all others
	Addr    string // host:port where the node says it can be reached
	Role    Role   // in the leader's latest configuration, committed or not: an appended configuration is in force

	// Contact: heard within 3 s, and not a seat that has lacked the configuration for 10 s. Of the leader itself always true.
	Contact bool
	// HasConfig: its last entry is of this term and its log reaches the last configuration entry. Peers refuse their vote to a
	// server without a seat in the configuration they hold, so nothing is changed before the seats in contact have it.
	HasConfig bool
	Caught    bool // HasConfig, and at most 256 entries behind

	// Marks and grants are committed; about itself the leader believes its own process, never the table.
	Going       bool // terminating: away for a while, its seat waits
	Leaving     bool // away for good: a promise that holds also while the node is away
	Granted     bool // may stop; counts as gone at once
	JustGranted bool // granted less than 5 s ago: a restart may be on its way back
	Returned    bool // a new process checks in without intent while a mark stands

	Lost       bool // out of contact for settle, or superseded
	Superseded bool // out of contact, and another birth of its name has checked in since
	Steady     bool // in contact without a break for 10 s
	Seasoned   bool // in contact without a break for settle
	Stuck      bool // was added, and for 30 s neither caught up nor got on: its address is not to be reached
}

// Role is what a server is in a configuration.
type Role uint8

const (
	None     Role = iota // not in the configuration: works, and asks the leader
	Nonvoter             // is sent the log, has no vote
	Voter                // holds a seat
)

func (r Role) String() string { return [...]string{"none", "nonvoter", "voter"}[min(r, Voter)] }

// Intent is what a process says of its own future.
type Intent uint8

const (
	Stays Intent = iota
	Terminating
	Leaving
)

func (i Intent) String() string {
	return [...]string{"stays", "terminating", "leaving"}[min(i, Leaving)]
}

// NameOf is the name in a server id: what stands before the last ~.
func NameOf(id string) string {
	if i := strings.LastIndexByte(id, '~'); i >= 0 {
		return id[:i]
	}
	return id
}
