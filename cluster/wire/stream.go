package wire

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// CodeNoRaft is the code of a RemoteError: the peer is there, and runs no Raft at this moment.
const CodeNoRaft = "no_raft"

// stream is the port for one run of Raft. Its addresses are server ids, so that a node which moves changes no configuration: each dial
// asks where the server is now. Whoever is reached says which server it is, so that nobody takes the disk that came after another one,
// or another node at an address that was given again, for the server it looks for.
type stream struct {
	*queue
	port *Port
	id   string // our server id

	mu struct {
		sync.Mutex
		closed bool
		conns  map[*conn]bool
	}
}

var _ raft.StreamLayer = (*stream)(nil)

// Stream is the port for Raft, under the server id of this moment. Connections for Raft go to the newest one. Closing it closes its
// connections, those in use too, so that nothing of a Raft that is being shut down waits for a peer.
func (p *Port) Stream() raft.StreamLayer {
	s := &stream{port: p, id: p.o.ServerID()}
	s.queue = newQueue(serverAddr(s.id))
	s.mu.conns = map[*conn]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		_ = s.queue.Close()
		return s
	}
	p.mu.raft = s
	return s
}

// serverAddr is a server id as a network address.
type serverAddr string

func (serverAddr) Network() string  { return "twgd" }
func (a serverAddr) String() string { return string(a) }

// Close ends the layer and all its connections.
func (s *stream) Close() error {
	s.mu.Lock()
	conns := s.mu.conns
	s.mu.closed, s.mu.conns = true, nil
	s.mu.Unlock()
	_ = s.queue.Close()
	for c := range conns {
		_ = c.raw.Close()
		_ = c.Close()
	}
	s.port.mu.Lock()
	defer s.port.mu.Unlock()
	if s.port.mu.raft == s {
		s.port.mu.raft = nil
	}
	return nil
}

// hold keeps a connection in mind until it ends. It is false where the layer has ended.
func (s *stream) hold(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.mu.conns[c] = true
	c.gone = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.conns, c)
	}
	return true
}

// Dial connects to the server with an id.
func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	address, err := s.port.o.Addresses(string(to))
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", to, err)
	}
	if timeout <= 0 || timeout > dialFor {
		timeout = dialFor
	}
	ctx, cancel := context.WithTimeout(s.port.life, timeout)
	defer cancel()
	c, err := s.port.dial(ctx, address, protoRaft)
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", to, err)
	}
	if err := s.introduce(ctx, c, string(to), address); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("dialing %s: %w", to, err)
	}
	return c, nil
}

// introduce says who we are and whom we look for, and hears whether that is right.
func (s *stream) introduce(ctx context.Context, c *conn, to, address string) error {
	if !s.hold(c) {
		return raft.ErrTransportShutdown
	}
	end, _ := ctx.Deadline()
	_ = c.SetDeadline(end)
	ours := hello{cluster: s.port.o.Cluster, from: s.id, to: to, founding: s.port.founding()}
	if err := writeFrame(c, ours.frame()); err != nil {
		return ErrUnreachable{Address: address, Err: err}
	}
	frame, err := readFrame(c)
	if err != nil {
		return ErrUnreachable{Address: address, Err: err}
	}
	theirs, err := parseReply(frame)
	if err != nil {
		return ErrUnreachable{Address: address, Err: err}
	}
	_ = c.SetDeadline(time.Time{})
	err = theirs.reason(ours, address)
	if err != nil {
		s.port.refused(Refusal{Address: address, Reason: err})
	}
	return err
}

// reason returns why a hello was not welcome; nil where it was.
func (r reply) reason(ours hello, address string) error {
	switch r.result {
	case replyWelcome:
		return nil
	case replyFounding:
		return ErrFoundings{Theirs: r.founding, Ours: ours.founding, Address: address}
	case replyServer:
		return ErrWrongServer{Wanted: ours.to, Found: r.server, Address: address}
	case replyNoRaft:
		return &RemoteError{Code: CodeNoRaft, Text: address + " runs no Raft at this moment"}
	default:
		return &RemoteError{Code: CodeInvalid, Text: r.server}
	}
}

// greetRaft hears for whom a connection is, and hands it over.
func (p *Port) greetRaft(c *conn) {
	_ = c.SetDeadline(time.Now().Add(greetFor))
	frame, err := readFrame(c)
	if err != nil {
		_ = c.Close()
		return
	}
	address := c.RemoteAddr().String()
	layer, theirs, answer := p.judgeHello(frame, c.peer)
	if err := answer.asked(theirs, p.founding(), address); err != nil {
		p.refused(Refusal{Address: address, Inbound: true, Reason: err})
	}
	if writeFrame(c, answer.frame()) != nil || answer.result != replyWelcome || !layer.hold(c) {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	if !layer.give(p.life, c) {
		_ = c.Close()
	}
}

// judgeHello decides about a connection for Raft.
func (p *Port) judgeHello(frame []byte, peer string) (*stream, hello, reply) {
	theirs, err := parseHello(frame)
	if err == nil {
		err = checkServerID(theirs.from, peer)
	}
	if err == nil && theirs.cluster != p.o.Cluster {
		err = fmt.Errorf("a hello to cluster %.100q on a connection of cluster %q", theirs.cluster, p.o.Cluster)
	}
	if err != nil {
		return nil, theirs, reply{result: replyInvalid, server: err.Error()}
	}
	p.mu.Lock()
	layer := p.mu.raft
	p.mu.Unlock()
	ours := p.founding()
	switch {
	case differ(ours, theirs.founding):
		return nil, theirs, reply{result: replyFounding, founding: ours}
	case layer == nil:
		return nil, theirs, reply{result: replyNoRaft}
	case layer.id != theirs.to:
		return nil, theirs, reply{result: replyServer, server: layer.id}
	}
	return layer, theirs, reply{result: replyWelcome}
}

// asked returns what was wrong with a hello, as the side that was dialed tells it; nil where there is nothing to tell.
func (r reply) asked(theirs hello, ours Founding, address string) error {
	switch r.result {
	case replyFounding:
		return ErrFoundings{Theirs: theirs.founding, Ours: ours, Address: address}
	case replyServer:
		return ErrWrongServer{Wanted: theirs.to, Found: r.server, Address: address}
	}
	return nil
}
