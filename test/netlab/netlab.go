//go:build linux

// Package netlab makes several hosts out of one machine, for tests of what happens between hosts: each is a network namespace with an
// address of its own, and every packet between two of them passes through this process, which delays, loses, doubles or cuts it per
// direction. It also does to one host's process what happens to single machines: a wall clock that is set, a disk that is full or slow.
//
// Nothing is left behind, however the test ends. A namespace has no name and lives as long as a process or a descriptor in it; its
// device, which is a TUN device and so knows neither MAC addresses nor ARP, lives as long as the descriptor that this process reads. A
// small disk is a file system that is mounted nowhere. Processes are children of this one, and the kernel kills them when it dies.
//
// It works for root on Linux; [New] says in one line what is missing otherwise, and tests fail on that: they do not skip.
package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
)

// Lab is a set of hosts, numbered from 1, that all hear each other until they are told otherwise. It may be used by several goroutines.
type Lab struct {
	hosts  []*Host
	fabric *fabric
	ended  sync.WaitGroup
}

// most is how many hosts a lab may have: their number is the last byte of an address.
const most = 200

// New makes hosts 1 to n.
func New(n int) (*Lab, error) {
	if n < 1 || n > most {
		return nil, fmt.Errorf("netlab: a lab has 1 to %d hosts, not %d", most, n)
	}
	if err := missing(); err != nil {
		return nil, err
	}
	l := &Lab{}
	for i := 1; i <= n; i++ {
		h, err := newHost(i)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("netlab: make host %d: %w", i, err), l.Close())
		}
		l.hosts = append(l.hosts, h)
	}
	l.run()
	return l, nil
}

// missing says what a lab needs and does not find.
func missing() error {
	if os.Geteuid() != 0 {
		return errors.New("netlab: hosts are network namespaces, and those are root's to make: run the test as root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return errors.New("netlab: /dev/net/tun is missing: modprobe tun, or give the container that device")
	}
	return nil
}

// run starts to carry packets.
func (l *Lab) run() {
	ports := make([]port, len(l.hosts))
	for i, h := range l.hosts {
		ports[i] = h.device
	}
	l.fabric = newFabric(ports)
	l.ended.Go(l.fabric.deliver)
	for i := range l.hosts {
		l.ended.Go(func() { l.fabric.carry(i) })
	}
}

// Close ends the hosts' networks and returns when nothing carries packets any more. Processes on the hosts live on, alone.
func (l *Lab) Close() error {
	var errs []error
	for _, h := range l.hosts {
		errs = append(errs, h.close())
	}
	if l.fabric != nil {
		l.fabric.close()
	}
	l.ended.Wait()
	return errors.Join(errs...)
}

// Host is the ith host.
func (l *Lab) Host(i int) *Host { return l.hosts[i-1] }

// Size is how many hosts there are.
func (l *Lab) Size() int { return len(l.hosts) }

// Set makes the direction from one host to another behave.
func (l *Lab) Set(from, to int, p Path) {
	l.fabric.change(func(n *net) { n.set(from-1, to-1, p) })
}

// SetAll makes every direction behave.
func (l *Lab) SetAll(p Path) {
	l.fabric.change(func(n *net) { n.setAll(p) })
}

// Cut keeps what from sends away from to, silently; what to sends still arrives.
func (l *Lab) Cut(from, to int) {
	l.fabric.change(func(n *net) { n.cut(from-1, to-1) })
}

// Isolate cuts a host off from all others, in both directions.
func (l *Lab) Isolate(host int) { l.Partition([]int{host}) }

// Partition cuts each of the groups off from the others. A host in no group is in one group with all such.
func (l *Lab) Partition(groups ...[]int) {
	l.fabric.change(func(n *net) { n.partition(groups) })
}

// Rejoin takes all cuts away and leaves delays and losses as they are.
func (l *Lab) Rejoin() {
	l.fabric.change(func(n *net) { n.rejoin() })
}

// Heal makes every direction perfect again.
func (l *Lab) Heal() { l.SetAll(Path{}) }

// Connected reports whether packets get through between two hosts in both directions.
func (l *Lab) Connected(a, b int) (ok bool) {
	l.fabric.change(func(n *net) { ok = n.connected(a-1, b-1) })
	return ok
}

// Counts are the packets that were sent on from one host to another, and those that were dropped.
func (l *Lab) Counts(from, to int) (sent, dropped int) {
	l.fabric.change(func(n *net) { c := n.counts[from-1][to-1]; sent, dropped = c.sent, c.dropped })
	return sent, dropped
}

// address of the ith host.
func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 7, byte(i)}) }
