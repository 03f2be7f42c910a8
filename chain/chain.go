// Package chain is the rule by which writers that know nothing of each other extend one contiguous sequence of create-only
// objects. A link covers the half-open range [First, Next), is named by First, and says Next inside; the next link has that
// name. Whoever creates the object has made the commit: there is no manifest to keep in step, and a writer that slept through
// its own replacement can only learn that the place is taken.
//
// Writer is the rule itself, a pure value. Log carries it out over a store. Raw and the cuts of file sinks both stand on it.
package chain

import (
	"crypto/rand"
	"fmt"
	"slices"
)

// Nonce marks one attempt to write, not one writer: a writer whose reply was lost may by then want to write something longer,
// and must be able to tell which of its attempts is the one that landed.
type Nonce [16]byte

// NewNonce is a random one.
func NewNonce() (n Nonce) {
	rand.Read(n[:])
	return n
}

// Link is one stored element of a chain.
type Link struct {
	First, Next int64
	Nonce       Nonce
}

// Answer is what a store said to an attempt.
type Answer uint8

// The answers.
const (
	Stored  Answer = iota + 1 // it is there, and durable
	Exists                    // something of that name is there: another's, or our own after a lost reply
	Unknown                   // no answer: it may have landed, or may still land
	Refused                   // it is surely not there
)

// Writer decides for one writer of one chain. It is told what the store answered and what it holds, and says what follows. Its
// owner calls it from one goroutine.
//
// Invariants: at most one attempt is in flight; head is only ever taken from a link that is stored.
type Writer struct {
	head  int64
	phase phase
	last  Link    // the attempt in flight or in doubt
	tried []Nonce // of all attempts at head, since each of them may have landed
}

type phase uint8

const (
	idle    phase = iota
	flying        // an attempt waits for its answer
	doubted       // the store must be read before anything else
)

// NewWriter begins at the end of what is stored.
func NewWriter(head int64) *Writer { return &Writer{head: head} }

// Head is where the next link begins.
func (w *Writer) Head() int64 { return w.head }

// InDoubt reports whether an earlier attempt may be stored, so that the store must be read before the next one.
func (w *Writer) InDoubt() bool { return w.phase == doubted }

// Propose makes the next attempt, to be written under the name First.
func (w *Writer) Propose(next int64, n Nonce) Link {
	if w.phase != idle {
		panic("chain: an attempt is made while another is open")
	}
	if next <= w.head {
		panic(fmt.Sprintf("chain: a link must cover something: [%d, %d)", w.head, next))
	}
	w.phase, w.last = flying, Link{w.head, next, n}
	w.tried = append(w.tried, n)
	return w.last
}

// Answered takes the store's answer. Where it returns true the attempt is the chain's end now; otherwise InDoubt says whether
// to read what is stored under the head's name, or simply to try again.
func (w *Writer) Answered(a Answer) bool {
	if w.phase != flying {
		panic("chain: an answer comes without an attempt")
	}
	switch a {
	case Stored:
		w.advance(w.last.Next)
		return true
	case Refused:
		w.phase = idle
	default:
		w.phase = doubted
	}
	return false
}

// Found takes what is stored under the head's name, nil where nothing is. ours says that it is one of our attempts, not
// necessarily the last. Where nothing is stored the writer may try again: should the lost attempt land after all, the name
// decides between the two.
func (w *Writer) Found(l *Link) (ours bool) {
	if w.phase != doubted {
		panic("chain: the store was read without need")
	}
	w.phase = idle
	if l == nil {
		return false
	}
	if l.First != w.head || l.Next <= l.First {
		panic(fmt.Sprintf("chain: link [%d, %d) stands where %d was read", l.First, l.Next, w.head))
	}
	ours = slices.Contains(w.tried, l.Nonce)
	w.advance(l.Next)
	return ours
}

func (w *Writer) advance(next int64) {
	w.head, w.phase, w.tried = next, idle, w.tried[:0]
}
