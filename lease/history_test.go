package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
)

// What clients see of one name, as an object with a history. A lease that nobody gives up may end by itself, but not before its time
// has gone since it was asked for: that is in the state, so a lease that ends early makes the history impossible.
type deed struct {
	kind      string // acquire; done; release, whose outcome nobody ever knows
	token     uint64 // of release, done
	call, end time.Duration
}

type outcome struct {
	unknown bool
	token   uint64 // of acquire; 0: taken
	stale   bool   // of done
}

type leaseState struct {
	token   uint64        // of the holder; 0: free
	ghost   bool          // the holder is an attempt of whose lease nobody knows: it may end at any time
	atLeast time.Duration // the time of who held last and is known is not over before
	highest uint64
}

// outlived reports whether the time of who held last may be over by the end of a deed.
func (s leaseState) outlived(d deed) bool { return s.token == 0 || d.end >= s.atLeast }

var history = porcupine.NondeterministicModel{
	Init:  func() []any { return []any{leaseState{}} },
	Step:  func(state, in, out any) []any { return step(state.(leaseState), in.(deed), out.(outcome)) },
	Equal: func(a, b any) bool { return a == b },
}

func step(s leaseState, d deed, o outcome) []any {
	free := leaseState{highest: s.highest}
	switch {
	case d.kind == "acquire" && o.unknown:
		return []any{s, leaseState{token: 1, ghost: true, atLeast: s.atLeast, highest: s.highest}}
	case d.kind == "acquire" && o.token == 0: // somebody has it
		if s.token == 0 {
			return nil
		}
		return []any{s}
	case d.kind == "acquire":
		if !s.outlived(d) || o.token <= s.highest {
			return nil
		}
		return []any{leaseState{token: o.token, atLeast: d.call + ttl, highest: o.token}}
	case o.unknown:
		if s.token == d.token {
			return []any{s, free}
		}
		return []any{s}
	case d.kind == "done" && o.stale:
		if s.token == d.token && !s.ghost && d.end < s.atLeast {
			return nil
		}
		return []any{s}
	case d.kind == "done":
		if s.token != d.token || s.ghost {
			return nil
		}
		return []any{free}
	}
	panic("a release is always unknown")
}

// recorder keeps the histories of names, and what each holder did outside.
type recorder struct {
	c    *cluster
	mu   sync.Mutex
	ops  map[string][]porcupine.Operation
	last map[string]uint64 // the token of the latest effect outside
	held map[string][]*Held
}

func (r *recorder) note(client int, name string, d deed, o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.end = r.c.now()
	end := int64(d.end)
	if o.unknown {
		end = 1 << 62
	}
	r.ops[name] = append(r.ops[name], porcupine.Operation{ClientId: client, Input: d, Output: o, Call: int64(d.call), Return: end})
}

// effect is something done outside, which takes no token that is lower than one it has seen.
func (r *recorder) effect(h *Held) (taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.Token() < r.last[h.Name()] {
		return false
	}
	r.last[h.Name()] = h.Token()
	return true
}

// trusts fails where another holder of the name trusts itself too.
func (r *recorder) trusts(t *testing.T, h *Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.held[h.Name()] {
		if other.Context().Err() == nil && h.Context().Err() == nil {
			t.Errorf("%v: %q has two holders that trust themselves", r.c.now(), h.Name())
		}
	}
	r.held[h.Name()] = append(r.held[h.Name()], h)
}

// TestHistories lets clients compete over a bad network that loses, delays and repeats; some hold on to a lease for longer than they
// may. The histories are linearizable, no lease ends early, no two trust themselves at once, and no effect follows one with a higher
// token.
func TestHistories(t *testing.T) {
	rounds := uint64(30)
	if testing.Short() {
		rounds = 3
	}
	for seed := range rounds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { compete(t, seed) })
	}
}

func compete(t *testing.T, seed uint64) {
	rec := &recorder{ops: map[string][]porcupine.Operation{}, last: map[string]uint64{}, held: map[string][]*Held{}}
	synctest.Test(t, func(t *testing.T) {
		rec.c = newCluster()
		var members []*member
		var all sync.WaitGroup
		for i := range 5 {
			m := rec.c.member(t, fmt.Sprint("n", i))
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			m.set(wild(rand.New(rand.NewPCG(seed, uint64(100+i)))))
			members = append(members, m)
			all.Go(func() {
				for range 12 {
					turn(t, rec, m, i, r)
				}
			})
		}
		all.Wait()
		rec.c.end(members...)
	})
	acquired := 0
	for name, ops := range rec.ops {
		if res := porcupine.CheckOperationsTimeout(history.ToModel(), ops, 5*time.Second); res != porcupine.Ok {
			t.Errorf("%s, %d operations: %v", name, len(ops), res)
		}
		for _, op := range ops {
			if op.Output.(outcome).token != 0 {
				acquired++
			}
		}
	}
	if acquired < 10 {
		t.Errorf("only %d leases: nothing was tried", acquired)
	}
}

// turn is one try of a client at a name, and what it does with it.
func turn(t *testing.T, rec *recorder, m *member, client int, r *rand.Rand) {
	name := fmt.Sprint("w", r.IntN(3))
	h := try(t, rec, m, client, name, r)
	if h == nil {
		time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
		return
	}
	rec.trusts(t, h)
	time.Sleep(time.Duration(r.IntN(6000)) * time.Millisecond)
	if r.IntN(4) == 0 { // paused: it wakes up and does not look
		m.set(cut)
		time.Sleep(2 * ttl)
		m.set(wild(rand.New(rand.NewPCG(r.Uint64(), 0))))
	}
	trusted := h.Context().Err() == nil
	if taken := rec.effect(h); trusted && !taken {
		t.Errorf("%v: the holder of %q was refused outside", rec.c.now(), name)
	}
	finish(rec, h, client, r)
}

func try(t *testing.T, rec *recorder, m *member, client int, name string, r *rand.Rand) *Held {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(30))*time.Second)
	defer cancel()
	d := deed{kind: "acquire", call: rec.c.now()}
	h, held, err := m.Try(ctx, name, ttl)
	if rec.c.now()-d.call >= ttl { // it may have been given a lease, not have heard of it until it was over, and have tried again
		rec.note(client, name, d, outcome{unknown: true})
	}
	switch {
	case err != nil:
		rec.note(client, name, d, outcome{unknown: true})
	case !held:
		rec.note(client, name, d, outcome{})
	default:
		rec.note(client, name, d, outcome{token: h.Token()})
	}
	return h
}

func finish(rec *recorder, h *Held, client int, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(40))*time.Second)
	defer cancel()
	d := deed{kind: "release", token: h.Token(), call: rec.c.now()}
	if r.IntN(2) == 0 {
		d.kind = "done"
		err := h.Done(ctx)
		rec.note(client, h.Name(), d, outcome{unknown: err != nil && !errors.Is(err, ErrStale), stale: errors.Is(err, ErrStale)})
		return
	}
	// Without trust nothing is sent, and with trust an error leaves the outcome unknown: either way it may come to nothing.
	_ = h.Release(ctx)
	rec.note(client, h.Name(), d, outcome{unknown: true})
}
