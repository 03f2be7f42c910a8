package quorum

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/hashicorp/raft"
)

var (
	keyTerm     = "CurrentTerm" // raft's own names
	keyVoteTerm = "LastVoteTerm"
	keyVoteCand = "LastVoteCand"

	keyVote = []byte("twgd/vote") // the term of the last vote, 8 bytes, big-endian, and for whom
)

// errNotFound has the text by which raft knows it.
var errNotFound = errors.New("not found")

func isNotFound(err error) bool { return err != nil && err.Error() == errNotFound.Error() }

// ballot is where raft keeps term and vote. Three things are otherwise than raft would have them:
//
//   - A vote is one write. Raft writes the term of a vote and then for whom; where a crash, or a full disk, comes between the two, the
//     term stands beside an earlier candidate, who is then granted a vote in that term without its log being looked at.
//   - A term that does not change is not written: a start and an election cost fewer syncs.
//   - A term that cannot be written waits. Raft panics where it fails; but a disk that is full will have room again, and a server
//     that waits in its main loop promises nothing to anybody meanwhile.
type ballot struct {
	kv     kv
	health *health // nil: nobody waits
	sole   func() bool

	mu struct {
		sync.Mutex
		term    uint64 // as stored; known is false before the first read
		known   bool
		pending uint64 // term of the vote that is being cast
	}
}

var _ raft.StableStore = (*ballot)(nil)

func newBallot(store kv, h *health) *ballot { return &ballot{kv: store, health: h} }

func (b *ballot) GetUint64(key []byte) (uint64, error) {
	if string(key) == keyVoteTerm {
		vote, err := b.vote()
		if err != nil {
			return 0, err
		}
		return binary.BigEndian.Uint64(vote), nil
	}
	v, err := b.kv.GetUint64(key)
	if err == nil && string(key) == keyTerm {
		b.remember(v)
	}
	return v, err
}

func (b *ballot) remember(term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.term, b.mu.known = term, true
}

func (b *ballot) vote() ([]byte, error) {
	vote, err := b.kv.Get(keyVote)
	if err == nil && len(vote) < 8 {
		err = errors.New("the stored vote is damaged")
	}
	return vote, err
}

func (b *ballot) Get(key []byte) ([]byte, error) {
	if string(key) != keyVoteCand {
		return b.kv.Get(key)
	}
	vote, err := b.vote()
	if err != nil {
		return nil, err
	}
	return vote[8:], nil
}

func (b *ballot) SetUint64(key []byte, val uint64) error {
	switch string(key) {
	case keyVoteTerm:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mu.pending = val
		return nil
	case keyTerm:
		return b.setTerm(val)
	}
	return b.kv.SetUint64(key, val)
}

// Set stores the vote when it is told for whom.
func (b *ballot) Set(key, val []byte) error {
	if string(key) != keyVoteCand {
		return b.kv.Set(key, val)
	}
	if b.health.isHalted() {
		return ErrClosed
	}
	b.mu.Lock()
	vote := append(binary.BigEndian.AppendUint64(nil, b.mu.pending), val...)
	b.mu.Unlock()
	err := b.kv.Set(keyVote, vote)
	b.health.note(err)
	return err
}

// setTerm returns when the term is stored, or when the server is being put down. In that case nothing leaves this server any more, and
// no vote and no entry is stored, so that forgetting the term breaks no promise.
func (b *ballot) setTerm(term uint64) error {
	b.mu.Lock()
	same := b.mu.known && b.mu.term == term || !b.mu.known && term == 0
	b.mu.Unlock()
	if same {
		return nil
	}
	for {
		if b.health.waitToStand(b.sole) {
			return nil
		}
		err := b.kv.SetUint64([]byte(keyTerm), term)
		if err == nil {
			b.remember(term)
			return nil
		}
		if b.health == nil {
			return err
		}
		b.health.note(err)
		if b.health.waitForRoom() {
			return nil
		}
	}
}
