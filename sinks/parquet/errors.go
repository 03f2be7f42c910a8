package parquet

import (
	"errors"

	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// classify makes what the store said an error of the seam. What a person must mend blocks: rights, a bucket that is not there, a
// read-only file system, a store that ignores create-only. All else is worth another try, an unknown outcome too: the next
// Publish finds the object or does not.
func classify(doing string, err error) *sinks.Error {
	var e *sinks.Error
	if errors.As(err, &e) {
		return e
	}
	kind := sinks.Retry
	if errors.Is(err, store.ErrPermission) {
		kind = sinks.Blocked
	}
	reason := store.Describe(err)
	if said := (*store.Error)(nil); !errors.As(err, &said) { // which else says itself what was being done
		reason = doing + ": " + reason
	}
	return &sinks.Error{Kind: kind, Reason: reason, Err: err}
}

// blocked is a fault that stays until a person has looked.
func blocked(reason string) *sinks.Error { return &sinks.Error{Kind: sinks.Blocked, Reason: reason} }
