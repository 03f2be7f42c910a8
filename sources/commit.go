package sources

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stream-arrow/twgd/record"
)

// CommitError is how Commit ends where the transport did not take every position: one partition that it refuses, such as one whose
// topic has just been deleted, says nothing about the others. What was committed and is not in Failed was taken. It is not empty.
type CommitError struct{ Failed map[record.Partition]error }

// Error names the first partition that failed, and how many others did: there may be thousands, usually for one reason.
func (e *CommitError) Error() string {
	order := e.order()
	if len(order) == 0 {
		return "no partition failed"
	}
	text := fmt.Sprintf("%s: %v", order[0], e.Failed[order[0]])
	if others := len(order) - 1; others > 0 {
		text += fmt.Sprintf(" (and %d other partitions)", others)
	}
	return text
}

// Unwrap is the reasons, in the order of the partitions.
func (e *CommitError) Unwrap() []error {
	out := make([]error, 0, len(e.Failed))
	for _, p := range e.order() {
		out = append(out, e.Failed[p])
	}
	return out
}

func (e *CommitError) order() []record.Partition {
	return slices.SortedFunc(maps.Keys(e.Failed), func(a, b record.Partition) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
}
