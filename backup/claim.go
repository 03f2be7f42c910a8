package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/stream-arrow/twgd/store"
)

// version is of everything that this package writes.
const version = 1

// Claim says who begins a life of the cluster. It is written once for each incarnation and never changes; of any number of nodes
// that try, one gets it.
type Claim struct {
	ServerID string   // name~birth of the node
	Founding [16]byte // the founding's random id
}

// claim is a Claim as it is stored.
type claim struct {
	Version     int    `json:"version"`
	Cluster     string `json:"cluster"`
	Incarnation uint64 `json:"incarnation"`
	ServerID    string `json:"server_id"`
	Founding    string `json:"founding"`
}

// attempts bounds how often a create is repeated whose outcome nobody could tell.
const attempts = 3

// Claim claims an incarnation, create-only. It returns the claim that is stored; won says that it is of this server id. A node that
// was killed after its claim thus resumes it, with the founding id that is stored: the one returned is the one to found with. A
// reply that was lost is settled by reading back. After an error nobody knows whether the claim is stored; asking again tells.
func (p *Place) Claim(ctx context.Context, incarnation uint64, c Claim) (stored Claim, won bool, err error) {
	if incarnation == 0 || c.ServerID == "" {
		return Claim{}, false, errors.New("backup: a claim needs an incarnation and a server id")
	}
	body, err := seal(claim{version, p.cluster, incarnation, c.ServerID, hex.EncodeToString(c.Founding[:])})
	if err != nil {
		return Claim{}, false, err
	}
	for range attempts {
		err = p.bucket.Create(ctx, p.key(claimName(incarnation)), body)
		if err != nil && !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrUnknown) {
			break
		}
		// Also a create that succeeded is read back: what counts is what the next one to come will read.
		stored, rerr := p.claim(ctx, incarnation)
		if !errors.Is(rerr, store.ErrNotFound) {
			return stored, rerr == nil && stored.ServerID == c.ServerID, rerr
		}
		err = errors.Join(err, rerr)
	}
	return Claim{}, false, fmt.Errorf("claiming incarnation %d of cluster %s: %w", incarnation, p.cluster, err)
}

// Latest returns the greatest incarnation that is claimed, and its claim; ok is false where there is none.
func (p *Place) Latest(ctx context.Context) (incarnation uint64, c Claim, ok bool, err error) {
	entries, err := p.bucket.List(ctx, p.key(claimPrefix), "", 0)
	if err != nil {
		return 0, Claim{}, false, fmt.Errorf("listing the incarnations of cluster %s: %w", p.cluster, err)
	}
	for _, e := range entries {
		if n, is := parseClaim(strings.TrimPrefix(e.Key, p.key(""))); is {
			incarnation = max(incarnation, n)
		}
	}
	if incarnation == 0 {
		return 0, Claim{}, false, nil
	}
	c, err = p.claim(ctx, incarnation)
	return incarnation, c, err == nil, err
}

func (p *Place) claim(ctx context.Context, incarnation uint64) (Claim, error) {
	key := p.key(claimName(incarnation))
	b, err := p.bucket.Read(ctx, key)
	if err != nil {
		return Claim{}, fmt.Errorf("reading the claim of incarnation %d: %w", incarnation, err)
	}
	s, err := unseal[claim](key, b)
	if err != nil {
		return Claim{}, err
	}
	if s.Cluster != p.cluster || s.Incarnation != incarnation {
		return Claim{}, fmt.Errorf("%s: %w: it is the claim of incarnation %d of cluster %q", key, ErrDamaged, s.Incarnation, s.Cluster)
	}
	c := Claim{ServerID: s.ServerID}
	if n, err := hex.Decode(c.Founding[:], []byte(s.Founding)); err != nil || n != len(c.Founding) {
		return Claim{}, fmt.Errorf("%s: %w: it names no founding", key, ErrDamaged)
	}
	return c, nil
}
