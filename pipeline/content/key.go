package content

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// subkey is what the records of one stream in one raw are hashed with: streams never see each other's content, nor does a raw that was
// begun anew see what only the one before it has, and the founding's key is in no hash. What is hashed is part of it: the whole value
// never looks like declared fields, nor some fields like others. Drawn in docs/formats/content-hash.md.
func subkey(key *[32]byte, stream string, raw *[32]byte, paths []string) (sub [32]byte) {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte("twgd content hash v1\x00" + stream))
	h.Sum(sub[:0])
	if raw != nil {
		h = hmac.New(sha256.New, sub[:])
		h.Write(raw[:])
		h.Sum(sub[:0])
	}
	if len(paths) == 0 {
		return sub
	}
	h = hmac.New(sha256.New, sub[:])
	for _, p := range paths {
		h.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...))
	}
	h.Sum(sub[:0])
	return sub
}
