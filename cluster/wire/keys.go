package wire

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Keys is all that is made from one secret of a cluster, each by HKDF-SHA-256 under a name of its own: the key that encrypts gossip, the
// key of the authority that signs nodes' certificates, and the key's id, by which two nodes find a secret that both have without telling
// it. Every node has the secret, so every node makes the same authority, and its own certificate, by itself; nothing is stored.
//
// Whoever can dial the port sees a certificate, and could try out secrets on it at leisure: a secret must be random (32 bytes or so),
// not a word.
//
// Two secrets may be valid at once. To rotate without refusing anybody, give every node the new one as the second, then swap the two
// everywhere, then drop the old one; each step one node after the other.
type Keys struct {
	cluster   string
	id        string // 16 hex digits
	gossip    []byte
	authority ed25519.PrivateKey
}

// Derive makes the keys of a secret. Another cluster's name gives other keys.
func Derive(cluster, secret string) Keys {
	return Keys{
		cluster:   cluster,
		id:        hex.EncodeToString(expand(cluster, secret, "key id", 8)),
		gossip:    expand(cluster, secret, "gossip", 32),
		authority: ed25519.NewKeyFromSeed(expand(cluster, secret, "authority", ed25519.SeedSize)),
	}
}

func expand(cluster, secret, use string, length int) []byte {
	key, err := hkdf.Key(sha256.New, []byte(secret), []byte("twgd/1"), use+"/"+cluster, length)
	if err != nil {
		panic(fmt.Sprintf("wire: HKDF of %d bytes: %v", length, err)) // only for lengths that nobody asks for
	}
	return key
}

// Gossip returns the key of 32 bytes that encrypts gossip.
func (k Keys) Gossip() []byte { return append([]byte(nil), k.gossip...) }
