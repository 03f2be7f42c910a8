package roster

import "strings"

// Whoever is about to go has announced it, and waits for its own grant. It goes without one when its time is up; then the log says so,
// and the others see a failure.

func (v *StartView) deadline() (Move, bool) {
	d := v.Departure
	switch {
	case d.Intent == Stays:
		return no()
	case d.Forced:
		return Move{Kind: StopNow, Text: "handoff not done: told to end while it was leaving; " + v.whyNot()}, true
	case d.Intent == Terminating && d.Left <= LastGrace && !v.granted():
		return Move{Kind: StopNow, Text: "handoff not done: the grace period ends; " + v.whyNot()}, true
	}
	return no()
}

func (v *StartView) whyNot() string {
	switch {
	case v.Leading:
		return "no other seat could take over"
	case v.Leader == nil:
		return "no leader answers"
	}
	return v.Leader.ID + " has not let this node go yet"
}

// granted: the grant is for this intent of this process; one for a process that came before is not looked at.
func (v *StartView) granted() bool {
	l, d := v.Leader, v.Departure
	return d.Intent != Stays && l != nil && l.Granted == Mark{d.Intent, d.Nonce}
}

func (v *StartView) refused() (Move, bool) {
	l, d := v.Leader, v.Departure
	if d.Intent != Leaving || l == nil || l.Refused != (Mark{Leaving, d.Nonce}) {
		return no()
	}
	return Move{Kind: Resume, Text: "the leave was refused: no other node stays; twgd leave --drop gives the cluster up"}, true
}

func (v *StartView) letGo() (Move, bool) {
	l, d := v.Leader, v.Departure
	switch {
	case d.Intent == Stays || l == nil:
		return no()
	case l.Tombstone && d.Intent == Leaving:
		return Move{Kind: StopDrop, Text: "left for good: " + l.ID + " has removed this node"}, true
	case l.Tombstone:
		return Move{Kind: StopNow, Text: "removed for good by " + l.ID}, true
	case v.granted():
		return Move{Kind: StopNow, Text: l.ID + " has let this node go"}, true
	}
	return no()
}

// goLast: all others were let go, and a leader of nobody stops. It may lose its leadership as they go: with them its quorum has gone. Only
// where another leads by now is it a node like any other.
func (v *StartView) goLast() (Move, bool) {
	d := v.Departure
	another := !v.Leading && v.Leader != nil && v.Leader.ID != v.Me
	switch {
	case d.Intent == Stays || !d.Last || another:
		return no()
	case len(d.Remaining) > 0 && d.Waited < LastGrace:
		return Move{Kind: Hold, Text: "waiting for " + strings.Join(d.Remaining, ", ") + " to go first"}, true
	}
	return Move{Kind: StopNow, Text: "the last one goes"}, true
}

// nothingToHandOver: no disk here that anybody counts on, and nobody to tell.
func (v *StartView) nothingToHandOver() (Move, bool) {
	if v.Departure.Intent == Stays || v.State || v.Leader != nil {
		return no()
	}
	return Move{Kind: StopNow, Text: "nothing to hand over"}, true
}

func (v *StartView) announced() (Move, bool) {
	switch {
	case v.Departure.Intent == Stays:
		return no()
	case v.Leading:
		return Move{Kind: Hold, Text: "announced: waiting for a seat to take over leadership"}, true
	case v.Leader == nil:
		return Move{Kind: Hold, Text: "announced, but no leader answers: " + v.seats()}, true
	}
	return Move{Kind: Hold, Text: "announced: waiting for " + v.Leader.ID + " to let this node go"}, true
}
