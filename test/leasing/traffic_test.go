package leasing

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// desk is a lease service in memory, right or with one of its faults.
type desk struct {
	fault    string
	watching sync.WaitGroup

	mu    sync.Mutex
	held  map[string]*paper
	token uint64
}

// paper is a lease of the desk and its holder's handle.
type paper struct {
	desk   *desk
	name   string
	token  uint64
	ctx    context.Context
	cancel context.CancelFunc
	ends   time.Time
}

func (d *desk) connect(string) (Leases, func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	c := &visitor{desk: d, held: map[*paper]bool{}}
	renewing.Go(func() { c.run(ctx) })
	return c, func() { cancel(); renewing.Wait() }, nil
}

// visitor is a client of the desk: it renews what it holds.
type visitor struct {
	*desk
	held map[*paper]bool
}

func (v *visitor) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.renew()
		case <-ctx.Done():
			return
		}
	}
}

func (v *visitor) renew() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for p := range v.held {
		if p.ctx.Err() == nil && v.desk.held[p.name] == p {
			p.ends = time.Now().Add(10 * time.Second)
		}
	}
}

func (v *visitor) Try(_ context.Context, name string, ttl time.Duration) (Held, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.desk.held[name]; p != nil && time.Now().Before(p.ends) && v.fault != "gives it to two" {
		return nil, nil
	}
	if v.fault != "gives tokens again" || v.token == 0 {
		v.token++
	}
	p := &paper{desk: v.desk, name: name, token: v.token, ends: time.Now().Add(ttl)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	v.watching.Go(p.watch)
	v.desk.held[name], v.held[p] = p, true
	return p, nil
}

// watch ends the holder's trust a second before the desk's.
func (p *paper) watch() {
	for {
		p.desk.mu.Lock()
		left := time.Until(p.ends) - time.Second
		if p.desk.fault == "ends early" {
			left -= 6 * time.Second
		}
		p.desk.mu.Unlock()
		if left <= 0 {
			p.cancel()
			return
		}
		select {
		case <-time.After(left):
		case <-p.ctx.Done():
			return
		}
	}
}

func (v *visitor) Acquire(ctx context.Context, name string, ttl time.Duration) (Held, error) {
	for {
		if h, err := v.Try(ctx, name, ttl); h != nil || err != nil {
			return h, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (v *visitor) Observe(_ context.Context, name string) (uint64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.desk.held[name]; p != nil && time.Now().Before(p.ends) {
		return p.token, nil
	}
	return 0, nil
}

func (p *paper) Token() uint64            { return p.token }
func (p *paper) Context() context.Context { return p.ctx }

func (p *paper) Release(ctx context.Context) error {
	_ = p.Done(ctx) // of a lease that has ended it does nothing
	return nil
}

func (p *paper) Done(context.Context) error {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	p.cancel()
	if p.desk.held[p.name] != p {
		return fmt.Errorf("%s: %w", p.name, ErrStale)
	}
	delete(p.desk.held, p.name)
	return nil
}

// TestTraffic: of a desk that is right nothing is said, and each of its faults is found.
func TestTraffic(t *testing.T) {
	f := func(fault string, right bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			d := &desk{fault: fault, held: map[string]*paper{}}
			traffic := Begin(Options{Tenants: 5, Names: 2, TTL: 10 * time.Second, Seed: 7, Connect: d.connect})
			time.Sleep(2 * time.Minute)
			granted := traffic.Granted()
			ops, err := traffic.End()
			d.watching.Wait()
			if err != nil || granted < 20 {
				t.Errorf("%q: %d grants in two minutes: %v", fault, granted, err)
			}
			if err := Judge(ops); (err == nil) != right {
				t.Errorf("%q, %d operations: %v", fault, len(ops), err)
			}
		})
	}
	f("", true)
	f("gives it to two", false)
	f("gives tokens again", false)
	f("ends early", false)
}
