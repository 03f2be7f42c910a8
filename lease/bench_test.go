package lease

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a table behind a network with faults. Its time is the bubble's.
type cluster struct {
	start time.Time

	mu       sync.Mutex
	table    Table
	commands [][]byte
	late     sync.WaitGroup // copies still under way
}

func newCluster() *cluster {
	c := &cluster{start: time.Now()}
	c.table.Apply(0, Epoch(1))
	return c
}

func (c *cluster) now() time.Duration { return time.Since(c.start) }

func (c *cluster) apply(cmd []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands = append(c.commands, cmd)
	return c.table.Apply(c.now(), cmd)
}

func (c *cluster) info(name string) Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table.Expire(c.now())
	return c.table.Observe(name)
}

// sent counts the commands of a kind that arrived.
func (c *cluster) sent(op byte) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.commands {
		if cmd[1] == op {
			n++
		}
	}
	return n
}

// fate is what befalls one command.
type fate struct {
	there, back time.Duration // delays
	lost        bool          // it never arrives
	mute        bool          // its reply never does
	copies      time.Duration // it arrives once more, this much later
}

// path is one client's way to the cluster.
type path struct {
	c    *cluster
	mu   sync.Mutex
	fate func(cmd []byte) fate
}

func (p *path) set(f func(cmd []byte) fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fate = f
}

func (p *path) next(cmd []byte) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fate == nil {
		return fate{}
	}
	return p.fate(cmd)
}

var errUnknown = errors.New("no answer")

// Propose brings a command there and its reply back. Whoever stops waiting does not stop the command.
func (p *path) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	f := p.next(cmd)
	answer := make(chan []byte, 1)
	p.c.late.Go(func() {
		time.Sleep(f.there)
		if f.lost {
			return
		}
		reply := p.c.apply(cmd)
		time.Sleep(f.back)
		if !f.mute {
			answer <- reply
		}
		if f.copies > 0 {
			time.Sleep(f.copies)
			p.c.apply(cmd)
		}
	})
	select {
	case reply := <-answer:
		return reply, nil
	case <-ctx.Done():
		return nil, errUnknown
	}
}

func (p *path) Query(ctx context.Context, q []byte) ([]byte, error) {
	if f := p.next(nil); f.lost || f.mute || !sleep(ctx, f.there+f.back) {
		return nil, errUnknown
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.table.Expire(p.c.now())
	return p.c.table.Query(q), nil
}

// member is a client that runs, and its way.
type member struct {
	*Client
	*path
	stop func() // ends Run, and waits until it has returned
}

func (c *cluster) member(t *testing.T, holder string) *member {
	p := &path{c: c}
	m := &member{path: p, Client: New(Options{Proposer: p, Asker: p, Holder: holder, Log: slog.New(slog.DiscardHandler)})}
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error("Run: ", err)
		}
	})
	m.stop = func() { cancel(); run.Wait() }
	return m
}

func (c *cluster) end(members ...*member) {
	for _, m := range members {
		m.stop()
	}
	c.late.Wait()
}

// cut loses everything.
func cut([]byte) fate { return fate{lost: true} }

// only befalls the first command of a kind.
func only(op byte, f fate) func([]byte) fate {
	done := false
	return func(cmd []byte) fate {
		if done || cmd == nil || cmd[1] != op {
			return fate{}
		}
		done = true
		return f
	}
}

// wild is a bad network.
func wild(r *rand.Rand) func([]byte) fate {
	return func([]byte) fate {
		f := fate{there: time.Duration(r.IntN(200)) * time.Millisecond, back: time.Duration(r.IntN(200)) * time.Millisecond}
		switch r.IntN(12) {
		case 0:
			f.lost = true
		case 1:
			f.mute = true
		case 2:
			f.there = time.Duration(r.IntN(15)) * time.Second
		case 3:
			f.back = time.Duration(r.IntN(15)) * time.Second
		case 4:
			f.copies = time.Duration(r.IntN(30)) * time.Second
		}
		return f
	}
}
