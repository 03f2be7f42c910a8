package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// TCPFaults is a proxy on a loopback port of its own before any TCP address: a network that can be made to fail.
//
// Modes act on open connections and new ones alike. Leaving TCPHang is a network that has come back: what was held goes on, nothing is lost.
type TCPFaults struct {
	target string
	ports  *ports
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	mode     TCPMode
	latency  time.Duration
	open     chan struct{} // closed unless the mode is TCPHang: who has something to forward waits for it
	listener net.Listener  // nil while the mode is TCPRefuse
	conns    map[net.Conn]struct{}
	accepted int
}

// TCPMode is what a TCPFaults does.
type TCPMode int

// The modes of a TCPFaults.
const (
	TCPPass   TCPMode = iota // forward
	TCPRefuse                // nobody listens: connections are refused, open ones closed
	TCPHang                  // accept, never answer, forward nothing
	TCPReset                 // accept, then reset; open connections are reset
)

// NewTCPFaults starts a proxy before target ("host:port") in the mode TCPPass. Close it.
func NewTCPFaults(target string) (*TCPFaults, error) {
	p, err := reservePorts(1)
	if err != nil {
		return nil, err
	}
	f := &TCPFaults{target: target, ports: p, open: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(f.open)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.listen(); err != nil {
		p.release()
		return nil, err
	}
	return f, nil
}

// Addr is where clients connect, whatever the mode.
func (f *TCPFaults) Addr() string { return loopback(f.ports.numbers[0]) }

// Accepted counts the connections that were accepted so far.
func (f *TCPFaults) Accepted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted
}

// SetLatency delays each chunk (of at most 64 KiB) by d, in each direction, from now on.
func (f *TCPFaults) SetLatency(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latency = d
}

// Set changes the mode. When it returns, the new mode holds for every connection, but for a chunk that was just being written.
func (f *TCPFaults) Set(mode TCPMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return net.ErrClosed
	}
	f.setOpen(mode != TCPHang)
	f.mode = mode
	if mode == TCPRefuse || mode == TCPReset {
		f.drop()
	}
	if mode == TCPRefuse {
		f.stopListening()
		return nil
	}
	return f.listen()
}

// Close ends the proxy and every connection through it.
func (f *TCPFaults) Close() error {
	f.cancel()
	f.mu.Lock()
	f.drop()
	f.stopListening()
	f.mu.Unlock()
	f.wg.Wait()
	f.ports.release()
	return nil
}

// setOpen opens or closes the gate that TCPHang shuts; f.mu is held.
func (f *TCPFaults) setOpen(open bool) {
	select {
	case <-f.open:
		if !open {
			f.open = make(chan struct{})
		}
	default:
		if open {
			close(f.open)
		}
	}
}

// drop ends all connections, by a reset in the mode TCPReset; f.mu is held.
func (f *TCPFaults) drop() {
	for c := range f.conns {
		if tcp, ok := c.(*net.TCPConn); ok && f.mode == TCPReset {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}

func (f *TCPFaults) stopListening() {
	if f.listener != nil {
		f.listener.Close()
		f.listener = nil
	}
}

// listen makes sure that somebody accepts; f.mu is held.
func (f *TCPFaults) listen() error {
	if f.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", f.Addr())
	if err != nil {
		return fmt.Errorf("listen for %s: %w", f.target, err)
	}
	f.listener = l
	f.wg.Go(func() { f.accept(l) })
	return nil
}

func (f *TCPFaults) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && f.admit(client) {
			f.wg.Go(func() { f.serve(client) })
		}
	}
}

// admit registers a new connection, or ends it where the mode says so.
func (f *TCPFaults) admit(client net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accepted++
	if f.mode == TCPReset {
		client.(*net.TCPConn).SetLinger(0)
	}
	if f.mode == TCPReset || f.mode == TCPRefuse || f.ctx.Err() != nil {
		client.Close()
		return false
	}
	f.conns[client] = struct{}{}
	return true
}

// register adds the second half of a connection, unless the first was dropped meanwhile.
func (f *TCPFaults) register(server net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mode == TCPReset || f.mode == TCPRefuse || f.ctx.Err() != nil {
		return false
	}
	f.conns[server] = struct{}{}
	return true
}

func (f *TCPFaults) forget(c net.Conn) {
	c.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

// serve forwards one connection both ways until both ends have been closed.
func (f *TCPFaults) serve(client net.Conn) {
	defer f.forget(client)
	if !f.pass(0) {
		return
	}
	var d net.Dialer
	server, err := d.DialContext(f.ctx, "tcp", f.target)
	if err != nil {
		return
	}
	defer f.forget(server)
	if !f.register(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { f.copy(server, client) })
	both.Go(func() { f.copy(client, server) })
	both.Wait()
}

// copy forwards one direction, and its end: the peer sees a half-closed connection, as it would without us.
func (f *TCPFaults) copy(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !f.pass(n) {
			break
		}
		if _, werr := to.Write(buf[:n]); werr != nil {
			from.Close()
			break
		}
		if err != nil {
			break
		}
	}
	to.(*net.TCPConn).CloseWrite()
}

// pass waits for the latency, where there is something to forward, and then for the gate; false when the proxy has been closed.
func (f *TCPFaults) pass(bytes int) bool {
	if bytes > 0 && !f.delay() {
		return false
	}
	f.mu.Lock()
	open := f.open
	f.mu.Unlock()
	select {
	case <-open:
		return true
	case <-f.ctx.Done():
		return false
	}
}

func (f *TCPFaults) delay() bool {
	f.mu.Lock()
	latency := f.latency
	f.mu.Unlock()
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}
