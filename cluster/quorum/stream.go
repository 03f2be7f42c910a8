package quorum

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	ioTimeout = 3 * time.Second // for a request and its answer; raft gives snapshots more, by their size
	maxPool   = 4               // idle connections kept to each server
)

// overStream is raft's own transport over connections that end with it.
func overStream(s raft.StreamLayer, log *logger) wire {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: &stream{StreamLayer: s, conns: map[net.Conn]struct{}{}}, MaxPool: maxPool, Timeout: ioTimeout, Logger: log.Named("raft.net"),
		MsgpackUseNewTimeFormat: true,
	})
}

// stream closes its connections when it is closed. Raft's transport does not: whoever waits for the next request on one would wait on.
type stream struct {
	raft.StreamLayer
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

func (s *stream) Accept() (net.Conn, error) {
	c, err := s.StreamLayer.Accept()
	return s.keep(c, err)
}

func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	c, err := s.StreamLayer.Dial(to, timeout)
	return s.keep(c, err)
}

func (s *stream) keep(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	s.conns[c] = struct{}{}
	return &conn{Conn: c, stream: s}, nil
}

func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	err := s.StreamLayer.Close()
	for c := range s.conns {
		c.Close()
	}
	clear(s.conns)
	return err
}

type conn struct {
	net.Conn
	stream *stream
}

func (c *conn) Close() error {
	c.stream.mu.Lock()
	delete(c.stream.conns, c.Conn)
	c.stream.mu.Unlock()
	return c.Conn.Close()
}
