package tuning

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

// Limits of what the table keeps; a command beyond them is refused.
const (
	MaxKey   = 64  // bytes
	MaxValue = 256 // bytes
	MaxKeys  = 64
)

// version of the section that Snapshot writes and Restore reads.
const version = 1

// Table is the replicated half. The zero value is ready; one goroutine uses it at a time.
//
// It takes every key and value of legal form, also those that Check does not know. A node of an older version, which does not know a
// new setting yet, would else refuse what newer nodes accept, and the replicas would part. Readers use the settings that they know.
type Table struct {
	values map[string]string // never changed in place: a change makes a new map, so that a snapshot may hold the old one
}

// Kinds of commands.
const (
	opSet   = 1
	opUnset = 2
)

// Set is the command that gives a setting a value.
func Set(key, value string) []byte { return text(text([]byte{opSet}, key), value) }

// Unset is the command that takes a setting away: the nodes' own files hold again.
func Unset(key string) []byte { return text([]byte{opUnset}, key) }

// What the table replies: one byte. It is no text, since replicas of different versions must give the same reply.
const (
	replyDone  = 0
	replyWrong = 1 // the command is none, or beyond the limits
	replyFull  = 2 // MaxKeys settings are there already
)

// Answer reads the reply to a command: nil where it was carried out.
func Answer(reply []byte) error {
	switch {
	case len(reply) == 1 && reply[0] == replyDone:
		return nil
	case len(reply) == 1 && reply[0] == replyFull:
		return fmt.Errorf("the cluster keeps %d settings already", MaxKeys)
	}
	return errors.New("the cluster does not take this setting: its form is not legal")
}

// Apply carries out a command.
func (t *Table) Apply(_ time.Duration, cmd []byte) []byte { return []byte{t.apply(cmd)} }

func (t *Table) apply(cmd []byte) byte {
	if len(cmd) == 0 {
		return replyWrong
	}
	r := bytes.NewReader(cmd[1:])
	key, err := readText(r, MaxKey)
	if err != nil || key == "" {
		return replyWrong
	}
	switch cmd[0] {
	case opSet:
		value, err := readText(r, MaxValue)
		if err != nil || r.Len() > 0 {
			return replyWrong
		}
		return t.set(key, value)
	case opUnset:
		if r.Len() > 0 {
			return replyWrong
		}
		t.values = maps.Clone(t.values)
		delete(t.values, key)
		return replyDone
	}
	return replyWrong
}

func (t *Table) set(key, value string) byte {
	if _, known := t.values[key]; !known && len(t.values) >= MaxKeys {
		return replyFull
	}
	next := maps.Clone(t.values)
	if next == nil {
		next = map[string]string{}
	}
	next[key] = value
	t.values = next
	return replyDone
}

// All are the settings that were set.
func (t *Table) All() map[string]string {
	if t.values == nil {
		return map[string]string{}
	}
	return maps.Clone(t.values)
}

// Get is one setting.
func (t *Table) Get(key string) (value string, set bool) {
	value, set = t.values[key]
	return value, set
}

// Query answers every question with all settings, in the form of the section.
func (t *Table) Query([]byte) []byte { return encode(t.values) }

// Settings reads the answer to a question.
func Settings(reply []byte) (map[string]string, error) {
	r := bytes.NewReader(reply)
	values, err := decode(r)
	if err == nil && r.Len() > 0 {
		err = errors.New("there is more than the settings")
	}
	return values, err
}

// Next says that nothing in here expires.
func (t *Table) Next() (time.Duration, bool) { return 0, false }

// Expire does nothing: nothing in here expires.
func (t *Table) Expire(time.Duration) {}

// Version is the section's.
func (t *Table) Version() uint16 { return version }

// Snapshot returns what writes the settings as they are now.
func (t *Table) Snapshot() func(io.Writer) error {
	values := t.values
	return func(w io.Writer) error {
		_, err := w.Write(encode(values))
		return err
	}
}

// Restore replaces the settings by those of a section, or leaves them and says what is wrong with it.
func (t *Table) Restore(v uint16, r io.Reader) error {
	if v != version {
		return fmt.Errorf("settings of version %d, this program reads version %d", v, version)
	}
	in := &byteReader{r: r}
	values, err := decode(in)
	if err != nil {
		return err
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return errors.New("there is more than the settings")
	}
	t.values = values
	return nil
}

// encode writes the settings in the order of their keys.
func encode(values map[string]string) []byte {
	out := binary.AppendUvarint(nil, uint64(len(values)))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		out = text(text(out, key), values[key])
	}
	return out
}

func decode(r source) (map[string]string, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil || n > MaxKeys {
		return nil, errors.New("the number of settings is damaged")
	}
	values := make(map[string]string, n)
	last := ""
	for range n {
		key, err := readText(r, MaxKey)
		if err != nil || key <= last {
			return nil, fmt.Errorf("the setting after %q is damaged", last)
		}
		if values[key], err = readText(r, MaxValue); err != nil {
			return nil, fmt.Errorf("the value of %s is damaged", key)
		}
		last = key
	}
	return values, nil
}

type source interface {
	io.Reader
	io.ByteReader
}

// text appends a string, its length first.
func text(to []byte, s string) []byte { return append(binary.AppendUvarint(to, uint64(len(s))), s...) }

func readText(r source, most uint64) (string, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return "", err
	}
	if n > most {
		return "", fmt.Errorf("a text of %d bytes", n)
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(r, buf); err != nil {
		return "", err
	}
	if !utf8.Valid(buf) {
		return "", errors.New("a text that is not UTF-8")
	}
	return string(buf), nil
}

// byteReader reads single bytes out of r without reading ahead.
type byteReader struct {
	r   io.Reader
	one [1]byte
}

func (b *byteReader) Read(p []byte) (int, error) { return b.r.Read(p) }

func (b *byteReader) ReadByte() (byte, error) {
	_, err := io.ReadFull(b.r, b.one[:])
	return b.one[0], err
}
