package pipetest

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/pipeline/content"
)

// Claims is a set of claims as streams see it: the first record that claims a content holds it for the window, and every other one is told.
// Claims are idempotent. How it may fail is said by a test: a claim may land though its answer is lost, late or never, and claims may be
// forgotten. It never names a holder that did not claim.
type Claims struct {
	Window time.Duration // 0: for ever

	mu    sync.Mutex
	fault func(ctx context.Context) (land bool, late time.Duration, err error)
	held  map[content.Row]time.Time // by hash and holder's tail: when it claimed
	by    map[[16]byte][8]byte
	kept  map[[16]byte][8]byte // by, as it was when Keep was called
	key   [32]byte
}

// NewClaims is empty.
func NewClaims() *Claims {
	return &Claims{held: map[content.Row]time.Time{}, by: map[[16]byte][8]byte{}, key: [32]byte{1}}
}

// Fault decides about every claim: whether it lands, after which time, and what is answered instead of the truth. It may wait.
func (c *Claims) Fault(f func(ctx context.Context) (land bool, late time.Duration, err error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// Keep remembers the claims of now; Restore goes back to them, as a restored snapshot does.
func (c *Claims) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = maps.Clone(c.by)
}

// Restore forgets what was claimed since Keep.
func (c *Claims) Restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by = maps.Clone(c.kept)
	if c.by == nil {
		c.by = map[[16]byte][8]byte{}
	}
}

// Key implements content.Claims.
func (c *Claims) Key(context.Context) ([32]byte, error) { return c.key, nil }

// Claim implements content.Claims. What is late lands beside, at its time, and the caller is told at once.
func (c *Claims) Claim(ctx context.Context, key *[32]byte, rows [][24]byte) ([]content.Held, error) {
	c.mu.Lock()
	fault := c.fault
	c.mu.Unlock()
	land, late, err := true, time.Duration(0), error(nil)
	if fault != nil {
		land, late, err = fault(ctx)
	}
	if *key != c.key {
		return nil, &content.Unavailable{Reason: "refused", Err: errors.New("another founding's key")}
	}
	if late > 0 {
		rows = append([][24]byte(nil), rows...)
		time.AfterFunc(late, func() { c.claim(rows) })
		land = false
	}
	var held []content.Held
	if land {
		held = c.claim(rows)
	}
	if err != nil {
		return nil, err
	}
	return held, nil
}

func (c *Claims) claim(rows [][24]byte) (held []content.Held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for i, row := range rows {
		hash, tail := [16]byte(row[:16]), [8]byte(row[16:])
		by, there := c.by[hash]
		if there && c.Window > 0 && now.Sub(c.held[entry(hash, by)]) >= c.Window {
			there = false
		}
		switch {
		case !there:
			c.by[hash] = tail
			c.held[row] = now
		case by != tail:
			held = append(held, content.Held{Row: i, By: by})
		}
	}
	return held
}

func entry(hash [16]byte, tail [8]byte) (row content.Row) {
	copy(row[:], hash[:])
	copy(row[16:], tail[:])
	return row
}
