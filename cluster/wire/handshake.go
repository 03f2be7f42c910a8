package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// What a connection is for, by ALPN.
const (
	protoCall = "twgd-call/1"
	protoRaft = "twgd-raft/1"
)

// Bounds of a handshake.
const (
	dialFor  = 3 * time.Second // from dialing to the end of the handshake
	greetFor = 5 * time.Second // the same on the side that listens, where a connection begins with somebody else's silence
)

// greeting is what a node tells of itself, unproved, when it dials: its cluster and which secrets it has, by the ids of their keys. It
// travels as the name of the server that TLS asks for (SNI):
//
//	<key id>[-<key id>].<cluster>.twgd
//
// The other side answers with the certificate of a secret that both have, so that nodes with one secret in common talk to each other
// whichever of their secrets is the first.
type greeting struct {
	cluster string
	keys    []string
}

const greetingEnd = ".twgd"

func (id *identity) greeting() greeting {
	g := greeting{cluster: id.cluster}
	for _, a := range id.authorities {
		g.keys = append(g.keys, a.key.id)
	}
	return g
}

func (g greeting) String() string { return strings.Join(g.keys, "-") + "." + g.cluster + greetingEnd }

// parseGreeting reads a greeting. It is false for what no node says.
func parseGreeting(s string) (greeting, bool) {
	rest, ok := strings.CutSuffix(s, greetingEnd)
	keys, cluster, found := strings.Cut(rest, ".")
	g := greeting{cluster: cluster, keys: strings.Split(keys, "-")}
	return g, ok && found && cluster != "" && len(cluster) <= MaxName && len(g.keys) <= 8 && !slices.ContainsFunc(g.keys, notKeyID)
}

func notKeyID(s string) bool { return len(s) != 16 || strings.Trim(s, "0123456789abcdef") != "" }

// shake makes a connection that we dialed into one with a proved peer.
func (id *identity) shake(ctx context.Context, raw net.Conn, address, proto string) (*tls.Conn, string, error) {
	var peer string
	conf := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{proto},
		ServerName:         id.greeting().String(),
		InsecureSkipVerify: true, // VerifyConnection does it: by the cluster's authorities alone, and by names that are no host names
		Time:               id.now,
		GetClientCertificate: func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			a, _ := id.common(func(a authority) bool {
				return slices.ContainsFunc(asked.AcceptableCAs, func(name []byte) bool { return bytes.Equal(name, a.cert.RawSubject) })
			})
			return id.certificate(a)
		},
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			peer, err = id.proved(s, address)
			return err
		},
	}
	c := tls.Client(raw, conf)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, "", err
	}
	return c, peer, nil
}

// welcome is shake on the side that was dialed. Its error is a Refusal's reason where the greeting was a node's.
func (id *identity) welcome(ctx context.Context, raw net.Conn, address string) (*tls.Conn, string, error) {
	var peer string
	var g greeting
	var common bool
	conf := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{protoCall, protoRaft},
		Time:                   id.now,
		ClientAuth:             tls.RequireAnyClientCert, // VerifyConnection does the rest
		ClientCAs:              id.pool(),
		SessionTicketsDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			var ok bool
			if g, ok = parseGreeting(hello.ServerName); !ok {
				return nil, errNoNode
			}
			var a authority
			a, common = id.common(func(a authority) bool { return slices.Contains(g.keys, a.key.id) })
			return id.certificate(a) // to a foreigner too: it tells our name
		},
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			if g.cluster != id.cluster {
				return ErrForeignCluster{Name: g.cluster, Ours: id.cluster, Address: address}
			}
			peer, err = id.proved(s, address)
			return err
		},
	}
	c := tls.Server(raw, conf)
	err := c.HandshakeContext(ctx)
	switch {
	case err == nil:
		return c, peer, nil
	case g.cluster != "" && g.cluster != id.cluster:
		err = ErrForeignCluster{Name: g.cluster, Ours: id.cluster, Address: address}
	case g.cluster != "" && !common:
		err = ErrSecret{Address: address}
	}
	return nil, "", err
}

// proved returns who the other end of a finished handshake is.
func (id *identity) proved(s tls.ConnectionState, address string) (string, error) {
	if len(s.PeerCertificates) == 0 {
		return "", errNoNode
	}
	if s.NegotiatedProtocol == "" {
		return "", fmt.Errorf("%s does not say what the connection is for", address)
	}
	return id.verify(s.PeerCertificates[0], address)
}

// pool holds the authorities, for their names only: they tell the other side which certificate to show.
func (id *identity) pool() *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range id.authorities {
		p.AddCert(a.cert)
	}
	return p
}

// typed reports whether an error tells by its type what is wrong with a peer.
func typed(err error) bool {
	return errors.As(err, new(ErrForeignCluster)) || errors.As(err, new(ErrSecret)) || errors.As(err, new(ErrFoundings)) || errors.As(err, new(ErrWrongServer))
}
