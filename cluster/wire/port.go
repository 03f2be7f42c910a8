package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// How many handshakes may be under way, in all and from one host. Who comes on top of that is sent away: somebody who opens connections
// and says nothing takes up places for greetFor, and those of one host only.
const (
	greetMost     = 256
	greetMostHost = 32
)

// Port is a node's port: it listens, answers calls, carries Raft's streams, and makes calls of its own. Safe for concurrent use.
type Port struct {
	o        Options
	id       *identity
	listener net.Listener
	methods  map[string]method
	server   *http.Server
	client   *http.Transport
	calls    *queue // connections for calls
	told     refusals

	life context.Context // ends with Close
	end  context.CancelFunc
	jobs sync.WaitGroup // everything that was started

	mu struct {
		sync.Mutex
		closed   bool
		conns    map[net.Conn]bool // below TLS, dialed and accepted
		routes   map[string]*route // of calls, by address
		greeting map[string]int    // handshakes under way, by host
		shaking  int               // their sum
		raft     *stream           // who gets Raft's connections; nil: nobody
	}
}

// Open listens. Methods are given to the port with Handle before Run serves them; calls may be made at once.
func Open(o Options) (*Port, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	id, err := newIdentity(o.Cluster, o.Node, o.Keys, o.Now)
	if err != nil {
		return nil, err
	}
	l, err := o.Network.Listen(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening for the cluster at %s: %w", o.Listen, err)
	}
	p := &Port{o: o, id: id, listener: l, methods: map[string]method{}, calls: newQueue(l.Addr())}
	p.life, p.end = context.WithCancel(context.Background())
	p.mu.conns, p.mu.routes, p.mu.greeting = map[net.Conn]bool{}, map[string]*route{}, map[string]int{}
	p.told = refusals{tell: o.Refused, log: o.Log}
	p.server, p.client = p.newServer(), p.newClient()
	return p, nil
}

func (o *Options) complete() error {
	if o.Network == nil {
		o.Network = TCP()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ServerID == nil {
		o.ServerID = func() string { return "" }
	}
	if o.Founding == nil {
		o.Founding = func() (none [16]byte, ok bool) { return none, false }
	}
	if o.Addresses == nil {
		o.Addresses = func(id string) (string, error) { return "", fmt.Errorf("no address of %s is known", id) }
	}
	if len(o.Keys) == 0 {
		return errors.New("a port needs the cluster's secret")
	}
	if err := checkName("cluster", o.Cluster); err != nil {
		return err
	}
	return checkName("node", o.Node)
}

func checkName(what, name string) error {
	if name == "" || len(name) > MaxName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the name %q of the %s must have 1 to %d characters, without blanks, all of them ASCII", name, what, MaxName)
	}
	return nil
}

// founding returns the founding of this moment, or zero.
func (p *Port) founding() Founding {
	f, ok := p.o.Founding()
	if !ok {
		return Founding{}
	}
	return f
}

// Addr returns where the port listens.
func (p *Port) Addr() string { return p.listener.Addr().String() }

// Run serves until ctx ends or Close is called, then closes the port. It returns when all that the port started has ended.
func (p *Port) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	defer stop()
	p.start(func() { _ = p.server.Serve(p.calls) })
	err := p.accept()
	_ = p.Close()
	p.jobs.Wait()
	return err
}

// Close ends the port with all its connections, Raft's too, and returns when its handlers have returned: none of them may call it.
func (p *Port) Close() error {
	p.mu.Lock()
	closed := p.mu.closed
	p.mu.closed = true
	conns, layer := p.mu.conns, p.mu.raft
	p.mu.conns = nil
	for _, r := range p.mu.routes {
		if r.idle != nil {
			r.idle.Stop()
		}
	}
	p.mu.Unlock()
	if closed {
		p.jobs.Wait()
		return nil
	}
	p.end()
	err := p.listener.Close()
	for c := range conns { // first: who does not read cannot keep us then
		_ = c.Close()
	}
	_ = p.calls.Close()
	_ = p.server.Close()
	if layer != nil {
		_ = layer.Close()
	}
	p.jobs.Wait()
	return err
}

// start runs f, unless the port is closed; Close waits for it.
func (p *Port) start(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.closed {
		p.jobs.Go(f)
	}
}

// accept greets whoever comes, until the listener is closed. Running out of descriptors passes.
func (p *Port) accept() error {
	pause := time.Duration(0)
	for {
		c, err := p.listener.Accept()
		switch {
		case err == nil:
			pause = 0
			p.start(func() { p.greet(c) })
		case p.life.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting connections of the cluster: %w", err)
		default:
			pause = min(max(2*pause, 10*time.Millisecond), time.Second)
			p.o.Log.Warn("the cluster's port cannot take a connection", "error", err, "again_in", pause)
			p.sleep(pause)
		}
	}
}

func (p *Port) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.life.Done():
	}
}

// greet finds out who dialed, and hands the connection to calls or to Raft.
func (p *Port) greet(raw net.Conn) {
	address := raw.RemoteAddr().String()
	host, _, _ := net.SplitHostPort(address)
	if !p.enter(host) {
		p.o.Log.Debug("a connection was closed: too many have not said who they are", "from", address)
		_ = raw.Close()
		return
	}
	c, err := p.welcome(raw, address)
	p.leave(host)
	if err != nil {
		p.refused(Refusal{Address: address, Inbound: true, Reason: err})
		return
	}
	if c.proto == protoRaft {
		p.greetRaft(c)
		return
	}
	if !p.calls.give(p.life, c) {
		_ = c.Close()
	}
}

func (p *Port) enter(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.shaking >= greetMost || p.mu.greeting[host] >= greetMostHost {
		return false
	}
	p.mu.shaking++
	p.mu.greeting[host]++
	return true
}

func (p *Port) leave(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.shaking--
	if p.mu.greeting[host]--; p.mu.greeting[host] == 0 {
		delete(p.mu.greeting, host)
	}
}

func (p *Port) welcome(raw net.Conn, address string) (*conn, error) {
	if !p.hold(raw) {
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithTimeout(p.life, greetFor)
	defer cancel()
	tc, peer, err := p.id.welcome(ctx, raw, address)
	if err != nil {
		p.drop(raw)
		return nil, err
	}
	return p.newConn(tc, raw, peer), nil
}

// dial connects to a peer and proves who it is.
func (p *Port) dial(ctx context.Context, address, proto string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	raw, err := p.o.Network.Dial(ctx, address)
	if err != nil {
		return nil, ErrUnreachable{Address: address, Err: err}
	}
	if !p.hold(raw) {
		return nil, ErrUnreachable{Address: address, Err: net.ErrClosed}
	}
	tc, peer, err := p.id.shake(ctx, raw, address, proto)
	if err == nil {
		return p.newConn(tc, raw, peer), nil
	}
	p.drop(raw)
	p.refused(Refusal{Address: address, Reason: err})
	if typed(err) {
		return nil, err
	}
	return nil, ErrUnreachable{Address: address, Err: err}
}

// hold keeps a connection in mind, so that Close ends it. Where the port is closed already it ends the connection at once.
func (p *Port) hold(raw net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		_ = raw.Close()
		return false
	}
	p.mu.conns[raw] = true
	return true
}

func (p *Port) drop(raw net.Conn) {
	p.mu.Lock()
	delete(p.mu.conns, raw)
	p.mu.Unlock()
	_ = raw.Close()
}
