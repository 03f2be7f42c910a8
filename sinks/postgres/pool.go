package postgres

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// pool keeps connections between commits: one for each commit that runs, and those that were used lately. It dials outside its
// lock and starts no goroutine; a timer closes what nobody used for a while.
//
// The driver closes a connection that failed in the background, and tells the server to cancel what runs on it. Against a server
// that hangs that takes up to 15 s, which is why the pool knows every socket and close ends them all.
type pool struct {
	config *pgconn.Config
	opts   Options

	mu struct {
		sync.Mutex
		closed  bool
		idle    []*conn // the one used last is last
		timer   *time.Timer
		sockets map[net.Conn]struct{}
	}
}

// conn is a connection of the pool.
type conn struct {
	*pgconn.PgConn
	used   time.Time // when it was put back
	reused bool      // it was idle before, so the server may have closed it
}

// maxIdle is how many unused connections are kept.
const maxIdle = 4

var errClosed = errors.New("the sink is closed")

func newPool(config *pgconn.Config, opts Options) *pool {
	p := &pool{config: config, opts: opts}
	p.mu.sockets = map[net.Conn]struct{}{}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4}}
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return p.track(c)
	}
	config.ConnectTimeout = opts.ConnectTimeout
	config.RuntimeParams["application_name"] = "twgd/" + opts.Stream + "/" + opts.Sink
	config.RuntimeParams["client_encoding"] = "UTF8"
	return p
}

// get takes an unused connection or makes one.
func (p *pool) get(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	if n := len(p.mu.idle); n > 0 {
		c := p.mu.idle[n-1]
		p.mu.idle = p.mu.idle[:n-1]
		p.mu.Unlock()
		c.reused = true
		return c, nil
	}
	p.mu.Unlock()
	return p.dial(ctx)
}

func (p *pool) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.ConnectTimeout)
	defer cancel()
	c, err := pgconn.ConnectConfig(ctx, p.config)
	if err != nil {
		return nil, err
	}
	return &conn{PgConn: c}, nil
}

// put gives c back. One that is not clean is closed, which also ends its transaction.
func (p *pool) put(c *conn) {
	clean := !c.IsClosed() && !c.IsBusy() && c.TxStatus() == 'I'
	c.used = time.Now()
	p.mu.Lock()
	keep := clean && !p.mu.closed && len(p.mu.idle) < maxIdle
	if keep {
		p.mu.idle = append(p.mu.idle, c)
		if p.mu.timer == nil {
			p.mu.timer = time.AfterFunc(p.opts.IdleTimeout, p.expire)
		}
	}
	p.mu.Unlock()
	if !keep {
		hangUp(c)
	}
}

// flush closes all unused connections: one of them turned out to be dead, so the others will be, too.
func (p *pool) flush() {
	p.mu.Lock()
	idle := p.mu.idle
	p.mu.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		hangUp(c)
	}
}

// expire closes what was not used for IdleTimeout, and looks again as long as something is left.
func (p *pool) expire() {
	p.mu.Lock()
	var old []*conn
	for len(p.mu.idle) > 0 && time.Since(p.mu.idle[0].used) >= p.opts.IdleTimeout {
		old = append(old, p.mu.idle[0])
		p.mu.idle = p.mu.idle[1:]
	}
	p.mu.timer = nil
	if len(p.mu.idle) > 0 && !p.mu.closed {
		p.mu.timer = time.AfterFunc(p.opts.IdleTimeout, p.expire)
	}
	p.mu.Unlock()
	for _, c := range old {
		hangUp(c)
	}
}

// hangUp closes politely where that takes no time.
func hangUp(c *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	c.Close(ctx)
}

func (p *pool) close() {
	p.mu.Lock()
	p.mu.closed = true
	if p.mu.timer != nil {
		p.mu.timer.Stop()
	}
	sockets := p.mu.sockets
	p.mu.sockets = map[net.Conn]struct{}{}
	idle := p.mu.idle
	p.mu.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		hangUp(c)
	}
	for s := range sockets {
		s.Close()
	}
}

// track makes c known until it is closed.
func (p *pool) track(c net.Conn) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		c.Close()
		return nil, errClosed
	}
	s := &socket{Conn: c, pool: p}
	p.mu.sockets[s] = struct{}{}
	return s, nil
}

// socket is a network connection that its pool knows.
type socket struct {
	net.Conn
	pool *pool
}

func (s *socket) Close() error {
	s.pool.mu.Lock()
	delete(s.pool.mu.sockets, s)
	s.pool.mu.Unlock()
	return s.Conn.Close()
}

// address is the first server of a configuration, as people write it.
func address(c *pgconn.Config) string {
	if len(c.Host) > 0 && c.Host[0] == '/' {
		return c.Host
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}
