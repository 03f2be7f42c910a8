package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/tuning"
)

// mesh is a network in memory. A server is dialed by its id; the mesh knows at which address it listens. Each direction between two
// servers can be cut for itself, since a server dials for what it asks.
type mesh struct {
	mu      sync.Mutex
	at      map[string]string // server id → address
	listens map[string]chan net.Conn
	cuts    map[[2]string]bool // from, to
	slow    map[[2]string]time.Duration
	links   map[[2]string][]net.Conn
	dials   int
}

func newMesh() *mesh {
	return &mesh{at: map[string]string{}, listens: map[string]chan net.Conn{}, cuts: map[[2]string]bool{},
		slow: map[[2]string]time.Duration{}, links: map[[2]string][]net.Conn{}}
}

// layer is one server's end of the mesh.
type layer struct {
	m        *mesh
	id, addr string
	accepts  chan net.Conn
	done     chan struct{}
	once     sync.Once
}

func (m *mesh) listen(id, addr string) *layer {
	l := &layer{m: m, id: id, addr: addr, accepts: make(chan net.Conn), done: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[id], m.listens[addr] = addr, l.accepts
	return l
}

func (l *layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepts:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *layer) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		if l.m.listens[l.addr] == l.accepts {
			delete(l.m.listens, l.addr)
		}
	})
	return nil
}

func (l *layer) Addr() net.Addr { return memAddr(l.addr) }

type memAddr string

func (a memAddr) Network() string { return "mem" }
func (a memAddr) String() string  { return string(a) }

func (l *layer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	key := [2]string{l.id, string(to)}
	l.m.mu.Lock()
	l.m.dials++
	accepts, cut := l.m.listens[l.m.at[string(to)]], l.m.cuts[key]
	l.m.mu.Unlock()
	if accepts == nil || cut {
		return nil, fmt.Errorf("%s cannot be reached", to)
	}
	a, b := net.Pipe()
	select {
	case accepts <- b:
	case <-time.After(timeout):
		return nil, errors.New("nobody accepts")
	case <-l.done:
		return nil, net.ErrClosed
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.links[key] = append(l.m.links[key], a)
	return &slowConn{Conn: a, m: l.m, key: key}, nil
}

// slowConn delays what is written.
type slowConn struct {
	net.Conn
	m   *mesh
	key [2]string
}

func (c *slowConn) Write(p []byte) (int, error) {
	c.m.mu.Lock()
	d := c.m.slow[c.key]
	c.m.mu.Unlock()
	time.Sleep(d)
	return c.Conn.Write(p)
}

// slowDown delays what one server sends to another.
func (m *mesh) slowDown(from, to *node, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow[[2]string{from.id, to.id}] = d
}

// cut closes the way from one server to another.
func (m *mesh) cut(from, to *node) {
	key := [2]string{from.id, to.id}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cuts[key] = true
	for _, c := range m.links[key] {
		c.Close()
	}
	delete(m.links, key)
}

func (m *mesh) isolate(n *node, others ...*node) {
	for _, o := range others {
		if o != n {
			m.cut(n, o)
			m.cut(o, n)
		}
	}
}

func (m *mesh) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.cuts)
	clear(m.slow)
}

var dbg = slog.New(slog.DiscardHandler)

// node is a server and its directory.
type node struct {
	t      *testing.T
	m      *mesh
	dir    string
	id     string
	limits Limits
	tamper func(*disk) // changes the bare disk before raft sees it
	q      *Quorum
	f      *fsm.FSM
	sent   *counted
}

func newNode(t *testing.T, m *mesh, name string) *node {
	t.Helper()
	n := &node{t: t, m: m, dir: filepath.Join(t.TempDir(), "raft")}
	var err error
	if n.id, err = Create(n.dir, name); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) start() { n.startAt(n.id + "@1") }

func (n *node) startAt(addr string) {
	n.t.Helper()
	o := Options{Dir: n.dir, FSM: fsm.New(), Stream: n.m.listen(n.id, addr), Log: dbg, Limits: n.limits}
	log := newLogger(o.Log)
	n.sent = &counted{wire: overStream(o.Stream, log), to: map[raft.ServerID]int{}}
	o.Transport = n.sent
	d, err := openDisk(n.dir, log)
	if err != nil {
		n.t.Fatal(err)
	}
	if n.tamper != nil {
		n.tamper(d)
	}
	if n.q, err = start(o, d, log); err != nil {
		n.t.Fatal(err)
	}
	n.f = o.FSM
	n.t.Cleanup(n.stop)
}

func (n *node) stop() {
	if n.q == nil {
		return
	}
	if err := n.q.Close(context.Background()); err != nil {
		n.t.Error(err)
	}
	n.q = nil
}

// set stores a setting through this server.
func (n *node) set(key, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	reply, err := n.q.Propose(ctx, fsm.RouteTuning, tuning.Set(key, value))
	if err != nil {
		return err
	}
	return tuning.Answer(reply)
}

// get reads a setting of this server's own tables.
func (n *node) get(key string) (out string) {
	n.f.Read(func(t *fsm.Tables, _ time.Duration, _ uint64) { out, _ = t.Tuning.Get(key) })
	return out
}

func (n *node) mustSet(key, value string) {
	n.t.Helper()
	if err := n.set(key, value); err != nil {
		n.t.Fatalf("setting %s: %v", key, err)
	}
}

// within waits in fake time for something to become true.
func within(t *testing.T, d time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

// leaderOf waits for one of the nodes that leads and may propose.
func leaderOf(t *testing.T, nodes ...*node) *node {
	t.Helper()
	var l *node
	within(t, 15*time.Second, "a leader", func() bool {
		for _, n := range nodes {
			if n.q != nil && n.q.State().Ready {
				l = n
			}
		}
		return l != nil
	})
	return l
}

// grow founds on the first node, and gives seats to the others up to voters; the rest hold the log.
func grow(t *testing.T, voters int, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		n.start()
	}
	first := nodes[0]
	ctx := t.Context()
	ok(t, first.q.Bootstrap(ctx))
	for i, n := range nodes[1:] {
		ok(t, first.q.AddNonvoter(ctx, n.id))
		within(t, 5*time.Second, n.id+" holds the log", func() bool { return n.q.State().LastIndex == first.q.State().LastIndex })
		if i+1 < voters {
			within(t, 5*time.Second, n.id+" may be promoted", func() bool { return first.q.caught(n.id) == nil })
			ok(t, first.q.Promote(ctx, n.id))
		}
	}
	agree(t, first, nodes...)
}

// agree waits until the nodes hold what the leader holds, and know its configuration as committed.
func agree(t *testing.T, leader *node, nodes ...*node) {
	t.Helper()
	within(t, 10*time.Second, "agreement", func() bool {
		l := leader.q.State()
		for _, n := range nodes {
			s := n.q.State()
			if s.LastIndex != l.LastIndex || s.ConfigIndex != l.ConfigIndex || !s.ConfigCommitted || s.LeaderID != leader.id {
				return false
			}
		}
		return true
	})
}

func three(t *testing.T) (*mesh, []*node) {
	t.Helper()
	m := newMesh()
	nodes := []*node{newNode(t, m, "n1"), newNode(t, m, "n2"), newNode(t, m, "n3")}
	return m, nodes
}

func others(nodes []*node, not *node) (out []*node) {
	for _, n := range nodes {
		if n != not {
			out = append(out, n)
		}
	}
	return out
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the answer is %v, want %v", err, want)
	}
}

// bubble runs f in fake time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
