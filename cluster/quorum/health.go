package quorum

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
)

// health knows whether the disk takes what raft writes. There are three troubles: it is full, and will have room again; it failed
// otherwise, and the server is of no use until it is opened again; the server is being put down (halted), and nothing is written any more.
// A nil health is always well.
type health struct {
	ring func() // something changed
	mu   struct {
		sync.Mutex
		full   bool
		failed error
		halted bool
		moved  chan struct{} // closed and replaced at each change
	}
}

func newHealth(ring func()) *health {
	h := &health{ring: ring}
	h.mu.moved = make(chan struct{})
	return h
}

// isFull also reads texts: Bolt does not wrap what it got from the system when it grows its file.
func isFull(err error) bool {
	if err == nil {
		return false
	}
	for _, no := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, no) || strings.Contains(err.Error(), no.Error()) {
			return true
		}
	}
	return errors.Is(err, ErrDiskFull)
}

// note takes in how a write ended.
func (h *health) note(err error) {
	if h == nil || err == nil || errors.Is(err, ErrClosed) {
		return
	}
	h.change(func() {
		if isFull(err) {
			h.mu.full = true
		} else if h.mu.failed == nil {
			h.mu.failed = fmt.Errorf("writing to the raft directory: %w", err)
		}
	})
}

// noteRoom takes in that a write found no room. That a snapshot fails otherwise harms nothing that is there: it is tried again.
func (h *health) noteRoom(err error) {
	if isFull(err) {
		h.note(err)
	}
}

func (h *health) change(f func()) {
	h.mu.Lock()
	f()
	close(h.mu.moved)
	h.mu.moved = make(chan struct{})
	h.mu.Unlock()
	h.ring()
}

func (h *health) roomAgain() { h.change(func() { h.mu.full = false }) }
func (h *health) halt()      { h.change(func() { h.mu.halted = true }) }

func (h *health) isHalted() bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.halted
}

// look returns the troubles.
func (h *health) look() (full bool, failed error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.full, h.mu.failed
}

// refuses is the reason why nothing is appended now.
func (h *health) refuses() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.mu.halted:
		return ErrClosed
	case h.mu.failed != nil:
		return h.mu.failed
	case h.mu.full:
		return ErrDiskFull
	}
	return nil
}

// waitForRoom waits until the disk is well, or the server halted.
func (h *health) waitForRoom() (halted bool) {
	for {
		h.mu.Lock()
		well, halted, moved := !h.mu.full && h.mu.failed == nil, h.mu.halted, h.mu.moved
		h.mu.Unlock()
		if halted || well {
			return halted
		}
		<-moved
	}
}

// waitToStand holds up the new term of a server that has the only seat while its disk is unwell: the term could only be for an
// election of its own, which would end with the first entry. Other servers' terms are taken in where they find room.
func (h *health) waitToStand(sole func() bool) (halted bool) {
	if h == nil {
		return false
	}
	if sole != nil && sole() {
		return h.waitForRoom()
	}
	return h.isHalted()
}
