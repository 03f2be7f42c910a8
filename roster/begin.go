package roster

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	ForceAfter = 10 * time.Second // without a leader, before forced candidacy
	LastGrace  = 3 * time.Second  // before the end of the grace period; and how long the last waits for those it granted
)

// Begin answers a StartView with the one move that is due. It is the node's side of what Decide is for the leader: pure, and an
// ordered table, one function a row. Whoever goes is let go first; a disk with state never founds; one without founds only where
// nobody else can.
func Begin(v StartView) Move {
	rows := emptyRows
	if v.State {
		rows = stateRows
	}
	for _, row := range slices.Concat(departRows, rows) {
		if m, due := row(&v); due {
			return m
		}
	}
	return hold(v.silence())
}

type row func(*StartView) (Move, bool)

var departRows = []row{
	(*StartView).deadline,
	(*StartView).refused,
	(*StartView).letGo,
	(*StartView).goLast,
	(*StartView).nothingToHandOver,
}

var stateRows = []row{
	(*StartView).removed,
	(*StartView).outlived,
	(*StartView).rival,
	(*StartView).confirm,
	(*StartView).place,
	(*StartView).force,
	(*StartView).announced,
}

var emptyRows = []row{
	(*StartView).announced,
	(*StartView).twin,
	(*StartView).resumeClaim,
	(*StartView).join,
	(*StartView).neverFound,
	(*StartView).needStore,
	(*StartView).restore,
	(*StartView).found,
}

// With state.

func (v *StartView) removed() (Move, bool) {
	if v.Leader == nil || !v.Leader.Tombstone {
		return no()
	}
	return Move{Kind: Renew, Text: "removed: " + v.Leader.ID + " says that " + v.Me + " was removed for good"}, true
}

// outlived: what this disk holds was given up when a later incarnation was claimed. A leader's word counts, or the store's; never a
// follower's, whose table may be older than it looks.
func (v *StartView) outlived() (Move, bool) {
	mine := v.Facts.Incarnation
	switch {
	case mine == 0:
		return no()
	case v.Leader != nil && v.Leader.Facts.Founding == v.Facts.Founding && v.Leader.Facts.Incarnation > mine:
		return Move{Kind: Renew, Text: fmt.Sprintf("removed: %s leads incarnation %d, the disk here is of %d", v.Leader.ID, v.Leader.Facts.Incarnation, mine)}, true
	case v.Store != nil && v.Store.Reached && v.Store.Latest > mine && v.Store.Claimant != v.Me:
		return Move{Kind: Renew, Text: fmt.Sprintf("removed: %s has claimed incarnation %d in the backup store, the disk here is of %d", v.Store.Claimant, v.Store.Latest, mine)}, true
	}
	return no()
}

// rival: another founding of the same name and secret is in sight. Whether the founding here is confirmed is known for certain to a
// leader only; a follower believes its leader's answer, and one without a leader waits, unless the others have left it.
func (v *StartView) rival() (Move, bool) {
	for _, p := range v.rivals() {
		confirmed, known := v.confirmed()
		switch {
		case known && confirmed && p.Facts.Confirmed:
			return Move{Kind: Conflict, Addr: p.Addr, Founding: p.Facts.Founding, Text: fmt.Sprintf("two confirmed foundings: %s here and %s at %s; "+
				"twgd leave --drop on the nodes of one gives it up, with its leases and claims", short(v.Facts.Founding), short(p.Facts.Founding), p.Addr)}, true
		case known && !confirmed && (p.Facts.Confirmed || v.greater(p)), !known && v.abandonedTo(p):
			return Move{Kind: Yield, Addr: p.Addr, Founding: p.Facts.Founding, Text: fmt.Sprintf("the founding %s here gives way to %s at %s",
				short(v.Facts.Founding), short(p.Facts.Founding), p.Addr)}, true
		}
	}
	return no()
}

func (v *StartView) rivals() (out []Peer) {
	for _, p := range v.Peers {
		if p.Says == HasState && v.Facts.Founding != [16]byte{} && p.Facts.Founding != v.Facts.Founding && p.Facts.Founding != [16]byte{} {
			out = append(out, p)
		}
	}
	return out
}

func (v *StartView) confirmed() (is, known bool) {
	switch {
	case v.Leading:
		return v.Facts.Confirmed, true
	case v.Leader != nil && v.Leader.Facts.Founding == v.Facts.Founding:
		return v.Leader.Facts.Confirmed, true
	}
	return false, false
}

// greater: of two presumptive foundings the one with the greater id yields.
func (v *StartView) greater(p Peer) bool {
	return !p.Facts.Confirmed && string(v.Facts.Founding[:]) > string(p.Facts.Founding[:])
}

// abandonedTo: so many seats of this founding answer under names of a confirmed rival that the rest is no quorum any more.
func (v *StartView) abandonedTo(p Peer) bool {
	left := 0
	for _, id := range v.Seats {
		gone := func(o Peer) bool { return o.Name == NameOf(id) && o.ID != id && o.Facts.Founding == p.Facts.Founding }
		left += one(!slices.ContainsFunc(v.rivals(), gone))
	}
	return p.Facts.Confirmed && len(v.Seats) > 0 && left < majority(len(v.Seats))
}

func (v *StartView) confirm() (Move, bool) {
	heard := func(p Peer) bool { return p.Says != Silent && p.Says != Foreign }
	if !v.Leading || v.Facts.Confirmed || v.Facts.Founding == [16]byte{} || len(v.rivals()) > 0 || v.anyListed(func(p Peer) bool { return !heard(p) }) {
		return no()
	}
	return Move{Kind: Confirm, Text: "every listed address was heard, and none belongs to another founding"}, true
}

// place is what the leader has for me.
func (v *StartView) place() (Move, bool) {
	l := v.Leader
	switch {
	case v.Leading:
		return Move{Kind: Serve, Text: "leads"}, v.Departure.Intent == Stays
	case l == nil:
		return no()
	case l.Role != None:
		return Move{Kind: Serve, Text: l.ID + " leads"}, v.Departure.Intent == Stays
	case l.NameAlive != "":
		return v.stayOut()
	case l.Stuck:
		return Move{Kind: Park, Text: "waiting: " + l.ID + " could send nothing to the address that is advertised here"}, v.Departure.Intent == Stays
	}
	return Move{Kind: Park, Text: "no seat: " + l.ID + " leads and asks for this node when one is free"}, v.Departure.Intent == Stays
}

func (v *StartView) stayOut() (Move, bool) {
	return Move{Kind: StayOut, Addr: v.Leader.NameAlive, Text: fmt.Sprintf("%s is alive at %s: one of the two needs another name", v.Name, v.Leader.NameAlive)}, true
}

// force mends what votes by the book cannot: peers refuse a server without a seat in the configuration they hold, and a server that an
// uncommitted configuration took the seat from never stands, though its log may be the newest.
func (v *StartView) force() (Move, bool) {
	if v.NoLeader < ForceAfter || !slices.ContainsFunc(v.Peers, v.kin) {
		return no()
	}
	return Move{Kind: Force, Text: "no leader for " + v.NoLeader.Round(time.Second).String() + ", standing for election without being asked for: " + v.seats()}, true
}

// kin: it belongs to the same founding.
func (v *StartView) kin(p Peer) bool {
	return p.Says == HasState && p.Facts.Founding == v.Facts.Founding
}

// Without state.

// twin: a new disk stays out while the old one lives.
func (v *StartView) twin() (Move, bool) {
	if v.Leader == nil || v.Leader.NameAlive == "" {
		return no()
	}
	return v.stayOut()
}

// resumeClaim: a claim in my id is a founding or restore that this very disk began.
func (v *StartView) resumeClaim() (Move, bool) {
	s := v.Store
	switch {
	case s == nil || !s.Reached || s.Latest == 0 || s.Claimant != v.Me:
		return no()
	case s.Latest == 1:
		return Move{Kind: Bootstrap, Incarnation: 1, Text: "founding under the claim of incarnation 1"}, true
	}
	return Move{Kind: Restore, Incarnation: s.Latest, Text: fmt.Sprintf("restoring under the claim of incarnation %d", s.Latest)}, true
}

func (v *StartView) join() (Move, bool) {
	p := v.founder()
	if p == nil {
		return no()
	}
	text := "joining through " + p.Addr
	if !p.HasLeader && !p.Leads {
		text = "waiting: " + p.Name + " at " + p.Addr + " has state, but no leader yet"
	}
	return Move{Kind: Join, Addr: p.Addr, Founding: p.Facts.Founding, Text: text}, true
}

// founder is the peer to join through: of a confirmed founding before a presumptive one, of the newest incarnation, of the smaller id,
// which does not yield; there a leader before one that knows a leader. An incarnation that was given up is passed over.
func (v *StartView) founder() *Peer {
	var best *Peer
	for i := range v.Peers {
		p := &v.Peers[i]
		outlived := v.Store != nil && v.Store.Reached && p.Facts.Incarnation != 0 && p.Facts.Incarnation < v.Store.Latest
		if p.Says == HasState && !outlived && (best == nil || p.rank(best) < 0) {
			best = p
		}
	}
	return best
}

func (p *Peer) rank(o *Peer) int {
	return cmp.Or(one(o.Facts.Confirmed)-one(p.Facts.Confirmed),
		cmp.Compare(o.Facts.Incarnation, p.Facts.Incarnation),
		bytes.Compare(p.Facts.Founding[:], o.Facts.Founding[:]),
		one(o.Leads)-one(p.Leads),
		one(o.HasLeader)-one(p.HasLeader))
}

func (v *StartView) neverFound() (Move, bool) {
	if !v.Joining {
		return no()
	}
	return Move{Kind: Hold, Text: "waiting for a node with state, join never founds: " + v.answers(nil)}, true
}

// needStore: where a store arbitrates, nothing is founded behind its back.
func (v *StartView) needStore() (Move, bool) {
	if v.Store == nil || v.Store.Reached {
		return no()
	}
	return Move{Kind: Hold, Text: "waiting for the backup store, which tells whether this cluster was founded before: " + v.Store.Error}, true
}

// restore: the cluster was founded before, and not here. Silence does not prove that a quorum of its disks is gone.
func (v *StartView) restore() (Move, bool) {
	s := v.Store
	if s == nil || s.Latest == 0 {
		return no()
	}
	before := fmt.Sprintf("incarnation %d was claimed by %s", s.Latest, s.Claimant)
	_, may, text := v.mayFound()
	switch silent := v.unproved(); {
	case !s.Restore:
		return Move{Kind: Hold, Text: "waiting for a node with state, " + before + " and restore is never: stop this node and run twgd restore to insist"}, true
	case v.Asking < v.FoundAfter:
		return Move{Kind: Hold, Text: fmt.Sprintf("waiting for a node with state until %s have passed, %s", v.FoundAfter, before)}, true
	case len(silent) > 0:
		return Move{Kind: Hold, Text: "waiting: " + before + ", and these seats are not proved empty: " + strings.Join(silent, ", ") +
			"; start them; if they are another cluster's, change cluster.name or cluster.backup.to; if their disks are lost, stop this node, run: twgd restore -c FILE --lost " + strings.Join(silent, ",") + ", and start it again"}, true
	case !may:
		return Move{Kind: Hold, Text: text}, true
	}
	return Move{Kind: Claim, Incarnation: s.Latest + 1, Text: before + " and every seat of it is empty: restoring as incarnation " + fmt.Sprint(s.Latest+1)}, true
}

// unproved are the names of the voters note, and of the claim, that neither answered "empty" nor are mine. The claimant counts before
// it has written its first note.
func (v *StartView) unproved() (names []string) {
	all := append(slices.Clone(v.Store.Note), NameOf(v.Store.Claimant))
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		empty := func(p Peer) bool { return p.Name == name && p.Says == Empty }
		other := func(p Peer) bool { return p.Name == name && p.Says != Empty }
		if name != v.Name && (!slices.ContainsFunc(v.Peers, empty) || slices.ContainsFunc(v.Peers, other)) {
			names = append(names, name)
		}
	}
	return names
}

func (v *StartView) found() (Move, bool) {
	presumptive, may, text := v.mayFound()
	switch {
	case !may:
		return Move{Kind: Hold, Text: text}, true
	case v.Store != nil:
		return Move{Kind: Claim, Incarnation: 1, Text: text}, true
	}
	return Move{Kind: Bootstrap, Incarnation: 1, Presumptive: presumptive, Text: text}, true
}

// mayFound: nobody else can, or it is for me to do. Whoever has no right to it waits for who has.
func (v *StartView) mayFound() (presumptive, may bool, text string) {
	notEmpty := func(p Peer) bool { return p.Says != Empty }
	claiming := slices.IndexFunc(v.Peers, func(p Peer) bool { return p.Says == Claiming })
	insists := v.Ordinal == 0 || v.Found
	switch {
	case claiming >= 0:
		return false, false, "waiting: " + v.Peers[claiming].Name + " at " + v.Peers[claiming].Addr + " is founding"
	case !v.anyListed(func(Peer) bool { return true }):
		return false, true, "founding: no other address is listed"
	case !v.anyListed(notEmpty) && v.lowest():
		return false, true, "founding: every listed address is empty, and " + v.Name + " is the first in order"
	case insists && v.Asking >= v.FoundAfter:
		return true, true, fmt.Sprintf("founding: nobody with state has answered for %s; this yields to a confirmed founding: %s", v.FoundAfter, v.answers(notEmpty))
	case insists:
		return false, false, fmt.Sprintf("waiting for a node with state until %s have passed: %s", v.FoundAfter, v.answers(nil))
	}
	return false, false, "waiting for a node with state, or for the first in order to found: " + v.answers(nil) + "; run --found insists"
}

// lowest: ordinals first, else names.
func (v *StartView) lowest() bool {
	return !slices.ContainsFunc(v.Peers, func(p Peer) bool {
		a, b := uint(p.Ordinal), uint(v.Ordinal)
		return p.Says == Empty && p.ID != v.Me && (a < b || a == b && p.Name <= v.Name)
	})
}

// anyListed asks the addresses of join that are not this node under another address.
func (v *StartView) anyListed(ok func(Peer) bool) bool {
	return slices.ContainsFunc(v.Peers, func(p Peer) bool { return p.Listed && p.ID != v.Me && ok(p) })
}

func no() (Move, bool)      { return Move{}, false }
func hold(text string) Move { return Move{Kind: Hold, Text: text} }
