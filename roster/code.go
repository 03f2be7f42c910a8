package roster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// reader takes values from b; the first error sticks, and all later values are zero.
type reader struct {
	b   []byte
	err error
}

var errShort = errors.New("it ends too early")

func (r *reader) take(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.b)) {
		r.fail(errShort)
		return nil
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uvarint refuses a number that is longer than it need be: one value has one encoding.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(errShort)
	} else if n > 1 && r.b[n-1] == 0 {
		r.fail(errors.New("a number is longer than it need be"))
	}
	if r.err != nil {
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > maxText {
		r.fail(fmt.Errorf("a text of %d bytes, at most %d", n, maxText))
		return ""
	}
	return string(r.take(n))
}

func (r *reader) ordinal() int {
	o := r.varint()
	if o < -1 || o > 1<<31-1 {
		r.fail(fmt.Errorf("ordinal %d", o))
		return -1
	}
	return int(o)
}

func (r *reader) mark() Mark {
	m := Mark{Intent: Intent(r.byte()), Nonce: r.uvarint()}
	if m.Intent != Terminating && m.Intent != Leaving {
		r.fail(fmt.Errorf("a mark of intent %d", m.Intent))
	}
	return m
}

func (r *reader) facts() (f Facts) {
	f.Cluster = r.text()
	copy(f.Founding[:], r.take(16))
	f.Incarnation = r.uvarint()
	f.Confirmed = r.bool()
	copy(f.DedupKey[:], r.take(32))
	return f
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail(fmt.Errorf("%d where 0 or 1 stands", v))
	}
	return v == 1
}

func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("%d bytes follow its end", len(r.b))
	}
	return r.err
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendMark(b []byte, m Mark) []byte {
	return binary.AppendUvarint(append(b, byte(m.Intent)), m.Nonce)
}

func appendFacts(b []byte, f Facts) []byte {
	b = appendText(b, f.Cluster)
	b = append(b, f.Founding[:]...)
	b = binary.AppendUvarint(b, f.Incarnation)
	b = appendBool(b, f.Confirmed)
	return append(b, f.DedupKey[:]...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// memberOf is what an id says of a member.
func memberOf(id string) Member {
	name := NameOf(id)
	return Member{ID: id, Name: name, Birth: strings.TrimPrefix(id[len(name):], "~"), Ordinal: -1}
}
