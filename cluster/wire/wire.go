// Package wire is how nodes of a cluster talk to each other: one port with mutual TLS 1.3, on which ALPN tells Raft's streams from calls.
//
//	port, err := wire.Open(wire.Options{…})        // listens
//	port.Handle("checkin", h)                      // before Run
//	go port.Run(ctx)                               // serves; returns when all it started has ended
//	answer, err := port.Call(ctx, "n2:7481", "checkin", body)
//	layer := port.Stream()                         // a raft.StreamLayer; its addresses are server ids
//
// Everything that proves who belongs comes from the cluster's one secret: see [Keys]. What is said on the port is drawn in
// docs/formats/wire.md.
//
// # Errors
//
// What a peer, or the way to it, did wrong has a type of its own, found with errors.As: [ErrUnreachable], [ErrForeignCluster],
// [ErrSecret], [ErrFoundings], [ErrWrongServer], and *[RemoteError] for what the peer's handler answered. After ErrUnreachable the call
// may or may not have been carried out.
package wire

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Bounds of what is said on the port.
const (
	MaxBody = 1 << 20 // bytes of a call's question, and of its answer
	MaxName = 128     // bytes of a cluster's and of a node's name
)

// Network is where a port listens and dials: [TCP], or the network in memory of package wiretest. Addresses are host:port.
type Network interface {
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Founding is the random id of a cluster's founding; zero: none is known yet.
type Founding [16]byte

func (f Founding) String() string { return hex.EncodeToString(f[:]) }

// Peer is who makes a call: proved by its certificate (Name) and said by itself (the rest).
type Peer struct {
	Name     string
	ServerID string   // name~birth, or empty: it has none yet
	Founding Founding // zero: it knows of none yet
	Addr     string   // where the connection comes from, not where the peer listens
}

// Handler answers a call. What it returns as a *RemoteError reaches the caller as it is, any other error with the code CodeFailed.
// ctx ends at the caller's deadline, when the caller goes away, and with the port. A body that is kept must not be changed.
type Handler func(ctx context.Context, from Peer, body []byte) ([]byte, error)

// Options of a Port. Functions must be safe for concurrent use and return at once.
type Options struct {
	Network Network // nil: TCP
	Listen  string  // host:port
	Cluster string
	Node    string // the node's name
	// Keys are made from the secrets that are valid: all are trusted. Presented is the first that the peer trusts too.
	Keys      []Keys
	ServerID  func() string                         // name~birth; nil or empty: none yet
	Founding  func() ([16]byte, bool)               // nil or false: none yet
	Addresses func(serverID string) (string, error) // where a server listens, for Stream
	Now       func() time.Time                      // for the validity of certificates only; nil: time.Now
	Refused   func(Refusal)                         // told of each peer that was refused or that refused us, at most once a minute for the same reason; may be nil
	Log       *slog.Logger                          // nil: silent
}

// Refusal is a peer that was not talked to, and why: one of the typed errors of this package.
type Refusal struct {
	Address string // of the peer: where it was dialed, or where it came from
	Inbound bool   // it dialed us
	Reason  error
}

// Codes of a RemoteError that the port itself answers with. Handlers have their own.
const (
	CodeFailed   = "failed"    // the handler's error had no code
	CodeUnknown  = "unknown"   // no such method
	CodeTooLarge = "too_large" // question or answer above MaxBody
	CodeInvalid  = "invalid"   // what the caller says of itself cannot be
)

// RemoteError is an answer of the peer that says no.
type RemoteError struct {
	Code string // one lower-case word, for programs
	Text string // for people
}

func (e *RemoteError) Error() string { return e.Text }

// ErrUnreachable says that a peer did not answer, or not in time. Whether it did what it was asked is unknown.
type ErrUnreachable struct {
	Address string
	Err     error
}

func (e ErrUnreachable) Error() string {
	return fmt.Sprintf("%s does not answer: %v", e.Address, e.Err)
}
func (e ErrUnreachable) Unwrap() error { return e.Err }

// ErrForeignCluster says that a peer belongs to another cluster. Its name is what it says, not what it has proved.
type ErrForeignCluster struct {
	Name, Ours, Address string
}

func (e ErrForeignCluster) Error() string {
	return fmt.Sprintf("%s belongs to cluster %q, and this node to %q", e.Address, e.Name, e.Ours)
}

// ErrSecret says that a peer is of a cluster with our name, and that none of its secrets is one of ours.
type ErrSecret struct {
	Address string
}

func (e ErrSecret) Error() string {
	return fmt.Sprintf("%s says that it is of this cluster, but its secret is another: compare cluster.secret and cluster.previous_secret", e.Address)
}

// ErrFoundings says that a peer has our cluster's name and secret, and comes from another founding.
type ErrFoundings struct {
	Theirs  Founding
	Ours    Founding
	Address string
}

func (e ErrFoundings) Error() string {
	return fmt.Sprintf("%s is of another founding of this cluster: theirs is %s, ours is %s", e.Address, e.Theirs, e.Ours)
}

// ErrWrongServer says that another server listens where one was looked for: it has moved, or its disk is new.
type ErrWrongServer struct {
	Wanted, Found string // server ids
	Address       string
}

func (e ErrWrongServer) Error() string {
	return fmt.Sprintf("%s is %s, not %s", e.Address, orNone(e.Found), e.Wanted)
}

func orNone(id string) string {
	if id == "" {
		return "a node without server id"
	}
	return id
}
