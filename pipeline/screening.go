package pipeline

import (
	"context"

	"github.com/stream-arrow/twgd/pipeline/content"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
)

// Screening is how a stream finds records whose content another record has claimed already, between the gate and the lanes.
type Screening struct {
	Contents interface {
		// Screen names the twins among the records of batches. An error says that nothing is known of any of them. It is called from several
		// goroutines and bounded in time by itself.
		Screen(ctx context.Context, batches []content.Batch) (content.Verdict, error)
	}
	Drop bool // twins do not reach the lanes; otherwise they are only counted

	// Note makes durable what is about to be dropped: all of it when it returns nil. Used with Drop only, and called from several goroutines.
	Note func(ctx context.Context, noted []duplicates.Noted) error
}
