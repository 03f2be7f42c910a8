package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/cluster/gossip/gossiptest"
	"github.com/stream-arrow/twgd/cluster/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is a few nodes on a network in memory, in one bubble of fake time. Disks are directories.
type lab struct {
	t      *testing.T
	net    *wiretest.Network
	dir    string
	size   int
	procs  map[string]*proc
	start0 time.Time
	made   int // processes
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	log    bytes.Buffer
}

// proc is one process of a node.
type proc struct {
	lab     *lab
	name    string
	o       Options
	n       *Node
	stop    context.CancelFunc
	drained chan struct{}
	ended   chan struct{}
	err     error
	left    error // reason given to Stop
}

// bubble runs f in fake time.
func bubble(t *testing.T, f func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, net: wiretest.New(), dir: t.TempDir(), size: 3, procs: map[string]*proc{}, start0: time.Now()}
		l.ctx, l.cancel = context.WithCancel(context.Background())
		defer func() {
			l.cancel()
			for _, p := range l.procs {
				p.kill()
			}
			if t.Failed() || os.Getenv("TWGD_LOG") != "" {
				t.Log(l.log.String())
			}
		}()
		f(l)
	})
}

// Write takes the log of all nodes.
func (l *lab) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(&l.log, "%9.3f ", time.Since(l.start0).Seconds())
	l.log.Write(p)
	return len(p), nil
}

func (l *lab) logged(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.log.String(), text)
}

func (l *lab) options(name string) Options {
	level := slog.LevelInfo
	if os.Getenv("TWGD_LOG") == "debug" {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})).With("n", name)
	o := Options{Cluster: "test", Node: name, Instance: fmt.Sprint(l.made), Ordinal: int(name[len(name)-1] - '1'), Mode: "both", Dir: filepath.Join(l.dir, name),
		Size: l.size, Listen: name + ":7481", Gossip: name + ":7482", Join: []string{"n1:7481", "n2:7481", "n3:7481"}, Secret: "a secret",
		Settle: time.Minute, Network: l.net.Host(name), Lookup: l.net.Lookup, Log: log}
	return o
}

// run starts a process of a node; change may change its options.
func (l *lab) run(name string, change ...func(*Options)) *proc {
	l.t.Helper()
	l.made++
	o := l.options(name)
	for _, c := range change {
		c(&o)
	}
	p := &proc{lab: l, name: name, drained: make(chan struct{}), ended: make(chan struct{})}
	o.Stop = func(reason error) { p.left = reason; p.stop() }
	if !o.lonely() && o.Gossip != "" && o.GossipTransport == nil {
		tr, err := gossiptest.New(l.net.Host(name), o.Gossip)
		if err != nil {
			l.t.Fatal(err)
		}
		o.GossipTransport = tr
	}
	n, err := New(o)
	if err != nil {
		l.t.Fatal("New: ", err)
	}
	p.o, p.n = n.o, n
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() {
		defer close(p.ended)
		p.err = n.Run(ctx, p.drained)
	}()
	l.procs[name] = p
	return p
}

// term stops a process as SIGTERM does, and waits for its end. Its work is drained at once.
func (p *proc) term() {
	p.lab.t.Helper()
	p.stop()
	close(p.drained)
	p.gone(p.o.Grace + time.Second)
	if p.err != nil {
		p.lab.t.Errorf("%s ended with %v", p.name, p.err)
	}
}

func (p *proc) gone(within time.Duration) {
	p.lab.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		p.lab.t.Fatalf("%s has not ended within %v", p.name, within)
	}
	if p.lab.procs[p.name] == p {
		delete(p.lab.procs, p.name)
	}
}

// kill ends a process as SIGKILL does: nothing is said to anybody.
func (p *proc) kill() {
	select {
	case <-p.ended:
		return
	default:
	}
	p.lab.net.Isolate(p.name)
	p.lab.net.Host(p.name).Kill()
	p.n.abort()
	<-p.ended
	p.lab.net.Rejoin(p.name)
	delete(p.lab.procs, p.name)
	p.stop()
}

// until waits until ok, looking each 20 ms of fake time.
func (l *lab) until(within time.Duration, what string, ok func() bool) time.Duration {
	l.t.Helper()
	start := time.Now()
	for time.Since(start) < within {
		if ok() {
			return time.Since(start)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for name, p := range l.procs {
		s := p.n.Status()
		l.t.Logf("%s: state %s leader %q waiting %q mend %q move %v", name, s.State, s.Leader, s.Waiting, s.Mend, p.n.view().Departure)
	}
	l.t.Fatalf("%v have passed without: %s", within, what)
	return 0
}

func (p *proc) state() string { return p.n.Status().State }

// voters are the names of all that hold a seat, as p sees it.
func (p *proc) voters() string {
	var out []string
	for _, m := range p.n.Members() {
		for _, r := range m.Roles {
			if r == "voter" {
				out = append(out, m.ID)
			}
		}
	}
	return strings.Join(out, " ")
}

// write acquires and releases a lease through p.
func (p *proc) write(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	h, err := p.n.Leases().Acquire(ctx, "test/"+p.name, 10*time.Second)
	if err != nil {
		return err
	}
	return h.Release(ctx)
}

func (l *lab) leader() *proc {
	for _, p := range l.procs {
		if p.n.officeNow() != nil {
			return p
		}
	}
	return nil
}
