package lease

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// docs/formats/lease.md draws commands, replies and questions.

// format is the first byte of every command and question.
const format = 1

// Kinds of commands.
const (
	opEpoch    = 1
	opAcquire  = 2
	opRenew    = 3
	opRelease  = 4
	opWithdraw = 5
)

// Codes of replies.
const (
	codeDone    = 0
	codeGranted = 1 // with the token
	codeWaiting = 2 // with the number of those in front
	codeTaken   = 3 // with the token and its holder's name
	codeOver    = 4 // the attempt has ended
	codeStale   = 5 // the token, or the epoch, is not the table's any more
	codeRenewed = 6 // with a byte a token: 1 it was, 0 it is held no more
	codeWrong   = 7 // the command makes no sense
	codeFull    = 8 // MaxRows leases and waiters are there
	codeNoEpoch = 9 // no epoch has begun, or its tokens are used up
)

// command is any command, as its kind needs it.
type command struct {
	op           byte
	epoch, token uint64
	request      Request
	ttl          time.Duration
	wait, done   bool
	name, holder string
	tokens       []uint64
}

// Epoch is the command that raises the incarnation, and with it every later token. Nothing is leased before the first.
func Epoch(incarnation uint64) []byte {
	return binary.AppendUvarint([]byte{format, opEpoch}, incarnation)
}

// EpochReply reads the reply to it: nil where the incarnation is in force. One that is lower than the table's is refused.
func EpochReply(reply []byte) error {
	switch code(reply) {
	case codeDone:
		return nil
	case codeStale:
		return errors.New("the leases have a later incarnation already")
	}
	return fmt.Errorf("the incarnation is not between 1 and %d", MaxEpoch)
}

func acquireCommand(name, holder string, request Request, ttl time.Duration, wait bool) []byte {
	out := append([]byte{format, opAcquire, flag(wait)}, request[:]...)
	out = binary.AppendUvarint(out, uint64(ttl))
	return text(text(out, name), holder)
}

func renewCommand(tokens []uint64) []byte {
	out := binary.AppendUvarint([]byte{format, opRenew}, uint64(len(tokens)))
	for _, token := range tokens {
		out = binary.BigEndian.AppendUint64(out, token)
	}
	return out
}

func releaseCommand(name string, token uint64, done bool) []byte {
	return text(binary.BigEndian.AppendUint64([]byte{format, opRelease, flag(done)}, token), name)
}

func withdrawCommand(name string, request Request) []byte {
	return text(append([]byte{format, opWithdraw}, request[:]...), name)
}

func replyGranted(token uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{codeGranted}, token)
}

func replyWaiting(ahead int) []byte {
	return binary.AppendUvarint([]byte{codeWaiting}, uint64(ahead))
}

func replyTaken(token uint64, holder string) []byte {
	return text(binary.BigEndian.AppendUint64([]byte{codeTaken}, token), holder)
}

// parseCommand reads a command. It takes only what has its one legal form, within the limits.
func parseCommand(cmd []byte) (c command, ok bool) {
	r := reader{rest: cmd}
	if r.byte() != format {
		return c, false
	}
	c.op = r.byte()
	switch c.op {
	case opEpoch:
		c.epoch = r.uvarint()
		r.require(c.epoch >= 1 && c.epoch <= MaxEpoch)
	case opAcquire:
		c.wait = r.flag()
		r.copy(c.request[:])
		c.ttl = r.ttl()
		c.name, c.holder = r.name(), r.text(MaxHolder)
	case opRenew:
		c.tokens = r.tokens()
	case opRelease:
		c.done = r.flag()
		c.token = r.uint64()
		c.name = r.name()
	case opWithdraw:
		r.copy(c.request[:])
		c.name = r.name()
	default:
		return c, false
	}
	return c, !r.bad && len(r.rest) == 0
}

// Kinds of questions.
const (
	askObserve = 1 // who holds a name
	askTurn    = 2 // whether it pays that an attempt asks again
)

// Answers to askTurn.
const (
	turnWait = 0
	turnAsk  = 1
)

func observeQuestion(name string) []byte { return text([]byte{format, askObserve}, name) }

func turnQuestion(request Request) []byte { return append([]byte{format, askTurn}, request[:]...) }

// Query answers a question. A question that makes no sense is answered with one byte, codeWrong.
func (t *Table) Query(q []byte) []byte {
	r := reader{rest: q}
	if r.byte() != format {
		return []byte{codeWrong}
	}
	switch r.byte() {
	case askObserve:
		if name := r.name(); !r.bad && len(r.rest) == 0 {
			return answerObserve(t.Observe(name))
		}
	case askTurn:
		var request Request
		if r.copy(request[:]); !r.bad && len(r.rest) == 0 {
			return []byte{codeDone, t.turn(request)}
		}
	}
	return []byte{codeWrong}
}

func answerObserve(i Info) []byte {
	out := binary.BigEndian.AppendUint64([]byte{codeDone, flag(i.Held)}, i.Token)
	return text(binary.AppendUvarint(out, uint64(i.Waiting)), i.Holder)
}

func readObserve(reply []byte) (i Info, err error) {
	r := reader{rest: reply}
	r.require(r.byte() == codeDone)
	i.Held = r.flag()
	i.Token = r.uint64()
	i.Waiting = int(r.uvarint())
	i.Holder = r.text(MaxHolder)
	if r.bad || len(r.rest) > 0 {
		return Info{}, errors.New("the answer makes no sense")
	}
	return i, nil
}

// code is the first byte of a reply; codeWrong where there is none.
func code(reply []byte) byte {
	if len(reply) == 0 {
		return codeWrong
	}
	return reply[0]
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// text appends a string, its length first.
func text(to []byte, s string) []byte { return append(binary.AppendUvarint(to, uint64(len(s))), s...) }

// reader takes values off the front of rest. Once something is wrong it is bad, and every value is zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) require(ok bool) { r.bad = r.bad || !ok }

// take is the next n bytes; nil where there are not so many.
func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) copy(to []byte) { copy(to, r.take(uint64(len(to)))) }

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) flag() bool {
	b := r.byte()
	r.require(b <= 1)
	return b == 1
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.take(uint64(n))
	return v
}

func (r *reader) text(most int) string {
	n := r.uvarint()
	r.require(n <= uint64(most))
	b := r.take(n)
	r.require(utf8.Valid(b))
	return string(b)
}

func (r *reader) name() string {
	s := r.text(MaxName)
	r.require(s != "")
	return s
}

func (r *reader) ttl() time.Duration {
	v := r.uvarint()
	r.require(v >= uint64(MinTTL) && v <= uint64(MaxTTL))
	return time.Duration(v)
}

func (r *reader) tokens() []uint64 {
	n := r.uvarint()
	r.require(n <= MaxTokens && n*8 == uint64(len(r.rest)))
	if r.bad {
		return nil
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = r.uint64()
	}
	return out
}
