package kafka

import (
	"fmt"
	"strings"
)

// place is how far reading of a partition got: what the check for divergence compares with the log.
type place struct {
	next  int64 // the offset to read next
	epoch int32 // the leader epoch of the record before it, -1 where that is not known or nothing was read
}

// extent is what the leader says of a log now.
type extent struct {
	start, end int64 // the first offset kept, the offset behind the last one replicated

	// What the leader answers about the epoch of a place: the greatest epoch it knows that is not above, and where that ends.
	// -1 where it knows nothing of it. Only where the place has an epoch and the broker speaks of epochs.
	asked    bool
	epoch    int32
	epochEnd int64
}

// verdict is what judge concludes.
type verdict struct {
	act    act
	reason string // for hold
	resume int64  // for skip: where the log goes on
}

type act uint8

const (
	read act = iota // the log still is what we read: go on at place.next
	skip            // retention took [place.next, resume)
	hold            // the log is not what we read, or an operator wants to decide: nothing may be read
)

// judge compares a place with the log. The order matters: a log that diverged is never mistaken for one that retention cut,
// because then its new records would be spliced behind the old ones, and the gap would name a range that was never lost.
func judge(at place, log extent, stopAtGap bool) verdict {
	if reason := diverged(at, log); reason != "" {
		return verdict{act: hold, reason: reason + behind(at, log)}
	}
	switch {
	case at.next >= log.start:
		return verdict{act: read}
	case stopAtGap:
		return verdict{act: hold, reason: fmt.Sprintf("retention took the offsets [%d, %d) and on_gap is stop"+wayOn+"%d` loses nothing more", at.next, log.start, log.start)}
	}
	return verdict{act: skip, resume: log.start}
}

// wayOn begins what a reason says for the operator, who reads it in the status; what stands in front of it is why.
const wayOn = "; `twgd raw resume --skip-to "

// behind is the way on where the log has diverged. Raw keeps what it has and a gap holds one offset at least, so that the first one
// of the log's own that can be read is the one behind our position.
func behind(at place, log extent) string {
	n := max(at.next+1, log.start)
	if log.end < n {
		return fmt.Sprintf("; nothing of it can be read on before it reaches %d", n)
	}
	return fmt.Sprintf(wayOn+"%d` loses nothing that could still be read", n)
}

// Why is a reason for holding a partition without the advice.
func Why(reason string) string {
	why, _, _ := strings.Cut(reason, wayOn)
	return why
}

func diverged(at place, log extent) string {
	switch {
	case !log.asked:
	case log.epoch < 0 || log.epochEnd < 0:
		return fmt.Sprintf("the log has diverged: its leader knows nothing of leader epoch %d, under which offset %d was read", at.epoch, at.next-1)
	case log.epoch < at.epoch:
		return fmt.Sprintf("the log has diverged: its leader knows no epoch above %d, but offset %d was read under epoch %d", log.epoch, at.next-1, at.epoch)
	case log.epochEnd < at.next:
		return fmt.Sprintf("the log has diverged: leader epoch %d ends at offset %d, but was read up to %d", at.epoch, log.epochEnd, at.next)
	}
	if at.next > log.end {
		return fmt.Sprintf("the log has diverged: it ends at offset %d, below our position %d", log.end, at.next)
	}
	return ""
}
