//go:build linux

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/cluster/wire"
	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/lease"
	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/leasing"
	"github.com/stream-arrow/twgd/test/netlab"
)

// The program has no command for leases: nodes ask for them among themselves. A tenant asks as a node does, through the program's own
// client and over the nodes' port, from a host of its own, but it checks in nowhere: it takes no seat and no part.

// hostNetwork is a host's network as the port wants it.
type hostNetwork struct{ *netlab.Host }

func (h hostNetwork) Listen(address string) (net.Listener, error) {
	return h.Host.Listen("tcp4", address)
}

func (h hostNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	return h.Host.Dial(ctx, "tcp4", address)
}

// Tenancy is the tenants' access to the cluster. It may be used by several goroutines.
type Tenancy struct {
	fleet *Fleet
	port  *wire.Port

	mu     sync.Mutex
	leader string // address of who led last
}

// Tenancy opens it, until the test ends.
func (f *Fleet) Tenancy() *Tenancy {
	f.Helper()
	host := f.Lab.Host(f.Lab.Size())
	port, err := wire.Open(wire.Options{Network: hostNetwork{host}, Listen: host.Address + ":0", Cluster: f.Cluster, Node: "tenants",
		Keys: []wire.Keys{wire.Derive(f.Cluster, secret)}})
	harness.Must(f, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = port.Run(ctx) })
	f.Cleanup(func() { cancel(); port.Close(); running.Wait() })
	return &Tenancy{fleet: f, port: port}
}

// tryFor bounds one attempt: a leader that is paused must not keep a tenant from the next.
const tryFor = 1500 * time.Millisecond

// ask calls a method of the leader, wherever that is, until there is an answer.
func (y *Tenancy) ask(ctx context.Context, method string, body []byte) ([]byte, error) {
	for {
		address := y.target()
		once, cancel := context.WithTimeout(ctx, tryFor)
		reply, err := y.port.Call(once, address, method, append([]byte{fsm.RouteLease}, body...))
		cancel()
		if err == nil {
			return reply, nil
		}
		y.turn(address, err)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s at %s: %w (%w)", method, address, err, ctx.Err())
		}
	}
}

func (y *Tenancy) target() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.leader == "" {
		all := y.fleet.Addresses()
		y.leader = all[rand.IntN(len(all))]
	}
	return y.leader
}

// turn goes to where the answer points, or to anybody.
func (y *Tenancy) turn(from string, err error) {
	var elsewhere struct{ Address string }
	var remote *wire.RemoteError
	if errors.As(err, &remote) && remote.Code == "not_leader" {
		_ = json.Unmarshal([]byte(remote.Text), &elsewhere) // where it knows of none, anybody is asked
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.leader == from {
		y.leader = elsewhere.Address
	}
}

// Propose is lease.Proposer's.
func (y *Tenancy) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	return y.ask(ctx, "propose", cmd)
}

// Query is lease.Asker's.
func (y *Tenancy) Query(ctx context.Context, q []byte) ([]byte, error) { return y.ask(ctx, "query", q) }

// Client is one holder; its leases are renewed until end is called.
func (y *Tenancy) Client(holder string) (c *lease.Client, end func()) {
	c = lease.New(lease.Options{Proposer: y, Asker: y, Holder: holder})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	return c, func() { cancel(); running.Wait() }
}

// Traffic begins five tenants' work over six names, each lease for ttl.
func (y *Tenancy) Traffic(seed uint64, ttl time.Duration) *leasing.Traffic {
	return leasing.Begin(leasing.Options{Tenants: 5, Names: 6, TTL: ttl, Seed: seed, Connect: func(holder string) (leasing.Leases, func(), error) {
		c, end := y.Client(holder)
		return tenantLeases{c}, end, nil
	}})
}

// Judge ends the traffic and fails the test for what is wrong with its history, or where it was too little to say anything.
func (f *Fleet) Judge(traffic *leasing.Traffic, least int) {
	f.Helper()
	ops, err := traffic.End()
	if granted := traffic.Granted(); err != nil || granted < least {
		f.Errorf("the tenants were granted %d leases, at least %d were due: %v", granted, least, err)
	}
	if err := leasing.Judge(ops); err != nil {
		f.Errorf("of %d operations on leases: %v", len(ops), err)
	}
}

// tenantLeases is the client as leasing wants it.
type tenantLeases struct{ c *lease.Client }

func (l tenantLeases) Acquire(ctx context.Context, name string, ttl time.Duration) (leasing.Held, error) {
	return heldOrNil(l.c.Acquire(ctx, name, ttl))
}

func (l tenantLeases) Try(ctx context.Context, name string, ttl time.Duration) (leasing.Held, error) {
	h, _, err := l.c.Try(ctx, name, ttl)
	return heldOrNil(h, err)
}

func heldOrNil(h *lease.Held, err error) (leasing.Held, error) {
	if h == nil {
		return nil, err
	}
	return tenantHeld{h}, err
}

func (l tenantLeases) Observe(ctx context.Context, name string) (uint64, error) {
	info, err := l.c.Observe(ctx, name)
	return info.Token, err
}

type tenantHeld struct{ *lease.Held }

func (h tenantHeld) Done(ctx context.Context) error {
	err := h.Held.Done(ctx)
	if errors.Is(err, lease.ErrStale) {
		return fmt.Errorf("%w: %w", leasing.ErrStale, err)
	}
	return err
}

// Writes are commands that are sent to the cluster one after the other, to see for how long none gets through.
type Writes struct {
	stop func()

	mu    sync.Mutex
	count int
	last  time.Time
	gap   time.Duration
}

// Writes begins to write.
func (y *Tenancy) Writes() *Writes {
	y.fleet.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &Writes{last: time.Now()}
	var running sync.WaitGroup
	running.Go(func() {
		c, end := y.Client("writer~1")
		defer end()
		for ctx.Err() == nil {
			w.write(ctx, c)
		}
	})
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	y.fleet.Cleanup(w.stop)
	return w
}

// write acquires and releases a lease that nobody else wants.
func (w *Writes) write(ctx context.Context, c *lease.Client) {
	h, held, err := c.Try(ctx, "writes", 10*time.Second)
	if err != nil || !held || h.Release(ctx) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.count, w.gap, w.last = w.count+1, max(w.gap, now.Sub(w.last)), now
}

// Count is how many got through, and Gap the longest time between two that did, or since the last one.
func (w *Writes) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Gap is the longest time in which none got through, since the last call.
func (w *Writes) Gap() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := max(w.gap, time.Since(w.last))
	w.gap = 0
	return gap
}

// Serves waits until a write gets through that was begun after the call.
func (f *Fleet) Serves(y *Tenancy, bound time.Duration) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	c, end := y.Client("server~1")
	defer end()
	h, err := c.Acquire(ctx, "serves", 10*time.Second)
	if err == nil {
		err = h.Release(ctx)
	}
	if err != nil {
		_, seen := f.leads()
		f.Fatalf("no write gets through within %v: %v\n%s", bound, err, seen)
	}
}
