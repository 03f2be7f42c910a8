// Package gossiptest is memberlist's transport on the network in memory of wiretest, for synctest bubbles.
package gossiptest

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/stream-arrow/twgd/cluster/wire/wiretest"
)

// transport pumps packets and streams of one port into memberlist's channels.
type transport struct {
	host    *wiretest.Host
	packets net.PacketConn
	streams net.Listener
	in      chan *memberlist.Packet
	conns   chan net.Conn
	life    context.Context // ends at Shutdown
	end     context.CancelFunc
	jobs    sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // nil after Shutdown
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// New listens at an address of the host, such as "n1:7482", for packets and streams. memberlist's Shutdown ends it.
func New(h *wiretest.Host, address string) (memberlist.NodeAwareTransport, error) {
	streams, err := h.Listen(address)
	if err != nil {
		return nil, err
	}
	packets, err := h.Packets(streams.Addr().String())
	if err != nil {
		_ = streams.Close()
		return nil, err
	}
	t := &transport{host: h, packets: packets, streams: streams, in: make(chan *memberlist.Packet), conns: make(chan net.Conn), open: map[net.Conn]bool{}}
	t.life, t.end = context.WithCancel(context.Background())
	t.jobs.Go(t.pumpPackets)
	t.jobs.Go(t.pumpStreams)
	return t, nil
}

func (t *transport) pumpPackets() {
	for {
		b := make([]byte, 65536)
		n, from, err := t.packets.ReadFrom(b)
		if err != nil {
			return
		}
		select {
		case t.in <- &memberlist.Packet{Buf: b[:n], From: from, Timestamp: time.Now()}:
		case <-t.life.Done():
			return
		}
	}
}

func (t *transport) pumpStreams() {
	for {
		c, err := t.streams.Accept()
		if err != nil {
			return
		}
		c = t.hold(c)
		select {
		case t.conns <- c:
		case <-t.life.Done():
			_ = c.Close()
			return
		}
	}
}

// FinalAdvertiseAddr is the address on the network, whatever is configured.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	a := t.streams.Addr().(*net.TCPAddr)
	return a.IP, a.Port, nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.packets.WriteTo(b, to)
	return time.Now(), err
}

func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.life, timeout)
	defer cancel()
	c, err := t.host.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return t.hold(c), nil
}

func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.in }
func (t *transport) StreamCh() <-chan net.Conn           { return t.conns }

// Shutdown ends everything at once, streams in use too, so that nothing of a member is left behind in a bubble.
func (t *transport) Shutdown() error {
	t.end()
	_ = t.packets.Close()
	_ = t.streams.Close()
	t.mu.Lock()
	open := t.open
	t.open = nil
	t.mu.Unlock()
	for c := range open {
		_ = c.Close()
	}
	t.jobs.Wait()
	return nil
}

// held is a stream that Shutdown ends.
type held struct {
	net.Conn
	t *transport
}

func (t *transport) hold(c net.Conn) net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		_ = c.Close()
	} else {
		t.open[c] = true
	}
	return &held{c, t}
}

func (h *held) Close() error {
	h.t.mu.Lock()
	delete(h.t.open, h.Conn)
	h.t.mu.Unlock()
	return h.Conn.Close()
}
