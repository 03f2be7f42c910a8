package leasing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Leases is how a tenant asks.
type Leases interface {
	// Acquire waits its turn until ctx ends.
	Acquire(ctx context.Context, name string, ttl time.Duration) (Held, error)
	// Try is refused, by nil, where another holds the lease or waits for it.
	Try(ctx context.Context, name string, ttl time.Duration) (Held, error)
	// Observe returns the token in force, 0 where nobody holds the lease.
	Observe(ctx context.Context, name string) (uint64, error)
}

// Held is a lease that is held. Its context ends when the holder may not count on it any more.
type Held interface {
	Token() uint64
	Context() context.Context
	Release(ctx context.Context) error
	Done(ctx context.Context) error
}

// ErrStale is what Done must wrap where the lease is not the caller's any more.
var ErrStale = errors.New("the lease is not the caller's any more")

// Options of a Traffic.
type Options struct {
	Tenants int
	Names   int // of leases that they contend for
	TTL     time.Duration
	Seed    uint64
	// Connect is a new client, whose leases are renewed until end is called; what it holds then ends by itself.
	Connect func(holder string) (l Leases, end func(), err error)
}

// Traffic is a number of tenants at work. Each asks, holds, gives up, looks; now and then one dies with what it holds.
type Traffic struct {
	*History
	o    Options
	stop context.CancelFunc
	all  sync.WaitGroup

	mu  sync.Mutex
	err error
}

// patience is how long a tenant waits for the answer to anything: longer than any cluster is without a leader while a test goes well, so
// that the outcome of little stays unknown.
const patience = time.Minute

// Begin starts the tenants.
func Begin(o Options) *Traffic {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Traffic{History: NewHistory(), o: o, stop: cancel}
	for i := 1; i <= o.Tenants; i++ {
		w := &tenant{Traffic: t, number: i, dice: rand.New(rand.NewPCG(o.Seed, uint64(i)))}
		t.all.Go(func() {
			if err := w.run(ctx); err != nil {
				t.mu.Lock()
				t.err = errors.Join(t.err, fmt.Errorf("tenant %d: %w", i, err))
				t.mu.Unlock()
			}
		})
	}
	return t
}

// End lets the tenants finish what they are at and returns what they wrote down. An error is one that no tenant should have met.
func (t *Traffic) End() ([]Op, error) {
	t.stop()
	t.all.Wait()
	return t.Ops(), t.err
}

// tenant is one of them.
type tenant struct {
	*Traffic
	number int
	lives  int
	dice   *rand.Rand
	leases Leases
}

// run lives one life after another.
func (w *tenant) run(ctx context.Context) error {
	for ctx.Err() == nil {
		w.lives++
		leases, end, err := w.o.Connect(fmt.Sprintf("tenant-%d~%d", w.number, w.lives))
		if err != nil {
			return err
		}
		w.leases = leases
		w.live(ctx)
		end()
	}
	return nil
}

// live does one thing after another until its death, or the end of all.
func (w *tenant) live(ctx context.Context) {
	for ctx.Err() == nil {
		if dies := w.act(ctx); dies {
			return
		}
		w.pause(ctx, 200*time.Millisecond)
	}
}

// pause waits a random time up to d, or for ctx.
func (w *tenant) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(time.Duration(w.dice.Int64N(int64(d)))):
	case <-ctx.Done():
	}
}

func (w *tenant) act(ctx context.Context) (dies bool) {
	name := fmt.Sprintf("name-%d", w.dice.IntN(w.o.Names))
	switch w.dice.IntN(10) {
	case 0, 1, 2:
		w.observe(name)
		return false
	case 3, 4:
		return w.hold(ctx, name, w.leases.Acquire)
	default:
		return w.hold(ctx, name, w.leases.Try)
	}
}

// ask makes an operation of what call answers; a failed call's outcome is not known.
func (w *tenant) ask(o Op, call func(context.Context, *Op) error) *Op {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o.Tenant, o.Call, o.Return = w.number, w.now(), Never
	op := w.add(o)
	known := o
	if err := call(ctx, &known); err == nil {
		w.change(op, func(op *Op) {
			call := op.Call
			*op = known
			op.Call, op.Return = call, w.now()
		})
	}
	return op
}

func (w *tenant) observe(name string) {
	w.ask(Op{Kind: Observe, Name: name}, func(ctx context.Context, o *Op) (err error) {
		o.Token, err = w.leases.Observe(ctx, name)
		return err
	})
}

// hold asks for a lease; where it gets it, it keeps it for a while and gives it up, loses it, or dies with it.
func (w *tenant) hold(ctx context.Context, name string, get func(context.Context, string, time.Duration) (Held, error)) (dies bool) {
	var held Held
	op := w.ask(Op{Kind: Acquire, Name: name, TTL: w.o.TTL, Until: Never}, func(ctx context.Context, o *Op) (err error) {
		if held, err = get(ctx, name, w.o.TTL); held != nil {
			o.Token = held.Token()
		}
		return err
	})
	if held == nil {
		return false
	}
	context.AfterFunc(held.Context(), func() { w.lose(op, false) })
	keep, cancel := context.WithCancel(held.Context())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	w.pause(keep, 2*time.Second)
	if w.dice.IntN(20) == 0 {
		return true
	}
	w.give(op, held)
	return false
}

// lose writes down when the holder ceased to count on its lease.
func (w *tenant) lose(op *Op, gave bool) (first bool) {
	w.change(op, func(op *Op) {
		if first = op.Until == Never; first {
			op.Until, op.Gave = w.now(), gave
		}
	})
	return first
}

// give gives a lease up. It is not counted on from before that is asked.
func (w *tenant) give(op *Op, held Held) {
	if held.Context().Err() == nil {
		w.lose(op, true)
	}
	kind := Release
	if w.dice.IntN(2) == 0 {
		kind = Done
	}
	w.ask(Op{Kind: kind, Name: op.Name, Token: held.Token()}, func(ctx context.Context, o *Op) error {
		if kind == Release {
			return held.Release(ctx)
		}
		err := held.Done(ctx)
		o.Stale = errors.Is(err, ErrStale)
		if o.Stale {
			return nil
		}
		return err
	})
}
