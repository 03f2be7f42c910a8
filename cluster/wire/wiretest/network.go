package wiretest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Network is a set of named hosts in memory, with what goes wrong between hosts: cuts one way and both, delays, resets, hosts that die and
// hosts that come back under another IP address. Streams behave like TCP's (a window, in-order delivery, half close, silence while cut and
// delivery after it), packets like UDP's (dropped where they cannot go).
//
// Whatever waits, waits on channels and timers only, so that it may run in a synctest bubble; a network that is used in a bubble must be
// made in it. Safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	hosts map[string]*Host
	byIP  map[netip.Addr]*Host
	links map[way]*link
	ips   byte
}

// way is a direction between two hosts, by name.
type way struct{ from, to string }

// New returns a network without hosts.
func New() *Network {
	return &Network{hosts: map[string]*Host{}, byIP: map[netip.Addr]*Host{}, links: map[way]*link{}}
}

// Host returns the host of a name, and makes it where there is none.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[name]; h != nil {
		return h
	}
	h := &Host{net: n, name: name, streams: map[uint16]*listener{}, packets: map[uint16]*packetConn{}, ends: map[*conn]bool{}, next: 40000}
	n.hosts[name] = h
	n.number(h)
	return h
}

// number gives a host a fresh IP address. The caller holds mu.
func (n *Network) number(h *Host) {
	n.ips++
	delete(n.byIP, h.ip)
	h.ip = netip.AddrFrom4([4]byte{10, 0, 0, n.ips})
	n.byIP[h.ip] = h
}

// Lookup returns the IP address of a host by its name, as a resolver would.
func (n *Network) Lookup(_ context.Context, host string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ip, err := netip.ParseAddr(host); err == nil {
		return []string{ip.String()}, nil
	}
	h := n.hosts[host]
	if h == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []string{h.ip.String()}, nil
}

// find returns the host and port of an address; the host is nil where nobody has that IP address.
func (n *Network) find(address string) (*Host, uint16, error) {
	name, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, 0, fmt.Errorf("port of %q: %w", address, err)
	}
	ips, err := n.Lookup(context.Background(), name)
	if err != nil {
		return nil, 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byIP[netip.MustParseAddr(ips[0])], uint16(port), nil
}

// Cut lets nothing pass from one host to the other: packets are lost, and what streams have sent waits for Heal.
func (n *Network) Cut(from, to string) { n.link(from, to).set(true) }

// CutBoth cuts both ways between two hosts.
func (n *Network) CutBoth(a, b string) {
	n.Cut(a, b)
	n.Cut(b, a)
}

// Heal undoes Cut, both ways.
func (n *Network) Heal(a, b string) {
	n.link(a, b).set(false)
	n.link(b, a).set(false)
}

// Isolate cuts a host off from all others that the network has.
func (n *Network) Isolate(name string) {
	for _, other := range n.others(name) {
		n.CutBoth(name, other)
	}
}

// Rejoin undoes Isolate.
func (n *Network) Rejoin(name string) {
	for _, other := range n.others(name) {
		n.Heal(name, other)
	}
}

// Delay sets how long bytes and packets take from one host to the other, from now on.
func (n *Network) Delay(from, to string, d time.Duration) {
	l := n.link(from, to)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Reset breaks all streams between two hosts at once, as a firewall that forgets them would: both ends see a reset, also while cut.
func (n *Network) Reset(a, b string) {
	host := n.Host(a)
	host.mu.Lock()
	defer host.mu.Unlock()
	for c := range host.ends {
		if c.remote == b {
			c.in.abort()
			c.out.abort()
		}
	}
}

func (n *Network) others(name string) (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.hosts {
		if other != name {
			out = append(out, other)
		}
	}
	return out
}

func (n *Network) link(from, to string) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[way{from, to}]
	if l == nil {
		l = &link{}
		n.links[way{from, to}] = l
	}
	return l
}

// link is one direction between two hosts.
type link struct {
	mu    sync.Mutex
	cut   bool
	since time.Time // when it was cut
	delay time.Duration
	news  signal
}

func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cut && !l.cut {
		l.since = time.Now()
	}
	l.cut = cut
	l.news.tell()
}

// state returns whether the link is cut, since when, its delay, and what is closed at the next change.
func (l *link) state() (cut bool, since time.Time, delay time.Duration, news <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut, l.since, l.delay, l.news.next()
}

// signal wakes all who wait for a change. Its owner's lock guards it.
type signal struct{ ch chan struct{} }

func (s *signal) next() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) tell() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
