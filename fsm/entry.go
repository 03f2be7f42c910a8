package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// MaxEntry is how long an entry may be, in bytes. Raft sends entries whole, and a long one holds up heartbeats behind it.
const MaxEntry = 256 << 10

// headSize is what an entry has in front of its command: format, route, time.
const headSize = 1 + 1 + 8

// format is the first byte of every entry.
const format = 1

// maxTime bounds the time that an entry may carry, so that times to come can be added without overflow: 146 years.
const maxTime = time.Duration(1) << 62

var (
	// ErrTooLarge says that an entry would be longer than MaxEntry.
	ErrTooLarge = errors.New("the command is too large for the log")
	// ErrRoute says that no table has the route.
	ErrRoute = errors.New("no table of this program has the route")
	// ErrEntry says that an entry of the log is none of this program's.
	ErrEntry = errors.New("not an entry of a format that this program knows")
)

// Entry is a log entry that carries a command to the table of a route at a cluster time. docs/formats/log-entry.md draws it.
func Entry(route byte, at time.Duration, cmd []byte) ([]byte, error) {
	if len(cmd) > MaxEntry-headSize {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(cmd), MaxEntry-headSize)
	}
	return append(head(route, at, len(cmd)), cmd...), nil
}

// Tick is a log entry that moves the time and nothing else.
func Tick(at time.Duration) []byte { return head(routeTick, at, 0) }

func head(route byte, at time.Duration, more int) []byte {
	out := make([]byte, 0, headSize+more)
	out = append(out, format, route)
	return binary.BigEndian.AppendUint64(out, uint64(at))
}

type entry struct {
	route byte
	at    time.Duration
	cmd   []byte
}

func parse(data []byte) (entry, error) {
	if len(data) < headSize || len(data) > MaxEntry || data[0] != format {
		return entry{}, ErrEntry
	}
	at := binary.BigEndian.Uint64(data[2:])
	if at > uint64(maxTime) || (data[1] == routeTick && len(data) > headSize) {
		return entry{}, ErrEntry
	}
	return entry{route: data[1], at: time.Duration(at), cmd: data[headSize:]}, nil
}
