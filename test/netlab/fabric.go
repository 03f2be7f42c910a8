//go:build linux

package netlab

import (
	"container/heap"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// port is a host's end of the fabric: what is read from it the host has sent, what is written to it the host receives.
type port interface{ io.ReadWriter }

// fabric carries packets between ports as its net says. A packet that is not delayed is written by who read it, so that an idle
// lab costs nothing; what is delayed waits in a queue that one goroutine empties.
type fabric struct {
	ports []port
	wake  chan struct{} // the queue's head has changed, or the fabric is closed

	mu     sync.Mutex
	net    *net
	held   queue
	number uint64
	closed bool
}

func newFabric(ports []port) *fabric {
	dice := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return &fabric{ports: ports, wake: make(chan struct{}, 1), net: newNet(len(ports), dice)}
}

// change lets do look at the net or alter it.
func (f *fabric) change(do func(*net)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.net)
}

// carry takes what one host sends, until its port is closed.
func (f *fabric) carry(from int) {
	packet := make([]byte, 1<<16)
	for {
		n, err := f.ports[from].Read(packet)
		if err != nil {
			return
		}
		if to, ok := destination(packet[:n]); ok && to != from && to < len(f.ports) {
			f.send(from, to, packet[:n])
		}
	}
}

// destination is the host that an IPv4 packet is for, from 0.
func destination(packet []byte) (host int, ok bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return 0, false
	}
	first := address(0).As4()
	if binary.BigEndian.Uint32(packet[16:])&^0xff != binary.BigEndian.Uint32(first[:])&^0xff {
		return 0, false
	}
	return int(packet[19]) - 1, packet[19] > 0
}

// send writes a packet to its host, or holds it. A write that fails is a packet that the host's device dropped.
func (f *fabric) send(from, to int, packet []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, delay := range f.net.send(from, to) {
		if delay <= 0 {
			_, _ = f.ports[to].Write(packet)
			continue
		}
		f.hold(to, packet, time.Now().Add(delay))
	}
}

// hold puts a copy of a packet into the queue; f.mu is held.
func (f *fabric) hold(to int, packet []byte, due time.Time) {
	f.number++
	heap.Push(&f.held, held{due: due, number: f.number, to: to, packet: append([]byte(nil), packet...)})
	if f.held[0].number == f.number {
		f.alert()
	}
}

func (f *fabric) alert() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// deliver writes held packets when they are due, until the fabric is closed.
func (f *fabric) deliver() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, closed := f.release(time.Now())
		if closed {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-f.wake:
		}
	}
}

// release writes what is due, and says how long the next takes.
func (f *fabric) release(now time.Time) (wait time.Duration, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.held) > 0 && !f.held[0].due.After(now) {
		h := heap.Pop(&f.held).(held)
		_, _ = f.ports[h.to].Write(h.packet)
	}
	if len(f.held) == 0 {
		return time.Hour, f.closed
	}
	return f.held[0].due.Sub(now), f.closed
}

func (f *fabric) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.alert()
}

// held is a packet on its way.
type held struct {
	due    time.Time
	number uint64 // of two that are due at once, the one that was sent first goes first
	to     int
	packet []byte
}

// queue is a heap of held packets, the next due first.
type queue []held

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(held)) }

func (q queue) Less(i, j int) bool {
	if q[i].due.Equal(q[j].due) {
		return q[i].number < q[j].number
	}
	return q[i].due.Before(q[j].due)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = held{}
	*q = (*q)[:last]
	return x
}
