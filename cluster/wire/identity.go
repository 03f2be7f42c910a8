package wire

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"
)

// How long a node's certificate is valid, before and after the moment it was made. The hosts of a cluster need not agree about the time
// any better; a certificate that is older than renewAfter is made anew by the next handshake.
const (
	validBefore = 7 * 24 * time.Hour
	validAfter  = 30 * 24 * time.Hour
	renewAfter  = 10 * 24 * time.Hour
)

// organization marks certificates as twgd's.
const organization = "twgd"

// identity is what a node shows and what it believes. It holds an authority for each valid secret, and under each a certificate of its
// own. Nothing of it is stored: a node that starts makes new ones.
type identity struct {
	cluster, node string
	now           func() time.Time
	authorities   []authority

	mu     sync.Mutex
	issued map[string]*issued // by the id of the key
}

// authority signs certificates of nodes. All nodes with the secret make the same one, byte for byte.
type authority struct {
	key  Keys
	cert *x509.Certificate
}

type issued struct {
	at   time.Time // on the wall
	cert *tls.Certificate
}

func newIdentity(cluster, node string, keys []Keys, now func() time.Time) (*identity, error) {
	id := &identity{cluster: cluster, node: node, now: now, issued: map[string]*issued{}}
	for _, k := range keys {
		if k.cluster != cluster {
			return nil, fmt.Errorf("keys of cluster %q in a port of cluster %q", k.cluster, cluster)
		}
		a, err := newAuthority(k)
		if err != nil {
			return nil, err
		}
		id.authorities = append(id.authorities, a)
	}
	return id, nil
}

func newAuthority(k Keys) (authority, error) {
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: k.cluster, Organization: []string{organization}, SerialNumber: k.id},
		NotBefore:             time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.authority.Public(), k.authority)
	if err != nil {
		return authority{}, fmt.Errorf("making the cluster's authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	return authority{key: k, cert: cert}, nil
}

// common returns the first authority whose key is among those a peer has; where there is none, the first.
func (id *identity) common(theirs func(authority) bool) (a authority, found bool) {
	if i := slices.IndexFunc(id.authorities, theirs); i >= 0 {
		return id.authorities[i], true
	}
	return id.authorities[0], false
}

// certificate returns this node's certificate of an authority, made anew where it is old, or where the clock went back behind it.
func (id *identity) certificate(a authority) (*tls.Certificate, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	now := id.now().Round(0)
	if have := id.issued[a.key.id]; have != nil {
		if age := now.Sub(have.at); age < renewAfter && age > -time.Hour {
			return have.cert, nil
		}
	}
	cert, err := issue(a, id.node, now)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of %s: %w", id.node, err)
	}
	id.issued[a.key.id] = &issued{at: now, cert: cert}
	return cert, nil
}

func issue(a authority, node string, now time.Time) (*tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: node, Organization: []string{organization}},
		NotBefore:             now.Add(-validBefore),
		NotAfter:              now.Add(validAfter),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key.authority)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, nil
}

// errNoNode says that a peer is none of ours, of whatever cluster.
var errNoNode = errors.New("its certificate is not that of a twgd node")

// verify returns the name of the node that a certificate belongs to. The name of its cluster is read before anything is proved, so that
// a foreigner can be told from somebody with a wrong secret.
func (id *identity) verify(leaf *x509.Certificate, address string) (node string, err error) {
	if !slices.Equal(leaf.Issuer.Organization, []string{organization}) {
		return "", errNoNode
	}
	if leaf.Issuer.CommonName != id.cluster {
		return "", ErrForeignCluster{Name: leaf.Issuer.CommonName, Ours: id.cluster, Address: address}
	}
	signed := func(a authority) bool { return leaf.CheckSignatureFrom(a.cert) == nil }
	if !slices.ContainsFunc(id.authorities, signed) {
		return "", ErrSecret{Address: address}
	}
	if now := id.now(); now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return "", fmt.Errorf("the certificate of %s is valid from %s to %s, and here it is %s: compare the clocks",
			leaf.Subject.CommonName, leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if leaf.IsCA || leaf.Subject.CommonName == "" {
		return "", errNoNode
	}
	return leaf.Subject.CommonName, nil
}
