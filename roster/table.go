package roster

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Table is the replicated half: who founded the cluster, who has checked in, who has announced that it goes, who may. Each change is
// a Command out of the log, and the same commands give the same table everywhere. It knows no time: nothing in it expires.
//
// The zero value is ready. It is not safe for concurrent use; fsm guards it.
type Table struct {
	facts   Facts
	joined  uint64            // last place given in the order of joining
	members map[string]Member // at most maxMembers
	marks   map[string]Mark
	grants  map[string]Mark // invariant: a grant equals the mark of its id
	refused map[string]Mark // invariant: no mark of the same id beside it
	tombs   []string        // the oldest first, each id once, at most maxTombs
}

// Apply takes one command. It is total: what is wrong with a command is said in the reply, and changes nothing.
func (t *Table) Apply(_ time.Duration, cmd []byte) []byte {
	c, err := DecodeCommand(cmd)
	if err == nil {
		err = t.apply(c)
	}
	if err != nil {
		return append([]byte{1}, err.Error()...)
	}
	return []byte{0}
}

func (t *Table) apply(c Command) error {
	t.make()
	switch c.Op {
	case OpFound:
		return t.found(c.Facts)
	case OpConfirm:
		return t.confirm()
	case OpIncarnation:
		return t.incarnate(c.Facts.Incarnation)
	case OpSeen:
		return t.seen(c.Member)
	case OpMark:
		return t.mark(c.ID, c.Mark)
	case OpGrant:
		return t.grant(c.ID, c.Mark)
	case OpRefuse:
		return t.refuse(c.ID, c.Mark)
	case OpBury:
		t.bury(c.ID)
	case OpForget:
		t.forget(c.ID)
	case OpClear:
		t.clear(c.ID)
	}
	return nil
}

func (t *Table) make() {
	if t.members == nil {
		t.members = map[string]Member{}
		t.marks, t.grants, t.refused = map[string]Mark{}, map[string]Mark{}, map[string]Mark{}
	}
}

func (t *Table) founded() bool { return t.facts.Founding != [16]byte{} }

func (t *Table) found(f Facts) error {
	switch {
	case f.Founding == [16]byte{} || f.Incarnation == 0:
		return fmt.Errorf("a founding needs an id and an incarnation")
	case !t.founded():
		t.facts = f
	case t.facts.Founding != f.Founding:
		return fmt.Errorf("founded already as %x", t.facts.Founding)
	}
	return nil
}

func (t *Table) confirm() error {
	if !t.founded() {
		return fmt.Errorf("not founded yet")
	}
	t.facts.Confirmed = true
	return nil
}

func (t *Table) incarnate(n uint64) error {
	if !t.founded() {
		return fmt.Errorf("not founded yet")
	}
	t.facts.Incarnation = max(t.facts.Incarnation, n)
	return nil
}

func (t *Table) seen(m Member) error {
	old, known := t.members[m.ID]
	if known {
		old.Ordinal, old.Addr = m.Ordinal, m.Addr
		t.members[m.ID] = old
		return nil
	}
	if slices.Contains(t.tombs, m.ID) {
		return fmt.Errorf("%s was removed for good", m.ID)
	}
	if len(t.members) >= maxMembers {
		return fmt.Errorf("%d members, no room for %s", len(t.members), m.ID)
	}
	t.joined++
	m.Joined = t.joined
	t.members[m.ID] = m
	return nil
}

func (t *Table) mark(id string, m Mark) error {
	if _, known := t.members[id]; !known {
		return fmt.Errorf("%s is no member", id)
	}
	if t.marks[id] == m {
		return nil
	}
	t.clear(id)
	t.marks[id] = m
	return nil
}

func (t *Table) grant(id string, m Mark) error {
	if t.marks[id] != m {
		return fmt.Errorf("%s has no such mark", id)
	}
	t.grants[id] = m
	return nil
}

func (t *Table) refuse(id string, m Mark) error {
	switch {
	case t.refused[id] == m:
		return nil
	case t.marks[id] != m || m.Intent != Leaving:
		return fmt.Errorf("%s has no such mark of leaving", id)
	}
	t.clear(id)
	t.refused[id] = m
	return nil
}

func (t *Table) clear(id string) {
	delete(t.marks, id)
	delete(t.grants, id)
	delete(t.refused, id)
}

func (t *Table) forget(id string) {
	t.clear(id)
	delete(t.members, id)
}

func (t *Table) bury(id string) {
	t.forget(id)
	if !slices.Contains(t.tombs, id) {
		t.tombs = append(t.tombs, id)
	}
	if over := len(t.tombs) - maxTombs; over > 0 {
		t.tombs = slices.Delete(t.tombs, 0, over)
	}
}

// Facts are the founding's; zero before it.
func (t *Table) Facts() Facts { return t.facts }

// Rows is a copy of all that the table holds.
func (t *Table) Rows() Rows {
	r := Rows{Facts: t.facts, Tombs: make(map[string]bool, len(t.tombs))}
	r.Members = orEmpty(maps.Clone(t.members))
	r.Marks, r.Grants, r.Refused = orEmpty(maps.Clone(t.marks)), orEmpty(maps.Clone(t.grants)), orEmpty(maps.Clone(t.refused))
	for _, id := range t.tombs {
		r.Tombs[id] = true
	}
	return r
}

func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// Query answers any question with all rows, in the form of a snapshot's section.
func (t *Table) Query([]byte) []byte { return t.encode() }

// Next says that nothing here expires.
func (t *Table) Next() (time.Duration, bool) { return 0, false }

// Expire does nothing: the table knows no time.
func (t *Table) Expire(time.Duration) {}

// Version of the section.
func (t *Table) Version() uint16 { return version }

// Snapshot holds the table as it is now, and writes it later. The table is small: it is encoded at once.
func (t *Table) Snapshot() func(io.Writer) error {
	b := t.encode()
	return func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(b))
		return err
	}
}
