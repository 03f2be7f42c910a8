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

// maxWatched bounds how many ids a leader keeps in mind; check-ins of further ones are not counted.
const maxWatched = 2 * maxMembers

// Watch keeps what a leader has heard since it took office, and makes a View of it. A new term of office starts a new one: what the
// last leader had heard is not known, so every server counts as heard at its beginning, and as lacking the configuration until it
// has checked in; rule 0 then waits for it, three seconds at most.
//
// Times are readings of the leader's monotonic clock. Not safe for concurrent use.
type Watch struct {
	since time.Duration
	nodes map[string]*heard
}

// NewWatch begins a term of office.
func NewWatch(now time.Duration) *Watch {
	return &Watch{since: now, nodes: map[string]*heard{}}
}

// heard is what is remembered of one id.
type heard struct {
	at       time.Duration // last heard, by check-in or Raft
	unbroken time.Duration // in contact without a break since
	silent   bool          // gossip holds it for dead, and nothing was heard since

	last    CheckIn       // zero before the first
	checked time.Duration // when it came; 0 with a zero last
	lag     uint64        // entries behind the leader when it came
	retired uint64        // nonce of the process before the present one: what still arrives of it is late

	moved   time.Duration // its log or its incoming snapshot last grew, or it became a nonvoter
	role    Role          // at the last look
	lacks   bool          // a seat in contact that lacked the configuration at the last look
	lacking time.Duration // since when

	grant   Mark          // at the last look
	granted time.Duration // since when

	stuckAddr string // address under which it was stuck
	stuckAt   time.Duration
}

// CheckIn notes what a node says. lastIndex is the leader's own at this moment: the lag is taken against it.
func (w *Watch) CheckIn(now time.Duration, c CheckIn, lastIndex uint64) {
	h := w.of(c.ID, now)
	if h == nil || c.Nonce == h.retired && c.Nonce != 0 && now-h.checked <= ContactFor {
		return // late news of a process that another has followed
	}
	h.hear(now)
	if h.last.Nonce != c.Nonce {
		h.retired = h.last.Nonce
	}
	if h.last.LastTerm != c.LastTerm || h.last.LastIndex != c.LastIndex || h.last.Received != c.Received {
		h.moved = now
	}
	h.last, h.checked = c, now
	h.lag = lastIndex - min(lastIndex, c.LastIndex)
}

// Heard notes that Raft has heard from a server.
func (w *Watch) Heard(now time.Duration, id string) {
	if h := w.nodes[id]; h != nil && now > h.at {
		h.hear(now)
	}
}

// Silent notes that gossip holds a node for dead. That shortens contact; nothing that gossip says lengthens it.
func (w *Watch) Silent(id string) {
	if h := w.nodes[id]; h != nil {
		h.silent = true
	}
}

// Nonce is that of the process that last checked in under id; 0: none has. A mark that an operator puts on a live node carries it.
func (w *Watch) Nonce(id string) uint64 {
	if h := w.nodes[id]; h != nil {
		return h.last.Nonce
	}
	return 0
}

func (w *Watch) of(id string, now time.Duration) *heard {
	h := w.nodes[id]
	if h == nil && len(w.nodes) < maxWatched {
		h = &heard{at: now, unbroken: now, moved: now}
		w.nodes[id] = h
	}
	return h
}

func (h *heard) hear(now time.Duration) {
	if !h.contact(now) {
		h.unbroken, h.moved = now, now // who was away has had no time to get on
	}
	h.at, h.silent = now, false
}

func (h *heard) contact(now time.Duration) bool { return !h.silent && now-h.at <= ContactFor }

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
	Incarnation         uint64 // that its disk belongs to; 0: it has no state. A disk of an older one is not taken in
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
