// Package dedupset remembers who claimed which content: the replicated table behind shared dedup, and the client that asks it. An
// error of any kind makes a content unknown, never known: a duplicate may pass, and no record is lost.
package dedupset

import (
	"runtime"
	"slices"
	"strings"
	"time"
)

// Table is the replicated half: for each stream one exact set of claims, aged by the cluster's time. The zero value is ready; no
// method is called beside another, except that Query, Stats and Next may run beside each other, and what Snapshot returned beside
// anything.
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

// Apply carries out a command. A claim asks row by row: a content that nobody holds is the record's from now on; one that another
// record holds, be it of the same claim, is named in the reply with its holder.
func (t *Table) Apply(now time.Duration, cmd []byte) []byte {
	t.Expire(now)
	c, ok := parseCommand(cmd)
	if !ok {
		return []byte{byte(Malformed)}
	}
	at, known := t.find(c.stream)
	switch {
	case c.op == opDeclare:
		return t.declare(at, known, c)
	case !known || t.sets[at].check != c.check:
		return []byte{byte(Undeclared)}
	}
	reply := t.sets[at].claim(t.now, c.rows, []byte{byte(OK)})
	runtime.KeepAlive(t) // and with it the memory that rows and index lie in
	return reply
}

func (t *Table) find(stream []byte) (at int, known bool) {
	return slices.BinarySearchFunc(t.sets, stream, func(s *set, stream []byte) int {
		return strings.Compare(s.stream, string(stream))
	})
}

func (t *Table) declare(at int, known bool, c command) []byte {
	terms, before := Terms{Window: c.window, Entries: c.entries}, Terms{}
	switch {
	case !known && len(t.sets) == MaxSets:
		return []byte{byte(Full)}
	case !known:
		t.sets = slices.Insert(t.sets, at, newSet(string(c.stream), c.check, terms, 0))
	case t.sets[at].check != c.check:
		t.sets[at] = newSet(string(c.stream), c.check, terms, 0)
	default:
		if before = t.sets[at].terms; before != terms {
			t.sets[at].declare(t.now, terms)
		}
	}
	t.sets[at].used = t.now
	return declared(terms, before)
}

// Expire lets go of claims whose window is over, and of sets that have none and that nobody has used for an hour, or for their window
// where that is longer. It takes time for a few rows at most: what is left of them goes bit by bit.
func (t *Table) Expire(now time.Duration) {
	t.now = max(t.now, now)
	t.sets = slices.DeleteFunc(t.sets, func(s *set) bool {
		s.expire(t.now)
		s.tidy(t.now)
		return s.known() == 0 && s.over() <= t.now
	})
	runtime.KeepAlive(t)
}

// Next is the earliest time at which a claim, or a set that nobody uses, expires. While there are expired rows left, that is now.
func (t *Table) Next() (at time.Duration, ok bool) {
	for i, s := range t.sets {
		next := s.over()
		if s.untidy() {
			next = min(next, t.now)
		}
		if i == 0 || next < at {
			at = next
		}
	}
	return at, len(t.sets) > 0
}

// Stats are what the sets say of themselves at now, by stream.
func (t *Table) Stats(now time.Duration) []Stats {
	out := make([]Stats, 0, len(t.sets))
	for _, s := range t.sets {
		out = append(out, s.stats(max(t.now, now)))
	}
	return out
}

// Query answers every question with the stats of all sets, see ParseStats, as they were at the last command or expiry.
func (t *Table) Query([]byte) (reply []byte) {
	for _, s := range t.Stats(t.now) {
		reply = appendStats(reply, &s)
	}
	return reply
}
