package dedupset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// docs/formats/dedup.md draws commands, replies and the answer to a question.

// format is the first byte of every command.
const format = 1

// Kinds of commands.
const (
	opDeclare = 1
	opClaim   = 2
)

// Limits of a declaration. What lies beyond is taken as the nearest that is allowed, so that every replica does the same.
const (
	MinWindow  = time.Second
	MaxWindow  = 24 * time.Hour
	MinEntries = 1_000
	MaxEntries = 500_000_000
	MaxStream  = 255   // bytes of a stream's name
	MaxSets    = 1_024 // of a table
)

// rowSize is a row in bytes: content hash (16) and the tail of the id of the record that claims it (8).
const rowSize = 24

const (
	tailAt = 16 // where the tail of a row begins
	// maxCommand is what an entry of the log holds: 256 KiB less its own head of 10 bytes.
	maxCommand = 256<<10 - 10
	heldSize   = 2 + 8
)

// Code is the first byte of every reply.
type Code byte

// Codes of replies.
const (
	OK         Code = 0
	Undeclared Code = 1 // there is no such set, or it is of another key: declare it, and claim again
	Malformed  Code = 2 // the command makes no sense to this version of the program
	Full       Code = 3 // MaxSets sets are there
)

func (c Code) String() string {
	switch c {
	case OK:
		return "ok"
	case Undeclared:
		return "undeclared"
	case Malformed:
		return "malformed"
	case Full:
		return "full"
	}
	return fmt.Sprintf("code %d", byte(c))
}

// Held is a row whose content another record holds.
type Held struct {
	Row int     // of the claim
	By  [8]byte // the tail of the holder's id
}

// Declare is the command that makes a stream's set, or changes its window and cap. check is the first 8 bytes of the SHA-256 of the
// key that contents are hashed with: a set whose check is another is emptied, since its hashes mean nothing under this key. It may
// be repeated without harm. A stream's name has 1 to MaxStream bytes; the table refuses others.
func Declare(stream string, check [8]byte, window time.Duration, entries int64) []byte {
	out := head(opDeclare, stream, check, 16)
	out = binary.BigEndian.AppendUint64(out, uint64(window))
	return binary.BigEndian.AppendUint64(out, uint64(entries))
}

// Claim is the command that claims contents for records. It may be repeated without harm: what a record holds already it is not
// refused. The error says that there are more rows than MaxRows.
func Claim(stream string, check [8]byte, rows [][rowSize]byte) ([]byte, error) {
	if most := MaxRows(stream); len(rows) > most {
		return nil, fmt.Errorf("a claim of %d rows for stream %q, at most %d", len(rows), stream, most)
	}
	out := head(opClaim, stream, check, len(rows)*rowSize)
	for i := range rows {
		out = append(out, rows[i][:]...)
	}
	return out, nil
}

// MaxRows is how many rows a claim of a stream has at most: none where its name is longer than MaxStream.
func MaxRows(stream string) int {
	if len(stream) > MaxStream {
		return 0
	}
	return (maxCommand - headSize(stream)) / rowSize
}

func headSize(stream string) int { return 2 + 2 + len(stream) + 8 }

func head(op byte, stream string, check [8]byte, more int) []byte {
	out := make([]byte, 0, headSize(stream)+more)
	out = append(out, format, op)
	out = binary.BigEndian.AppendUint16(out, uint16(min(len(stream), 1<<16-1)))
	out = append(out, stream...)
	return append(out, check[:]...)
}

// command is any command, as its kind needs it.
type command struct {
	op      byte
	stream  []byte // of the command's own bytes
	check   [8]byte
	window  time.Duration
	entries int64
	rows    []byte // whole rows, of the command's own bytes
}

func parseCommand(cmd []byte) (c command, ok bool) {
	if len(cmd) < 4 || len(cmd) > maxCommand || cmd[0] != format {
		return c, false
	}
	n, rest := int(binary.BigEndian.Uint16(cmd[2:])), cmd[4:]
	if n == 0 || n > MaxStream || len(rest) < n+8 {
		return c, false
	}
	c.op, c.stream, c.check = cmd[1], rest[:n], [8]byte(rest[n:])
	rest = rest[n+8:]
	switch c.op {
	case opDeclare:
		return c.terms(rest)
	case opClaim:
		c.rows = rest
		return c, len(rest)%rowSize == 0
	}
	return c, false
}

// terms reads window and cap, both as near to what was asked as is allowed.
func (c command) terms(b []byte) (command, bool) {
	if len(b) != 16 {
		return c, false
	}
	c.window = min(max(time.Duration(binary.BigEndian.Uint64(b)), MinWindow), MaxWindow)
	c.entries = min(max(int64(binary.BigEndian.Uint64(b[8:])), MinEntries), MaxEntries)
	return c, true
}

// errReply says that a reply is none of this program's.
var errReply = errors.New("not a reply of the dedup table")

// ParseReply reads the reply to a claim of so many rows: which of them another record holds, by row. Where the code is not OK
// nothing is known of any.
func ParseReply(reply []byte, rows int) (held []Held, code Code, err error) {
	if len(reply) == 0 {
		return nil, 0, errReply
	}
	if code = Code(reply[0]); code != OK {
		return nil, code, nil
	}
	for b := reply[1:]; len(b) > 0; b = b[heldSize:] {
		if len(b) < heldSize {
			return nil, 0, errReply
		}
		h := Held{Row: int(binary.BigEndian.Uint16(b)), By: [8]byte(b[2:])}
		if h.Row >= rows || len(held) > 0 && h.Row <= held[len(held)-1].Row {
			return nil, 0, errReply
		}
		held = append(held, h)
	}
	return held, OK, nil
}

// Terms are what a set is declared with.
type Terms struct {
	Window  time.Duration
	Entries int64
}

// ParseDeclared reads the reply to a declaration: the terms that hold now, and those that held before; before is zero where the set
// was not there, or was of another key.
func ParseDeclared(reply []byte) (now, before Terms, code Code, err error) {
	if len(reply) == 0 {
		return now, before, 0, errReply
	}
	if code = Code(reply[0]); code != OK {
		return now, before, code, nil
	}
	if len(reply) != 1+4*8 {
		return now, before, 0, errReply
	}
	u := func(i int) uint64 { return binary.BigEndian.Uint64(reply[1+8*i:]) }
	now = Terms{Window: time.Duration(u(0)), Entries: int64(u(1))}
	before = Terms{Window: time.Duration(u(2)), Entries: int64(u(3))}
	return now, before, OK, nil
}

func declared(now, before Terms) []byte {
	out := make([]byte, 0, 1+4*8)
	out = append(out, byte(OK))
	for _, v := range []uint64{uint64(now.Window), uint64(now.Entries), uint64(before.Window), uint64(before.Entries)} {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return out
}

// appendHeld adds a row that another record holds to the reply to a claim.
func appendHeld(reply []byte, row int, by []byte) []byte {
	return append(binary.BigEndian.AppendUint16(reply, uint16(row)), by...)
}
