package wiretest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// giveUp is how long a dial without an end waits for a host that is silent.
const giveUp = 2 * time.Minute

// backlog is how many streams wait for Accept.
const backlog = 128

// Host is one machine of a network. It is a wire.Network for the program that runs on it.
type Host struct {
	net  *Network
	name string
	ip   netip.Addr // guarded by net.mu

	mu      sync.Mutex
	streams map[uint16]*listener
	packets map[uint16]*packetConn
	ends    map[*conn]bool // its ends of streams
	next    uint16         // the next port to give out
}

// IP returns the host's address of this moment.
func (h *Host) IP() string { return h.addr().String() }

func (h *Host) addr() netip.Addr {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.ip
}

// Kill ends all sockets of the host, as the end of its process would: peers see resets, unless they are cut off.
func (h *Host) Kill() {
	h.mu.Lock()
	listeners, packets, ends := h.streams, h.packets, h.ends
	h.streams, h.packets, h.ends = map[uint16]*listener{}, map[uint16]*packetConn{}, map[*conn]bool{}
	h.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	for _, p := range packets {
		_ = p.Close()
	}
	for c := range ends {
		c.kill()
	}
}

// Move kills the host and gives it another IP address. Its old one belongs to nobody: who dials it hears nothing.
func (h *Host) Move() {
	h.Kill()
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.net.number(h)
}

// Listen accepts streams at a port of this host; port 0 is one that is free.
func (h *Host) Listen(address string) (net.Listener, error) {
	port, err := h.local(address)
	if err != nil {
		return nil, failed("listen", "tcp", nil, err)
	}
	ip := h.addr()
	h.mu.Lock()
	defer h.mu.Unlock()
	if port == 0 {
		port = h.free()
	}
	if h.streams[port] != nil {
		return nil, failed("listen", "tcp", nil, syscall.EADDRINUSE)
	}
	l := &listener{host: h, addr: tcpAddr(ip, port), port: port, queue: make(chan *conn, backlog), done: make(chan struct{})}
	h.streams[port] = l
	return l, nil
}

// local returns the port of an address that must be this host's.
func (h *Host) local(address string) (uint16, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	if ip, err := netip.ParseAddr(name); name == "" || err == nil && ip.IsUnspecified() {
		name = h.name
	}
	owner, number, err := h.net.find(net.JoinHostPort(name, port))
	if err == nil && owner != h {
		err = syscall.EADDRNOTAVAIL
	}
	return number, err
}

// free returns a port that nothing uses. The caller holds mu.
func (h *Host) free() uint16 {
	for {
		h.next++
		if h.streams[h.next] == nil && h.packets[h.next] == nil {
			return h.next
		}
	}
}

// Dial opens a stream. A host that is cut off lets it wait until ctx ends; a port on which nobody listens refuses at once.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	to, port, err := h.net.find(address)
	if err != nil {
		return nil, failed("dial", "tcp", nil, err)
	}
	if to == nil {
		<-ctx.Done()
		return nil, failed("dial", "tcp", nil, timedOut(ctx))
	}
	there := tcpAddr(to.addr(), port)
	if err := h.handshake(ctx, to); err != nil {
		return nil, failed("dial", "tcp", there, err)
	}
	c, err := h.connect(ctx, to, there)
	if err != nil {
		return nil, failed("dial", "tcp", there, err)
	}
	return c, nil
}

// handshake waits until both ways are open, and for as long as a packet there and back takes.
func (h *Host) handshake(ctx context.Context, to *Host) error {
	for _, l := range []*link{h.net.link(h.name, to.name), h.net.link(to.name, h.name)} {
		for {
			cut, _, delay, news := l.state()
			if !cut {
				if err := pause(ctx, delay); err != nil {
					return err
				}
				break
			}
			select {
			case <-news:
			case <-ctx.Done():
				return timedOut(ctx)
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return timedOut(ctx)
	}
}

// connect makes the two ends and queues one at the listener.
func (h *Host) connect(ctx context.Context, to *Host, there *net.TCPAddr) (net.Conn, error) {
	to.mu.Lock()
	l := to.streams[uint16(there.Port)]
	to.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	ip := h.addr()
	h.mu.Lock()
	here := tcpAddr(ip, h.free())
	h.mu.Unlock()
	ours, theirs := newPair(h, to, here, there)
	select {
	case l.queue <- theirs:
	case <-l.done:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, timedOut(ctx)
	}
	h.hold(ours)
	to.hold(theirs)
	return ours, nil
}

func (h *Host) hold(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-c.done:
	default:
		h.ends[c] = true
	}
}

func timedOut(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return syscall.ETIMEDOUT
	}
	return ctx.Err()
}

func tcpAddr(ip netip.Addr, port uint16) *net.TCPAddr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, port))
}

func failed(op, network string, addr net.Addr, err error) error {
	return &net.OpError{Op: op, Net: network, Addr: addr, Err: err}
}

// listener hands out the streams that were dialed to a port.
type listener struct {
	host  *Host
	addr  net.Addr
	port  uint16
	queue chan *conn
	once  sync.Once
	done  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, failed("accept", "tcp", l.addr, net.ErrClosed)
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, failed("accept", "tcp", l.addr, net.ErrClosed)
	}
}

// Close refuses what comes, and resets what nobody has accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.host.mu.Lock()
		if l.host.streams[l.port] == l {
			delete(l.host.streams, l.port)
		}
		l.host.mu.Unlock()
		for {
			select {
			case c := <-l.queue:
				c.kill()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }
