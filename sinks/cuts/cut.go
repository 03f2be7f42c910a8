package cuts

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
)

// cut is one link of a chain of cuts. With cell 0 it covers what a lane had open, and one file carries its whole span. With
// another it is a hole, whose files carry the cells [k·cell, (k+1)·cell) of all offsets, cut to the hole. The size of the cells is
// fixed by whoever pins the hole, so that a later change of the configuration moves no file.
type cut struct {
	first, next int64
	cell        int64
}

func (c cut) span() checkpoint.Span { return checkpoint.Span{From: c.first, To: c.next} }

// at is the cell that offset lies in.
func (c cut) at(offset int64) checkpoint.Span {
	if c.cell == 0 {
		return c.span()
	}
	from := offset - offset%c.cell
	to := c.next
	if c.next-from > c.cell {
		to = from + c.cell
	}
	return checkpoint.Span{From: max(from, c.first), To: to}
}

// uncovered appends the cells that covered does not cover. It looks only at what is missing: a hole may cover all of history.
func (c cut) uncovered(dst []checkpoint.Span, covered checkpoint.SpanSet) []checkpoint.Span {
	at := c.first
	for _, m := range covered.Missing(c.span()) {
		for at = max(at, m.From); at < m.To; {
			s := c.at(at)
			dst = append(dst, s)
			at = s.To
		}
	}
	return dst
}

// alike reports whether exactly one file belongs to the cut, and s is its span: then a lane that wants to write s would write
// what everybody else would.
func (c cut) alike(s checkpoint.Span) bool { return c.span() == s && c.at(s.From) == s }

// plan is the next link that a pin of s needs while the chain ends at head: a hole up to s, then s itself. False says that there
// is nothing left to write; whether s is what is pinned, the link at s.From tells. An empty s stands for a hole alone.
func plan(head int64, s checkpoint.Span, cell int64) (cut, bool) {
	switch {
	case head < s.From:
		return cut{head, s.From, cell}, true
	case head == s.From && !s.Empty():
		return cut{head, s.To, 0}, true
	}
	return cut{}, false
}

// object is a cut as it is stored; docs/formats/cuts.md draws it.
type object struct {
	Version int    `json:"version"`
	First   int64  `json:"first"`
	Next    int64  `json:"next"`
	Kind    string `json:"kind"`
	Cell    int64  `json:"cell"`
	Nonce   string `json:"nonce"`
	Created string `json:"created"`
}

const (
	kindCut  = "cut"
	kindHole = "hole"
)

func encode(c cut, n chain.Nonce, now time.Time) ([]byte, error) {
	kind := kindCut
	if c.cell > 0 {
		kind = kindHole
	}
	return json.Marshal(object{1, c.first, c.next, kind, c.cell, hex.EncodeToString(n[:]), now.UTC().Format(time.RFC3339Nano)})
}

// decode refuses whatever encode would not have written, so that a damaged cut stops its sink and never moves a file.
func decode(b []byte) (c cut, n chain.Nonce, err error) {
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return c, n, fmt.Errorf("%w: it is not a cut: %v", avrofile.ErrDamaged, err)
	}
	if o.Version != 1 {
		return c, n, fmt.Errorf("the cut is of version %d, this program knows version 1", o.Version)
	}
	if k, err := hex.Decode(n[:], []byte(o.Nonce[:min(len(o.Nonce), 2*len(n))])); err != nil || k != len(n) {
		return c, n, fmt.Errorf("%w: the cut has no nonce", avrofile.ErrDamaged)
	}
	hole := o.Kind == kindHole && o.Cell > 0
	if o.First < 0 || o.Next <= o.First || !hole && (o.Kind != kindCut || o.Cell != 0) {
		return c, n, fmt.Errorf("%w: the cut says %s of [%d, %d) with cells of %d", avrofile.ErrDamaged, o.Kind, o.First, o.Next, o.Cell)
	}
	return cut{o.First, o.Next, o.Cell}, n, nil
}

func parseLink(_ int64, b []byte) (chain.Link, error) {
	c, n, err := decode(b)
	return chain.Link{First: c.first, Next: c.next, Nonce: n}, err
}
