package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/roster"
)

const (
	shelfEvery  = time.Minute     // while this node has a part
	shelfSoon   = 2 * time.Second // while it waits for the store's word
	shelfWithin = 20 * time.Second
	notePause   = 5 * time.Second
	noteWithin  = 2 * time.Second
	// noteSettles is how long a write of the note that was given up may still land, over a later one that names more.
	noteSettles = time.Minute
)

// shelf is what this node knows of the backup store: who began which incarnation, whom the voters note names, how the last backup went. It
// looks again each minute, so that a node of an older incarnation learns that it is over. Safe for concurrent use.
type shelf struct {
	n  *Node
	mu struct {
		sync.Mutex
		view     roster.StoreView
		founding [16]byte // of the newest claim
		last     *backup.Info
		failed   string // why the last backup failed; empty: it did not
		failures int
	}
	looked chan struct{} // closed after the first look
	once   sync.Once
}

func newShelf(n *Node) *shelf {
	s := &shelf{n: n, looked: make(chan struct{})}
	s.mu.view.Restore = n.o.Backup.Restore
	return s
}

func (s *shelf) run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.look(ctx)
		s.n.poke()
		every := shelfEvery
		if !s.n.settled() {
			every = shelfSoon
		}
		wait(ctx, every)
	}
	return nil
}

// look reads the newest claim and the note.
func (s *shelf) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shelfWithin)
	defer cancel()
	place := s.n.o.Backup.Place
	incarnation, claim, ok, err := place.Latest(ctx)
	var note []string
	if err == nil {
		note, err = place.Note(ctx)
	}
	s.once.Do(func() { close(s.looked) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.mu.view.Error = err.Error()
		return
	}
	s.mu.view.Reached, s.mu.view.Error, s.mu.view.Note = true, "", note
	if ok {
		s.mu.view.Latest, s.mu.view.Claimant, s.mu.founding = incarnation, claim.ServerID, claim.Founding
	}
}

func (s *shelf) view() *roster.StoreView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.mu.view
	return &v
}

// founding is that of the newest claim, if this server made it or nobody else did.
func (s *shelf) founding() [16]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.founding
}

// claimIncarnation claims an incarnation for this server: a later one for the founding that there was, the first for a new one. What is
// stored is what holds.
func (s *shelf) claimIncarnation(ctx context.Context, incarnation uint64) (stored backup.Claim, won bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, shelfWithin)
	defer cancel()
	founding := s.founding()
	if founding == ([16]byte{}) {
		founding = randomFounding()
	}
	stored, won, err = s.n.o.Backup.Place.Claim(ctx, incarnation, backup.Claim{ServerID: s.n.id(), Founding: founding})
	s.look(ctx)
	return stored, won, err
}

// claim makes the claim of a founding or a restore. Whether it was won shows in the shelf; roster.Begin looks again.
func (n *Node) claim(ctx context.Context, m roster.Move) {
	n.log.Info(m.Text, "incarnation", m.Incarnation)
	if _, won, err := n.shelf.claimIncarnation(ctx, m.Incarnation); err != nil {
		n.log.Warn("the claim was not made, or nobody knows whether it was", "incarnation", m.Incarnation, "error", err)
		wait(ctx, time.Second)
	} else if won {
		n.log.Info("the backup store says that this node begins the incarnation", "incarnation", m.Incarnation)
	}
}

// done notes how a backup went.
func (s *shelf) done(info backup.Info, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.mu.failed = err.Error()
		s.mu.failures++
		return
	}
	s.mu.failed, s.mu.last = "", &info
}

// status is nil where no backups are made.
func (s *shelf) status() *BackupStatus {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &BackupStatus{Error: s.mu.failed}
	if s.mu.last != nil {
		b.Name, b.Last = s.mu.last.Name, &s.mu.last.Time
	}
	return b
}
