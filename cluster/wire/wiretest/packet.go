package wiretest

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// deepest is how many packets wait to be read before more are lost.
const deepest = 1024

// Packets receives packets at a port of this host; port 0 is one that is free.
func (h *Host) Packets(address string) (net.PacketConn, error) {
	port, err := h.local(address)
	if err != nil {
		return nil, failed("listen", "udp", nil, err)
	}
	ip := h.addr()
	h.mu.Lock()
	defer h.mu.Unlock()
	if port == 0 {
		port = h.free()
	}
	if h.packets[port] != nil {
		return nil, failed("listen", "udp", nil, syscall.EADDRINUSE)
	}
	p := &packetConn{host: h, port: port, addr: udpAddr(ip, port)}
	h.packets[port] = p
	return p, nil
}

func udpAddr(ip netip.Addr, port uint16) *net.UDPAddr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, port))
}

// packetConn is a socket for packets. Whether a packet arrives is decided when it is sent.
type packetConn struct {
	host *Host
	port uint16
	addr net.Addr

	mu     sync.Mutex
	queue  []packet
	closed bool
	readBy time.Time
	news   signal
}

type packet struct {
	at   time.Time
	from net.Addr
	data []byte
}

func (p *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, until, news, err := p.take(b)
		if from != nil || err != nil {
			return n, from, err
		}
		await(until, news)
	}
}

func (p *packetConn) take(b []byte) (n int, from net.Addr, until time.Time, news <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.closed:
		return 0, nil, until, nil, failed("read", "udp", p.addr, net.ErrClosed)
	case passed(p.readBy, now):
		return 0, nil, until, nil, failed("read", "udp", p.addr, os.ErrDeadlineExceeded)
	}
	until = p.readBy
	if len(p.queue) == 0 {
		return 0, nil, until, p.news.next(), nil
	}
	if first := p.queue[0]; !first.at.After(now) {
		p.queue = p.queue[1:]
		return copy(b, first.data), first.from, until, nil, nil
	}
	return 0, nil, earlier(until, p.queue[0].at), p.news.next(), nil
}

// WriteTo sends a packet, or loses it: nobody is told.
func (p *packetConn) WriteTo(b []byte, to net.Addr) (int, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return 0, failed("write", "udp", p.addr, net.ErrClosed)
	}
	host, port, err := p.host.net.find(to.String())
	if err != nil {
		return 0, failed("write", "udp", to, err)
	}
	if host == nil {
		return len(b), nil
	}
	cut, _, delay, _ := p.host.net.link(p.host.name, host.name).state()
	host.mu.Lock()
	there := host.packets[port]
	host.mu.Unlock()
	if !cut && there != nil {
		there.receive(packet{at: time.Now().Add(delay), from: p.addr, data: append([]byte(nil), b...)})
	}
	return len(b), nil
}

func (p *packetConn) receive(k packet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.queue) >= deepest {
		return
	}
	i := len(p.queue)
	for i > 0 && k.at.Before(p.queue[i-1].at) { // a shorter way overtakes
		i--
	}
	p.queue = append(p.queue[:i], append([]packet{k}, p.queue[i:]...)...)
	p.news.tell()
}

func (p *packetConn) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return net.ErrClosed
	}
	p.closed, p.queue = true, nil
	p.news.tell()
	p.mu.Unlock()
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if p.host.packets[p.port] == p {
		delete(p.host.packets, p.port)
	}
	return nil
}

func (p *packetConn) LocalAddr() net.Addr { return p.addr }

func (p *packetConn) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

func (p *packetConn) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readBy = t
	p.news.tell()
	return nil
}

// SetWriteDeadline does nothing: a write never waits.
func (p *packetConn) SetWriteDeadline(time.Time) error { return nil }
