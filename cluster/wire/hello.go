package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A connection for Raft begins with a hello of who dialed, and a reply. Both are frames: their length in two bytes, then fields. A reader
// leaves alone what follows the fields it knows, so that later versions may add to them.

const (
	helloVersion = 1
	frameMost    = 1024 // bytes
)

// hello says between which servers the connection is.
type hello struct {
	cluster  string
	from, to string // server ids
	founding Founding
}

// Results of a reply.
const (
	replyWelcome  = 0
	replyFounding = 1 // the founding is another: it follows
	replyServer   = 2 // the server is another: its id follows
	replyNoRaft   = 3 // no Raft runs here at this moment
	replyInvalid  = 4 // what the hello says cannot be: the id that follows is a text
)

type reply struct {
	result   byte
	founding Founding
	server   string // or text
}

func (h hello) frame() []byte {
	b := []byte{helloVersion}
	b = append(b, h.founding[:]...)
	b = appendText(b, h.cluster)
	b = appendText(b, h.from)
	return appendText(b, h.to)
}

func parseHello(b []byte) (h hello, err error) {
	f := fields{rest: b}
	if v := f.byte(); v != helloVersion && !f.short {
		return hello{}, fmt.Errorf("a hello of version %d", v)
	}
	copy(h.founding[:], f.bytes(len(h.founding)))
	h.cluster, h.from, h.to = f.text(), f.text(), f.text()
	return h, f.err("hello")
}

func (r reply) frame() []byte {
	b := []byte{r.result}
	b = append(b, r.founding[:]...)
	return appendText(b, r.server)
}

func parseReply(b []byte) (r reply, err error) {
	f := fields{rest: b}
	r.result = f.byte()
	copy(r.founding[:], f.bytes(len(r.founding)))
	r.server = f.text()
	return r, f.err("reply")
}

// appendText adds a text behind its length in two bytes. What is longer than any name of ours is cut.
func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), 2*MaxName)]
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func writeFrame(w io.Writer, frame []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(frame))), frame...))
	return err
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint16(head[:])
	if n > frameMost {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// fields reads fields off a frame. Reading past its end yields nothing, and is an error at the end.
type fields struct {
	rest  []byte
	short bool
}

func (f *fields) bytes(n int) []byte {
	if n > len(f.rest) {
		f.short, f.rest = true, nil
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) byte() byte {
	if b := f.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (f *fields) text() string {
	head := f.bytes(2)
	if len(head) < 2 {
		return ""
	}
	return string(f.bytes(int(binary.BigEndian.Uint16(head))))
}

var errShort = errors.New("it ends too early")

func (f *fields) err(what string) error {
	if f.short {
		return fmt.Errorf("reading a %s: %w", what, errShort)
	}
	return nil
}
