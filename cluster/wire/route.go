package wire

import (
	"context"
	"net"
	"net/http"
	"time"
)

// route is the way to one address: one connection, which all calls share, so that any number of calls that begin at once make one
// handshake. It is dialed by the first call, and closed when no call has used it for idleFor.
type route struct {
	ready chan struct{} // closed when dialing has ended; then conn or err is set
	conn  *http.ClientConn
	err   error

	users int         // calls; guarded by the port's mu
	idle  *time.Timer // runs while there are none; guarded likewise
}

// broken reports whether a route leads nowhere any more.
func (r *route) broken() bool {
	select {
	case <-r.ready:
		return r.err != nil || r.conn.Err() != nil
	default:
		return false
	}
}

// take returns the route to an address, for one call, which must leave it.
func (p *Port) take(address string) *route {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.mu.routes[address]
	if r == nil || r.broken() {
		r = &route{ready: make(chan struct{})}
		if p.mu.closed {
			r.err = ErrUnreachable{Address: address, Err: net.ErrClosed}
			close(r.ready)
			return r
		}
		p.mu.routes[address] = r
		p.jobs.Go(func() { p.connect(address, r) })
	}
	r.users++
	if r.idle != nil {
		r.idle.Stop()
	}
	return r
}

// leaveRoute ends one call's use of a route.
func (p *Port) leaveRoute(address string, r *route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.users--; r.users <= 0 && !p.mu.closed {
		r.idle = time.AfterFunc(idleFor, func() { p.forget(address, r) })
	}
}

// forget closes a route that nobody uses.
func (p *Port) forget(address string, r *route) {
	p.mu.Lock()
	unused := r.users <= 0
	if unused && p.mu.routes[address] == r {
		delete(p.mu.routes, address)
	}
	p.mu.Unlock()
	if unused && r.conn != nil {
		_ = r.conn.Close()
	}
}

// connect dials, for all calls that wait.
func (p *Port) connect(address string, r *route) {
	defer close(r.ready)
	r.conn, r.err = p.client.NewClientConn(p.life, "http", address)
}

// dialCall is what the client library dials with.
func (p *Port) dialCall(ctx context.Context, _, address string) (net.Conn, error) {
	c, err := p.dial(ctx, address, protoCall)
	if err != nil {
		return nil, err // without the type, which would make it a connection
	}
	return c, nil
}

// roundTrip asks over the route to an address.
func (p *Port) roundTrip(ctx context.Context, address string, q *http.Request) (*http.Response, func(), error) {
	r := p.take(address)
	leave := func() { p.leaveRoute(address, r) }
	select {
	case <-r.ready:
	case <-ctx.Done():
		leave()
		return nil, nil, context.Cause(ctx)
	}
	if r.err != nil {
		leave()
		return nil, nil, r.err
	}
	answer, err := r.conn.RoundTrip(q)
	if err != nil {
		leave()
		return nil, nil, err
	}
	return answer, leave, nil
}
