package roster

import "time"

// StartView is what one node knows of itself and its surroundings while it has no settled place: it starts, it has lost its leader, or
// it stops. Begin answers it with one Move; ask again whenever something of it changes, and each second.
type StartView struct {
	Cluster string
	Me      string // server id, written to disk before anything is asked
	Name    string
	Ordinal int // -1: none
	// State: the disk holds a Raft log or snapshot (founded, joined before, or restored).
	State bool
	// Facts of my own table, as far as applied; zero without state.
	Facts Facts
	// Seats are the ids with a seat in the latest configuration on my disk.
	Seats []string
	// Unconfirmed: I have no seat in my latest configuration, and that configuration is not committed as far as I know.
	Unconfirmed bool
	Leading     bool // I am the leader
	Raft        bool // Raft runs here

	Asking    time.Duration // how long peers have been asked, by this process
	NoLeader  time.Duration // how long no leader was heard of; 0 while there is one
	FoundAt   time.Duration // cluster.found_after
	Joining   bool          // twgd join: never founds
	Found     bool          // --found
	Peers     []Peer        // every address of join but mine, and whoever else was met (gossip, last known addresses)
	Leader    *Answer       // the newest answer of a verified leader to my check-in; nil: none
	Store     *StoreView    // nil: no backup store is configured
	Departure Departure
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
	Claiming             // no state yet, but it is founding
	HasState             // it belongs to a founding
	Foreign              // another cluster's name or another secret
)

// Answer is what a verified leader says to a check-in.
type Answer struct {
	ID, Addr  string
	Role      Role
	Facts     Facts
	Tombstone bool   // my id was removed for good
	NameAlive string // address at which my name is in contact under another birth; "" if it is not
	Granted   *Mark  // committed grant for me
	Refused   *Mark  // committed refusal of my leave
	Stuck     bool   // I was removed because nothing could be sent to my address
}

// StoreView is what is known of the backup store.
type StoreView struct {
	Reached  bool   // was read since the process started
	Error    string // why not
	Latest   uint64 // newest claimed incarnation; 0: none
	Claimant string // server id in that claim
	Founding [16]byte
	Note     []string // names in the voters note: they may be too many, never too few
	Restore  bool     // restore: auto
}

// Departure is how far this process is on its way out.
type Departure struct {
	Intent    Intent
	Nonce     uint64
	Left      time.Duration // of the grace period; counts while Intent is not Stays, and only for Terminating
	Forced    bool          // a second signal
	LastStop  bool          // as leader: Decide said Stop
	Remaining int           // of those I granted by 4b, how many are still heard
	Waited    time.Duration // since LastStop
}

// Move is the next thing for the node to do.
type Move struct {
	Kind        MoveKind
	Addr        string   // Join: who is to be asked for a place; StayOut: where my name lives
	Founding    [16]byte // Yield: the founding that stays
	Presumptive bool     // Found: yields to any confirmed founding
	Incarnation uint64   // Claim, Restore, Found: the incarnation
	Case        string   // short word for status and metrics: "waiting", "conflict", …
	Text        string   // what is waited for, or why this is done, names and addresses filled in
}

// MoveKind is what a Move does. Each says whether Raft runs.
type MoveKind uint8

const (
	Hold     MoveKind = iota // wait for what Text says; Raft runs where there is state and it was not parked
	Serve                    // a leader has a role for me: Raft runs
	Park                     // a leader has no role for me: stop Raft, keep the disk, work
	Join                     // no state: be a member of the founding at Addr, Raft starts without bootstrap once a leader adds me
	Claim                    // store: create-only claim of Incarnation, then ask again
	FoundIt                  // bootstrap {me}, write the facts
	Restore                  // claim Incarnation, load the newest backup that verifies (none: start empty), raise the fencing epoch
	Confirm                  // I lead a presumptive founding and every listed address was heard: propose confirm
	Yield                    // stop Raft, drop the directory, join Founding
	Renew                    // removed, or of an older incarnation: Raft directory aside, new birth, join
	StayOut                  // my name is alive under another birth: Raft does not run
	Conflict                 // two confirmed foundings: refuse the other, raise an alarm, go on
	Force                    // one election of forced candidacy
	Resume                   // the leave was refused: say Stays again
	StopNow                  // close the transport, stop Raft; end when ingest has drained
	StopDrop                 // the same, and drop the state: I have left for good
)
