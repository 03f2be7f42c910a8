package quorum

import (
	"context"
	"sync"
)

// gate lets proposals in. A handover closes it, waits until those inside have been answered, and opens it again; being put down shuts it
// for good.
type gate struct {
	mu struct {
		sync.Mutex
		inside int
		forbid int           // how many hold it closed
		shut   bool          // for good
		moved  chan struct{} // closed and replaced when one of these changes
	}
}

func newGate() *gate {
	g := &gate{}
	g.mu.moved = make(chan struct{})
	return g
}

// enter waits while the gate is closed. Who got in leaves.
func (g *gate) enter(ctx context.Context) error {
	return g.await(ctx, func() (bool, error) {
		if g.mu.shut {
			return false, ErrClosed
		}
		if g.mu.forbid > 0 {
			return false, nil
		}
		g.mu.inside++
		return true, nil
	})
}

// leave tells nobody unless somebody may wait for it: all who propose come through here, and a change is told under the lock.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.inside--
	if g.mu.inside == 0 && (g.mu.forbid > 0 || g.mu.shut) {
		g.tell()
	}
}

// close returns when nobody is inside. Where it fails the gate is open again.
func (g *gate) close(ctx context.Context) error {
	g.change(func() { g.mu.forbid++ })
	err := g.await(ctx, func() (bool, error) {
		if g.mu.shut {
			return false, ErrClosed
		}
		return g.mu.inside == 0, nil
	})
	if err != nil {
		g.reopen()
	}
	return err
}

func (g *gate) reopen() { g.change(func() { g.mu.forbid-- }) }
func (g *gate) shut()   { g.change(func() { g.mu.shut = true }) }

// drain waits until nobody is inside, and nobody holds the gate.
func (g *gate) drain() {
	g.await(context.Background(), func() (bool, error) { return g.mu.inside == 0 && g.mu.forbid == 0, nil })
}

func (g *gate) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	g.tell()
}

// tell is called with mu held.
func (g *gate) tell() {
	close(g.mu.moved)
	g.mu.moved = make(chan struct{})
}

// await calls f, with mu held, until it says yes.
func (g *gate) await(ctx context.Context, f func() (bool, error)) error {
	for {
		g.mu.Lock()
		done, err := f()
		moved := g.mu.moved
		g.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
