package roster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// maxSection bounds what Restore reads; a full table of the longest texts is smaller.
const maxSection = 32 << 20

// encode gives the section: facts, members, marks, grants, refusals, tombs. Maps are written in the order of their ids, so that one
// table has one encoding.
func (t *Table) encode() []byte {
	b := appendFacts(nil, t.facts)
	b = binary.AppendUvarint(b, t.joined)
	b = binary.AppendUvarint(b, uint64(len(t.members)))
	for _, id := range slices.Sorted(maps.Keys(t.members)) {
		m := t.members[id]
		b = appendText(b, id)
		b = binary.AppendVarint(b, int64(m.Ordinal))
		b = binary.AppendUvarint(b, m.Joined)
		b = appendText(b, m.Addr)
	}
	for _, marks := range []map[string]Mark{t.marks, t.grants, t.refused} {
		b = binary.AppendUvarint(b, uint64(len(marks)))
		for _, id := range slices.Sorted(maps.Keys(marks)) {
			b = appendMark(appendText(b, id), marks[id])
		}
	}
	b = binary.AppendUvarint(b, uint64(len(t.tombs)))
	for _, id := range t.tombs {
		b = appendText(b, id)
	}
	return b
}

// Restore replaces the table by a section. It changes nothing where the section is not one that Snapshot writes.
func (t *Table) Restore(v uint16, r io.Reader) error {
	if v != version {
		return fmt.Errorf("roster section of version %d, this is version %d", v, version)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxSection+1))
	if err != nil {
		return fmt.Errorf("read the roster section: %w", err)
	}
	if len(b) > maxSection {
		return fmt.Errorf("roster section of more than %d bytes", maxSection)
	}
	n, err := decodeTable(b)
	if err != nil {
		return fmt.Errorf("roster section: %w", err)
	}
	*t = *n
	return nil
}

// DecodeRows reads what Query answers.
func DecodeRows(b []byte) (Rows, error) {
	t, err := decodeTable(b)
	if err != nil {
		return Rows{}, fmt.Errorf("roster rows: %w", err)
	}
	return t.Rows(), nil
}

func decodeTable(b []byte) (*Table, error) {
	r, t := reader{b: b}, &Table{}
	t.make()
	t.facts = r.facts()
	t.joined = r.uvarint()
	ordered(&r, maxMembers, func(id string) { t.members[id] = r.member(id, t.joined) })
	for _, marks := range []map[string]Mark{t.marks, t.grants, t.refused} {
		ordered(&r, maxMembers, func(id string) { marks[id] = r.mark() })
	}
	for n := r.count(maxTombs); n > 0 && r.err == nil; n-- {
		t.tombs = append(t.tombs, r.text())
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return t, t.check()
}

// ordered reads rows that stand in the order of their ids.
func ordered(r *reader, most uint64, row func(id string)) {
	last := ""
	for n := r.count(most); n > 0 && r.err == nil; n-- {
		id := r.text()
		if id <= last {
			r.fail(fmt.Errorf("%q stands behind %q", id, last))
			return
		}
		last = id
		row(id)
	}
}

func (r *reader) count(most uint64) uint64 {
	n := r.uvarint()
	if n > most {
		r.fail(fmt.Errorf("%d rows, at most %d", n, most))
	}
	return n
}

func (r *reader) member(id string, last uint64) Member {
	m := memberOf(id)
	m.Ordinal = r.ordinal()
	m.Joined = r.uvarint()
	m.Addr = r.text()
	if m.Joined == 0 || m.Joined > last {
		r.fail(fmt.Errorf("%s joined as number %d of %d", id, m.Joined, last))
	}
	return m
}

// check holds what is written beside the table's fields.
func (t *Table) check() error {
	for id, g := range t.grants {
		if t.marks[id] != g {
			return fmt.Errorf("%s is granted what it did not announce", id)
		}
	}
	for id := range t.refused {
		if t.marks[id] != (Mark{}) {
			return fmt.Errorf("%s is refused and marked", id)
		}
	}
	seen := map[string]bool{}
	for _, id := range t.tombs {
		if _, member := t.members[id]; id == "" || seen[id] || member {
			return errors.New("the tombs hold an id that may not stand there")
		}
		seen[id] = true
	}
	return nil
}
