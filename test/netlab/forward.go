//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"io"
	stdnet "net"
	"sync"
)

// Forward lets the host reach what listens on a loopback address of the machine, such as 127.0.0.1:9092, under the same address. What
// goes that way does not pass the lab's paths. It ends when stop is called, and with it all connections that came through.
func (h *Host) Forward(address string) (stop func(), err error) {
	l, err := h.Listen("tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("netlab: forward %s to host %d: %w", address, h.Number, err)
	}
	f := &forward{address: address, open: map[stdnet.Conn]bool{}}
	f.running.Go(func() { f.accept(l) })
	return func() { l.Close(); f.close(); f.running.Wait() }, nil
}

// forward is one forwarded address.
type forward struct {
	address string
	running sync.WaitGroup

	mu     sync.Mutex
	open   map[stdnet.Conn]bool
	closed bool
}

func (f *forward) accept(l stdnet.Listener) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		f.running.Go(func() { f.join(in) })
	}
}

// join pipes a connection to a new one, until both have ended or one fails.
func (f *forward) join(in stdnet.Conn) {
	defer in.Close()
	out, err := stdnet.Dial("tcp4", f.address)
	if err != nil {
		return
	}
	defer out.Close()
	if !f.hold(in, out) {
		return
	}
	defer f.forget(in, out)
	var both sync.WaitGroup
	both.Go(func() { pipe(out, in) })
	both.Go(func() { pipe(in, out) })
	both.Wait()
}

func (f *forward) hold(conns ...stdnet.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		f.open[c] = true
	}
	return !f.closed
}

func (f *forward) forget(conns ...stdnet.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		delete(f.open, c)
	}
}

func (f *forward) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.open {
		c.Close()
	}
}

// pipe copies one way and passes the end on.
func pipe(to, from stdnet.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	if err != nil && !errors.Is(err, stdnet.ErrClosed) {
		to.Close()
		from.Close()
	}
}
