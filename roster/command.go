package roster

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Command is one change of the table. Encode it with Encode and propose it on the roster's route; every command may be repeated.
type Command struct {
	Op     Op
	ID     string // server id; empty for OpFound, OpConfirm, OpIncarnation
	Mark   Mark   // OpMark, OpGrant, OpRefuse
	Member Member // OpSeen; its ID, Name and Birth follow from ID
	Facts  Facts  // OpFound; OpIncarnation uses its Incarnation
}

// Op is what a Command does.
type Op uint8

const (
	OpFound       Op = 1  // write the founding facts; refused if another founding is written
	OpConfirm     Op = 2  // the founding yields to nobody any more
	OpIncarnation Op = 3  // raise the incarnation; never lowers it
	OpSeen        Op = 4  // write a member's ordinal and address; the first time gives it its place in the order of joining
	OpMark        Op = 5  // write an intent; it replaces the node's old mark, grant and refusal
	OpClear       Op = 6  // drop mark, grant and refusal
	OpGrant       Op = 7  // the process of exactly this mark may stop
	OpRefuse      Op = 8  // the process of exactly this mark may not leave; drops the mark
	OpBury        Op = 9  // removed for good: leaves a tombstone, drops the rest
	OpForget      Op = 10 // drop the rows of a member that is gone; leaves no tombstone
)

// version of commands and of the table's section.
const version = 1

const (
	maxText    = 1 << 10 // of any text
	maxMembers = 4096
	maxTombs   = 4096 // the oldest go first
)

// Encode gives the command as it is proposed. docs/formats/roster.md draws it.
func (c Command) Encode() []byte {
	b := []byte{version, byte(c.Op)}
	switch c.Op {
	case OpFound:
		return appendFacts(b, c.Facts)
	case OpConfirm:
		return b
	case OpIncarnation:
		return binary.AppendUvarint(b, c.Facts.Incarnation)
	}
	b = appendText(b, c.ID)
	switch c.Op {
	case OpSeen:
		b = binary.AppendVarint(b, int64(c.Member.Ordinal))
		b = appendText(b, c.Member.Addr)
	case OpMark, OpGrant, OpRefuse:
		b = appendMark(b, c.Mark)
	}
	return b
}

// DecodeCommand is the inverse of Encode. It refuses what Encode does not write.
func DecodeCommand(b []byte) (Command, error) {
	r := reader{b: b}
	if v := r.byte(); v != version && r.err == nil {
		return Command{}, fmt.Errorf("roster command of version %d, this is version %d", v, version)
	}
	c := Command{Op: Op(r.byte())}
	switch {
	case c.Op == OpFound:
		c.Facts = r.facts()
	case c.Op == OpIncarnation:
		c.Facts.Incarnation = r.uvarint()
	case c.Op >= OpSeen && c.Op <= OpForget:
		c.ID = r.text()
		r.rest(&c)
	case c.Op != OpConfirm && r.err == nil:
		return Command{}, fmt.Errorf("roster command %d is unknown", c.Op)
	}
	if err := r.end(); err != nil {
		return Command{}, fmt.Errorf("roster command %d: %w", c.Op, err)
	}
	return c, nil
}

// rest reads what follows the id.
func (r *reader) rest(c *Command) {
	if c.ID == "" && r.err == nil {
		r.err = errors.New("no server id")
	}
	switch c.Op {
	case OpSeen:
		c.Member = memberOf(c.ID)
		c.Member.Ordinal = r.ordinal()
		c.Member.Addr = r.text()
	case OpMark, OpGrant, OpRefuse:
		c.Mark = r.mark()
	}
}

// ErrRefused is a command that the table did not take; the text says why. Nothing was changed.
type ErrRefused struct{ Text string }

func (e ErrRefused) Error() string { return "roster: " + e.Text }

// ParseReply reads Apply's reply: nil, or ErrRefused.
func ParseReply(b []byte) error {
	switch {
	case len(b) == 1 && b[0] == 0:
		return nil
	case len(b) > 1 && b[0] == 1:
		return ErrRefused{string(b[1:])}
	}
	return fmt.Errorf("roster: a reply of %d bytes that is none", len(b))
}
