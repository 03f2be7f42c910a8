package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errClaims says that claims cannot be had at present, of whatever window.
var errClaims = errors.New("windows cannot be claimed")

// heldFor is how long a window that another has claimed is not asked for again.
const heldFor = 5 * time.Second

// claimName is the name of a window's claim. With cuts a window is a cut or a cell already, and the same for everybody.
func (a *Agent) claimName(w window) string {
	grid := a.opt.Window
	if a.opt.Lane.Cuts() != nil {
		grid = 0
	}
	return w.claim(a.opt.Stream, a.opt.Lane.Name(), grid)
}

// isHeld reports whether another was seen to have the window a moment ago.
func (a *Agent) isHeld(w window) bool {
	name := a.claimName(w)
	until, known := a.held[name]
	if known && !time.Now().Before(until) {
		delete(a.held, name)
		return false
	}
	return known
}

// fill claims one window and carries it. It returns false where somebody else has the window, or got it while we worked. again carries
// it though it may be there.
func (a *Agent) fill(ctx context.Context, w window, again bool) (bool, error) {
	name := a.claimName(w)
	claim, ok, err := a.opt.Claims.Claim(ctx, name)
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", errClaims, err)
	case !ok && !again:
		a.held[name] = time.Now().Add(heldFor)
		return false, nil
	case !ok:
		return false, nil
	}
	a.working(fmt.Sprintf("%v %v", w.p, w.s))
	defer a.working("")
	how, err := a.carry(ctx, claim, w, again)
	a.opt.Metrics.window(a.opt.Stream, a.opt.Lane.Name(), how)
	return err == nil && how != lost, err
}

// carry works on a window under its claim and gives the claim back. Where the claim ends before the work does, the window is left to
// whoever has claimed it since, and that is no fault of anything.
func (a *Agent) carry(ctx context.Context, claim Claim, w window, again bool) (how string, err error) {
	work, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(claim.Context(), cancel)()
	there := false
	if a.opt.Shared && !again {
		there, err = a.opt.Lane.Holds(work, w.p, w.s)
	}
	if err == nil && !there {
		err = a.opt.Lane.Carry(work, w.p, w.s, a.opt.Raw.Read)
	}
	giving, stop := context.WithTimeout(context.WithoutCancel(ctx), telling)
	defer stop()
	switch {
	case err == nil && there:
		_ = claim.Done(giving) // whoever has it now finds the same
		return covered, nil
	case err == nil:
		a.opt.Lane.Recovered()
		return a.complete(giving, claim, w), nil
	}
	untrusted := claim.Context().Err() != nil
	claim.Release(giving)
	if untrusted && ctx.Err() == nil {
		a.opt.Log.Info("a claim was lost before its window was filled; it is left to others", "window", fmt.Sprintf("%v %v", w.p, w.s))
		return lost, nil
	}
	return failed, err
}

// complete says that a window is filled. What was written stays, whoever has the claim now: he writes the same.
func (a *Agent) complete(ctx context.Context, claim Claim, w window) (how string) {
	err := claim.Done(ctx)
	switch {
	case errors.Is(err, ErrStale):
		a.opt.Log.Warn("a window was filled under a claim that had expired; the rows are there once all the same", "window", fmt.Sprintf("%v %v", w.p, w.s))
		return stale
	case err != nil: // it expires by itself
		a.opt.Log.Debug("the end of a claim was not confirmed", "window", fmt.Sprintf("%v %v", w.p, w.s), "error", err)
	}
	return done
}

func (a *Agent) working(on string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.backlog.Working = on
}
