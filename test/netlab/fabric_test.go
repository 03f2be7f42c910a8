//go:build linux

package netlab

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	playToy()
	goleak.VerifyTestMain(m)
}

// plug is a host's end of the fabric in memory.
type plug struct {
	out chan []byte // what the host sends

	mu sync.Mutex
	in [][]byte // what it received
}

func (p *plug) Read(b []byte) (int, error) {
	packet, ok := <-p.out
	if !ok {
		return 0, io.EOF
	}
	return copy(b, packet), nil
}

func (p *plug) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in = append(p.in, bytes.Clone(b))
	return len(b), nil
}

func (p *plug) received() (out string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.in {
		out += string(b[20:])
	}
	return out
}

// packet is an IPv4 packet to a host.
func packet(to int, body string) []byte {
	b := make([]byte, 20, 20+len(body))
	b[0] = 0x45
	ip := address(to).As4()
	copy(b[16:], ip[:])
	return append(b, body...)
}

// wired runs do beside a running fabric of two hosts.
func wired(t *testing.T, do func(f *fabric, a, b *plug)) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &plug{out: make(chan []byte)}, &plug{out: make(chan []byte)}
		f := newFabric([]port{a, b})
		var ended sync.WaitGroup
		ended.Go(f.deliver)
		for i := range f.ports {
			ended.Go(func() { f.carry(i) })
		}
		do(f, a, b)
		close(a.out)
		close(b.out)
		f.close()
		ended.Wait()
	})
}

func TestFabricDeliversInOrderAfterTheDelay(t *testing.T) {
	wired(t, func(f *fabric, a, b *plug) {
		a.out <- packet(2, "0")
		synctest.Wait()
		if got := b.received(); got != "0" {
			t.Errorf("without a delay %q has arrived", got)
		}
		f.change(func(n *net) { n.set(0, 1, Path{Delay: 50 * time.Millisecond}) })
		for _, body := range []string{"1", "2", "3"} {
			a.out <- packet(2, body)
		}
		time.Sleep(49 * time.Millisecond)
		synctest.Wait()
		if got := b.received(); got != "0" {
			t.Errorf("a moment before the delay is over %q has arrived", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := b.received(); got != "0123" {
			t.Errorf("after the delay %q has arrived", got)
		}
	})
}

func TestFabricTakesNotice(t *testing.T) {
	wired(t, func(f *fabric, a, b *plug) {
		f.change(func(n *net) { n.set(0, 1, Path{Delay: time.Minute}) })
		a.out <- packet(2, "late")
		synctest.Wait()
		f.change(func(n *net) { n.set(0, 1, Path{Delay: time.Second}) })
		a.out <- packet(2, "early")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := b.received(); got != "early" {
			t.Errorf("%q has arrived: what is due first does not wait behind what was sent first", got)
		}
	})
}

func TestDestination(t *testing.T) {
	f := func(b []byte, want int, wantOK bool) {
		t.Helper()
		if got, ok := destination(b); got != want && ok || ok != wantOK {
			t.Errorf("%x is for host %d (%v), want %d (%v)", b, got, ok, want, wantOK)
		}
	}
	f(packet(1, "x"), 0, true)
	f(packet(7, ""), 6, true)
	f(nil, 0, false)
	f(packet(1, "x")[:19], 0, false)
	f(append([]byte{0x60}, packet(1, "x")[1:]...), 0, false)
	other := packet(1, "x")
	other[16] = 192
	f(other, 0, false)
}
