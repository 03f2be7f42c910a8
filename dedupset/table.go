// Package dedupset remembers who claimed which content: the replicated table behind shared dedup, and the client that asks it. An
// error of any kind makes a content unknown, never known: a duplicate may pass, and no record is lost.
package dedupset

import (
	"io"
	"time"
)

// Table is the replicated half: for each stream one exact set of claims, aged by the cluster's time. The zero value is ready.
//
// A claim is a content hash and the tail of the id of the record that claims it. The first record to claim a content holds it until
// the claim has been there for the stream's window, or the stream's cap makes it go early. A record that claims again what it holds
// is told nothing, so a retry or a redelivery is never its own duplicate, and its claim grows no younger.
//
// What the table replies follows from the commands and their times alone. Where rows and index lie, what a helper has readied and
// whether a replica was restored shows in no reply.
type Table struct {
	now  time.Duration // the latest that was handed in
	sets []*set        // by stream
}

type set struct{}

// Apply carries out a command.
func (t *Table) Apply(now time.Duration, cmd []byte) []byte { return []byte{byte(Malformed)} }

// Query answers every question with the stats of all sets, see ParseStats.
func (t *Table) Query([]byte) []byte { return nil }

// Stats are what the sets say of themselves at now, by stream.
func (t *Table) Stats(now time.Duration) []Stats { return nil }

// Memory is how many bytes a set of that cap takes on each replica once it is full: index and rows.
func Memory(entries int64) int64 { return 0 }

// Next is the earliest time at which a claim, or a set that nobody uses, expires.
func (t *Table) Next() (time.Duration, bool) { return 0, false }

// Expire lets go of what has expired.
func (t *Table) Expire(now time.Duration) {}

// Version is the section's.
func (t *Table) Version() uint16 { return 1 }

// Snapshot pins the sets, and returns what writes them.
func (t *Table) Snapshot() func(io.Writer) error { return func(io.Writer) error { return nil } }

// Restore replaces the sets by those of a section.
func (t *Table) Restore(v uint16, r io.Reader) error { return nil }
