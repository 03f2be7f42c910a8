package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stream-arrow/twgd/roster"
)

// mend names the case that only an operator can mend, and the command, filled in; empty where time mends it: a majority of the seats is
// up, or nothing of the seats is known. v is what this node sees, heard what its peers said last.
func mend(v roster.StartView, peers []heard) string {
	up, silent, fresh := seatsSeen(v, peers)
	if len(v.Seats) == 0 || len(up) > len(v.Seats)/2 {
		return ""
	}
	if i := slices.IndexFunc(peers, func(h heard) bool { return isForeign(h.err) }); i >= 0 {
		return fmt.Sprintf("%d of %d seats answer in a way that this node understands: %v", len(up), len(v.Seats), peers[i].err)
	}
	lost := slices.Concat(silent, fresh)
	slices.Sort(lost)
	text := fmt.Sprintf("%d of %d seats", len(up), len(v.Seats))
	if len(silent) > 0 {
		text += ", silent: " + strings.Join(silent, ", ")
	}
	if len(fresh) > 0 {
		text += ", disk lost: " + strings.Join(fresh, ", ")
	}
	start := "start " + strings.Join(lost, ", ") + " again"
	if len(silent) == 0 {
		start = "their disks are new, so they do not count"
	}
	where, cost := furthest(v, peers), "it costs commits that only the lost seats held"
	if len(v.Seats) == 2 && len(up) == 1 {
		cost = "it costs no commit: of two seats each holds all"
	}
	return fmt.Sprintf("%s: %s; where those disks are lost, stop %s and run there: twgd restore -c FILE --from-disk --lost %s (%s)",
		text, start, where, strings.Join(lost, ","), cost)
}

// seatsSeen sorts the seats by what is heard of them: answering, silent, or their name answering with another disk.
func seatsSeen(v roster.StartView, peers []heard) (up, silent, fresh []string) {
	for _, id := range v.Seats {
		name := roster.NameOf(id)
		same := func(h heard) bool { return h.answered() && h.hello.ID == id }
		other := func(h heard) bool { return h.answered() && h.hello.Name == name }
		switch {
		case id == v.Me || slices.ContainsFunc(peers, same):
			up = append(up, name)
		case name == v.Name || slices.ContainsFunc(peers, other):
			fresh = append(fresh, name)
		default:
			silent = append(silent, name)
		}
	}
	return up, silent, fresh
}

// furthest names the node that answers and whose log of this founding is the furthest: what it does not hold is lost.
func furthest(v roster.StartView, peers []heard) string {
	best, term, index := v.Name, uint64(0), uint64(0)
	for i := range peers {
		h := &peers[i]
		if !h.answered() || h.hello.Disk != diskState || h.hello.ID != v.Me && foundingOf(h.hello.Founding) != v.Facts.Founding {
			continue
		}
		if h.hello.LastTerm > term || h.hello.LastTerm == term && h.hello.LastIndex > index {
			best, term, index = h.hello.Name, h.hello.LastTerm, h.hello.LastIndex
		}
	}
	return best
}
