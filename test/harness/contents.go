package harness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Contents is the truth about what a producer sent: which records have one content. Records without a value, or with an empty one, are
// each a content of their own.
type Contents struct {
	Twins int64 // records whose content another one had before

	of  map[string]string   // content by record id
	ids map[string][]string // record ids by content
}

// Contents groups what was acknowledged by the whole value, or by what by says of it.
func (s *Suite) Contents(topic Topic, acked []Record, by func(Record) string) *Contents {
	c := &Contents{of: map[string]string{}, ids: map[string][]string{}}
	for i, id := range s.IDs(topic, acked) {
		content := "value " + string(acked[i].Value)
		switch {
		case len(acked[i].Value) == 0:
			content = "record " + id
		case by != nil:
			content = by(acked[i])
		}
		if len(c.ids[content]) > 0 {
			c.Twins++
		}
		c.of[id], c.ids[content] = content, append(c.ids[content], id)
	}
	return c
}

// Records is how many records there are, Distinct how many contents they have.
func (c *Contents) Records() int64  { return int64(len(c.of)) }
func (c *Contents) Distinct() int64 { return int64(len(c.ids)) }

// Repeated reports whether another record has the content of this one.
func (c *Contents) Repeated(id string) bool { return len(c.ids[c.of[id]]) > 1 }

// Present fails where a store lacks a content, has a record twice or one that was not produced. It returns how many records the store
// has beyond one a content: duplicates that survived.
func (c *Contents) Present(t testing.TB, where string, got []Held) (extra int64) {
	t.Helper()
	seen, records := map[string]int64{}, map[string]bool{}
	var faults []string
	for _, h := range got {
		content, known := c.of[h.ID]
		switch {
		case !known:
			faults = append(faults, h.ID+" was not produced")
		case records[h.ID]:
			faults = append(faults, h.ID+" is there twice")
		default:
			seen[content]++
		}
		records[h.ID] = true
	}
	for content, ids := range c.ids {
		if seen[content] == 0 {
			faults = append(faults, fmt.Sprintf("none of %q is there, whose content is %.60q", ids, content))
		}
		extra += max(0, seen[content]-1)
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		t.Errorf("%s has %d records of %d contents, with %d faults, such as: %s", where, len(got), c.Distinct(), len(faults),
			strings.Join(faults[:min(5, len(faults))], "; "))
	}
	return extra
}

// LeftOut compares what a stream noted as dropped with what a sink has: each record is either there or named, and who stands for it has
// the same content and is there. A record that is named and there all the same is allowed where whole says so: its batch passed whole
// after a note of unknown outcome.
func (c *Contents) LeftOut(t testing.TB, where string, got []Held, named []Dropped, whole bool) {
	t.Helper()
	there, left := map[string]bool{}, map[string]bool{}
	tails := map[string]string{}
	for id := range c.of {
		tails[strings.ReplaceAll(id, "-", "")[16:]] = id
	}
	for _, h := range got {
		there[h.ID] = true
	}
	var faults []string
	for _, d := range named {
		stands := tails[d.Stands]
		switch {
		case c.of[d.ID] == "":
			faults = append(faults, d.ID+" is named and was not produced")
		case stands == "" || stands == d.ID || c.of[stands] != c.of[d.ID]:
			faults = append(faults, fmt.Sprintf("%s is named, and %s (%q) does not have its content", d.ID, d.Stands, stands))
		case there[d.ID] && !whole:
			faults = append(faults, d.ID+" is named and there")
		case !there[d.ID] && !there[stands]:
			faults = append(faults, fmt.Sprintf("%s is left out for %s, which is not there", d.ID, stands))
		}
		left[d.ID] = true
	}
	for id := range c.of {
		if !there[id] && !left[id] {
			faults = append(faults, id+" is neither there nor named")
		}
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		t.Errorf("%s, beside the %d records that are named as dropped: %d faults, such as: %s", where, len(named), len(faults),
			strings.Join(faults[:min(5, len(faults))], "; "))
	}
}
