package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// MaxMeta is how many bytes the metadata of a member may have: memberlist's limit, above which it panics.
const MaxMeta = 512

// Meta is what a member says of itself. docs/formats/wire.md draws its bytes.
type Meta struct {
	ServerID    string // name~birth, or empty: none yet
	Name        string
	Ordinal     int      // -1: none
	Address     string   // host:port of its wire
	Founding    [16]byte // zero: none yet
	Incarnation uint64
	Confirmed   bool   // the founding
	Intent      uint8  // as roster.Intent counts them
	Nonce       uint64 // of the process
}

const metaVersion = 1

// Bits of the flags.
const (
	flagConfirmed = 1 << 0
	flagHasID     = 1 << 1
)

var errMeta = errors.New("metadata of a member cannot be read")

// encode returns the bytes of m. It fails where they would be too many, or where the server id is none of the name.
func (m Meta) encode() ([]byte, error) {
	birth, hasID, err := m.birth()
	if err != nil {
		return nil, err
	}
	var flags byte
	if m.Confirmed {
		flags |= flagConfirmed
	}
	if hasID {
		flags |= flagHasID
	}
	b := []byte{metaVersion, flags, m.Intent}
	b = append(b, m.Founding[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Nonce)
	b = binary.AppendUvarint(b, m.Incarnation)
	b = binary.AppendVarint(b, int64(m.Ordinal))
	for _, s := range []string{m.Name, birth, m.Address} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	if len(b) > MaxMeta {
		return nil, fmt.Errorf("metadata of %d bytes, of which memberlist carries %d: the node's name or address is too long", len(b), MaxMeta)
	}
	return b, nil
}

// birth returns what follows the name in the server id.
func (m Meta) birth() (birth string, hasID bool, err error) {
	if m.ServerID == "" {
		return "", false, nil
	}
	birth, ok := strings.CutPrefix(m.ServerID, m.Name+"~")
	if !ok {
		return "", false, fmt.Errorf("server id %q is none of %q", m.ServerID, m.Name)
	}
	return birth, true, nil
}

// decode reads metadata. It leaves alone what follows the fields it knows, so that later versions may add to them.
func decode(b []byte) (Meta, error) {
	if len(b) < 3 || b[0] != metaVersion {
		return Meta{}, errMeta
	}
	m := Meta{Confirmed: b[1]&flagConfirmed != 0, Intent: b[2]}
	f := fields{rest: b[3:]}
	copy(m.Founding[:], f.take(len(m.Founding)))
	if nonce := f.take(8); nonce != nil {
		m.Nonce = binary.BigEndian.Uint64(nonce)
	}
	m.Incarnation = f.uvarint()
	m.Ordinal = int(f.varint())
	m.Name = f.text()
	birth := f.text()
	m.Address = f.text()
	if f.short {
		return Meta{}, errMeta
	}
	if b[1]&flagHasID != 0 {
		m.ServerID = m.Name + "~" + birth
	}
	return m, nil
}

// fields reads fields off metadata. Reading past its end yields nothing, and is noted.
type fields struct {
	rest  []byte
	short bool
}

func (f *fields) take(n int) []byte {
	if n < 0 || n > len(f.rest) {
		f.short, f.rest = true, nil
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 {
		f.short, f.rest = true, nil
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

func (f *fields) varint() int64 {
	v, n := binary.Varint(f.rest)
	if n <= 0 {
		f.short, f.rest = true, nil
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

func (f *fields) text() string { return string(f.take(int(min(f.uvarint(), MaxMeta+1)))) }
