package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stream-arrow/twgd/store"
)

// note is the voters note as it is stored: the names of the nodes that hold a vote or are about to get one. It may name too many
// and never too few, so it is written before a promotion.
type note struct {
	Version int      `json:"version"`
	Cluster string   `json:"cluster"`
	Voters  []string `json:"voters"`
}

// Note returns the names in the voters note, in order; none where none was ever written. A note that is damaged is an error: it
// could name too few.
func (p *Place) Note(ctx context.Context) ([]string, error) {
	b, err := p.bucket.Read(ctx, p.key(noteName))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the voters note of cluster %s: %w", p.cluster, err)
	}
	n, err := unseal[note](p.key(noteName), b)
	if err == nil && n.Cluster != p.cluster {
		err = fmt.Errorf("%s: %w: it is the note of cluster %q", p.key(noteName), ErrDamaged, n.Cluster)
	}
	if err != nil {
		return nil, err
	}
	return n.Voters, nil
}

// WriteNote replaces the voters note. A reply that was lost is settled by reading back. After an error the old or the new one
// stands.
func (p *Place) WriteNote(ctx context.Context, names []string) error {
	n := note{version, p.cluster, slices.Compact(slices.Sorted(slices.Values(names)))}
	body, err := seal(n)
	if err != nil {
		return err
	}
	if err = p.bucket.Replace(ctx, p.key(noteName), body); errors.Is(err, store.ErrUnknown) {
		if stored, rerr := p.Note(ctx); rerr == nil && slices.Equal(stored, n.Voters) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("writing the voters note of cluster %s: %w", p.cluster, err)
	}
	return nil
}
