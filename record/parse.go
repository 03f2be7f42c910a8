package record

import (
	"encoding/hex"
	"fmt"
)

// ParseID reads what ID.String wrote: a UUID in its canonical form, in lower case.
func ParseID(s string) (id ID, err error) {
	if len(s) == 36 {
		digits := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
		if _, err := hex.Decode(id[:], []byte(digits)); err == nil && id.String() == s {
			return id, nil
		}
	}
	return ID{}, fmt.Errorf("%q is not a record id", s)
}

// ParseTopicID reads a topic id of 32 hex digits in lower case.
func ParseTopicID(s string) (id [16]byte, err error) {
	if len(s) == 32 {
		if _, err := hex.Decode(id[:], []byte(s)); err == nil && hex.EncodeToString(id[:]) == s {
			return id, nil
		}
	}
	return [16]byte{}, fmt.Errorf("%q is not a topic id of 32 hex digits", s)
}
