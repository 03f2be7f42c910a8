package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificates are PEM files of one throw-away authority: its own certificate, a server's key with its chain in one file (as Kafka wants
// it), and a client's pair.
type certificates struct {
	CA, Server, ClientCert, ClientKey string
}

type issued struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	der  []byte
}

// makeCertificates writes them into dir; the server's holds for 127.0.0.1 and localhost.
func makeCertificates(dir string) (certificates, error) {
	c := certificates{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "server.pem"), filepath.Join(dir, "client.pem"), filepath.Join(dir, "client-key.pem")}
	ca, err := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "twgd test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	if err != nil {
		return c, err
	}
	server, err := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca)
	if err != nil {
		return c, err
	}
	client, err := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "twgd test client"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca)
	if err != nil {
		return c, err
	}
	return c, c.write(ca, server, client)
}

func issue(template *x509.Certificate, by *issued) (*issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(48*time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return &issued{key, cert, der}, err
}

func (c certificates) write(ca, server, client *issued) error {
	serverKey, err := server.keyPEM()
	if err != nil {
		return err
	}
	clientKey, err := client.keyPEM()
	if err != nil {
		return err
	}
	for path, content := range map[string][]byte{
		c.CA:         ca.certPEM(),
		c.Server:     append(append(serverKey, server.certPEM()...), ca.certPEM()...),
		c.ClientCert: client.certPEM(),
		c.ClientKey:  clientKey,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write a certificate: %w", err)
		}
	}
	return nil
}

func (i *issued) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.der})
}

func (i *issued) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
