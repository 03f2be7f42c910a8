package wire

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// byeFor bounds how long a close may take to say goodbye to a peer that does not read.
const byeFor = 200 * time.Millisecond

// conn is a connection with a proved peer. It hides TLS from net/http, which speaks HTTP/2 over it as if it were bare.
type conn struct {
	net.Conn
	port  *Port
	raw   net.Conn
	peer  string // the node's name
	proto string
	once  sync.Once
	gone  func() // called once at the end; may be nil
}

func (p *Port) newConn(tc *tls.Conn, raw net.Conn, peer string) *conn {
	return &conn{Conn: tc, port: p, raw: raw, peer: peer, proto: tc.ConnectionState().NegotiatedProtocol}
}

// Close says goodbye and ends the connection.
func (c *conn) Close() error {
	c.once.Do(func() {
		t := time.AfterFunc(byeFor, func() { _ = c.raw.Close() })
		_ = c.Conn.Close()
		t.Stop()
		c.port.drop(c.raw)
		if c.gone != nil {
			c.gone()
		}
	})
	return nil
}

// queue is a listener that is given its connections.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// give waits until the connection is accepted. It is false where that cannot be any more.
func (q *queue) give(ctx context.Context, c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.done:
	case <-ctx.Done():
	}
	return false
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

func (q *queue) Addr() net.Addr { return q.addr }
