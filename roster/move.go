package roster

import "time"

// StartView is what one node knows of itself and its surroundings. Begin answers it with one Move; ask again whenever something of it
// changes, and each second, as long as the node runs: the same rules hold while it starts, serves, loses its leader and stops.
type StartView struct {
	Me      string // server id, written to disk before anything is asked
	Name    string
	Ordinal int // -1: none

	State bool // the disk holds a Raft log or snapshot
	// Facts: Founding and Incarnation are those that this disk belongs to, written beside the birth when it was founded, joined or
	// restored, so that they do not lag as the applied table does after a start (Raft applies nothing before a leader tells how far
	// it may). A zero Incarnation is not known. Confirmed is the applied table's, and believed only while Leading.
	Facts       Facts
	Seats       []string // ids with a seat in the latest configuration on this disk
	Unconfirmed bool     // I have no seat in that configuration, and it is not committed as far as I know
	Leading     bool     // I am a verified leader that has applied all it held

	Asking     time.Duration // how long this process has asked its peers
	NoLeader   time.Duration // how long no leader was heard of, by Raft or check-in; 0 while one is
	FoundAfter time.Duration // cluster.found_after
	Joining    bool          // twgd join: never founds
	Found      bool          // --found
	Peers      []Peer        // every address of join but mine, and whoever else was met: by gossip, or a last known address
	Leader     *Answer       // the newest answer of a verified leader to my check-in, my own where I lead; nil: none for three seconds
	Store      *StoreView    // nil: no backup store is configured
	Departure  Departure
}

// Peer is an address that was asked, and what it answered.
type Peer struct {
	Addr      string
	Listed    bool // stands in join
	Says      Says
	ID, Name  string // of who answered
	Ordinal   int
	Facts     Facts // where it has state: Founding, Incarnation, Confirmed
	HasLeader bool
	Leads     bool   // it is a verified leader itself
	Error     string // why it is silent or foreign, in words
}

// Says is the kind of a peer's answer.
type Says uint8

const (
	Silent   Says = iota // no answer (yet)
	Empty                // no state
	Claiming             // no state yet, but it is founding or restoring
	HasState             // it belongs to a founding
	Foreign              // another cluster's name or another secret
)

// Answer is what a verified leader says to a check-in. Only a leader's word counts for what it says here.
type Answer struct {
	ID, Addr  string
	Role      Role   // of my id in its latest configuration
	Facts     Facts  // of its table, all applied
	Tombstone bool   // my id was removed for good
	NameAlive string // address at which my name is in contact under another birth; "" if it is not
	Granted   Mark   // the committed grant for my id; zero: none
	Refused   Mark   // the committed refusal of my leave; zero: none
	Stuck     bool   // I was removed because nothing could be sent to my address
}

// StoreView is what is known of the backup store.
type StoreView struct {
	Reached  bool     // was read by this process; what follows is the newest reading
	Error    string   // why not
	Latest   uint64   // newest claimed incarnation; 0: none
	Claimant string   // server id in that claim
	Note     []string // names in the voters note: they may be too many, never too few
	Restore  bool     // restore: auto
}

// Departure is how far this process is on its way out; zero while it stays.
type Departure struct {
	Intent    Intent
	Nonce     uint64
	Left      time.Duration // of the grace period; counts for Terminating, nobody waits for a leave with a watch in hand
	Forced    bool          // a second signal
	Last      bool          // I led, and Decide said Stop
	Waited    time.Duration // since then
	Remaining []string      // names that I granted and that are still heard
}

// Move is the next thing for the node to do.
type Move struct {
	Kind        MoveKind
	Addr        string   // Join: who is to be asked for a place; StayOut: where my name lives; Yield: a node of the other founding
	Founding    [16]byte // Join, Yield, Conflict: the other founding
	Presumptive bool     // Bootstrap: the founding yields to any confirmed one
	Incarnation uint64   // Claim, Bootstrap, Restore: the one to be founded or restored
	Text        string   // what is waited for, or why this is done: names and addresses filled in, an answer to "what now?"
}

// MoveKind is what a Move does. Each says whether Raft runs.
type MoveKind uint8

const (
	Hold      MoveKind = iota // wait for what Text says; Raft goes on where it runs, and starts where there is state
	Serve                     // a leader has a role for me: Raft runs
	Park                      // a leader has no role for me: Raft stops, the disk is kept, the node works
	Join                      // no state: check in with the founding at Addr; Raft starts without bootstrap
	Claim                     // write the create-only claim of Incarnation into the store, read it back, ask again
	Bootstrap                 // found: bootstrap {me}, write the facts
	Restore                   // under my claim of Incarnation: load the newest backup that verifies (none: start empty), raise the fencing epoch
	Confirm                   // I lead a presumptive founding and every listed address was heard: propose confirm; Raft runs
	Yield                     // stop Raft, drop the directory, begin anew: the founding here gives way to Founding
	Renew                     // removed, or of an older incarnation: stop Raft, put its directory aside, new birth, begin anew
	StayOut                   // my name is alive under another birth: Raft does not run
	Conflict                  // two confirmed foundings: refuse the other, raise an alarm, go on as before
	Force                     // Raft runs; elections of forced candidacy, one at a time, until there is a leader
	Resume                    // the leave was refused: say Stays again
	StopNow                   // close the transport, stop Raft; the process ends when ingest has drained
	StopDrop                  // the same, and drop the state: this node has left for good
)

var moveNames = [...]string{"hold", "serve", "park", "join", "claim", "bootstrap", "restore", "confirm", "yield", "renew", "stay out",
	"conflict", "force", "resume", "stop", "stop and drop"}

func (k MoveKind) String() string { return moveNames[min(int(k), len(moveNames)-1)] }
