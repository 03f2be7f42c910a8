package cuts

import (
	"context"
	"fmt"
	"slices"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
)

// unread is the cell of a cut of which only the span is known: from its name and the following one's.
const unread = -1

// walk is how many links refresh reads one by one before it lists.
const walk = 4

// ledger is what this process knows of one chain. A chain of years has a cut for each file, one a minute, so a ledger keeps only
// the part that is not wholly covered: known begins with the cut in which coverage stops being contiguous.
//
// Invariants: known is contiguous and ends at the writer's head, or is empty; a cell that is not unread is the stored one.
type ledger struct {
	turn    chan struct{} // held by the call that uses the ledger
	log     chain.Log
	genesis int64
	writer  *chain.Writer // nil until the head has been found
	known   []cut
	unasked int // cuts appended since cells was last asked for
	empty   empties
}

func (l *ledger) leave() { <-l.turn }

// forget is after how many cuts a ledger that nobody asks for cells, as in a node without recovery, drops what it knows.
const forget = 1024

// append notes the link that has moved the writer's head.
func (l *ledger) append(c cut) {
	l.unasked++
	if n := len(l.known); n > 0 && l.known[n-1].next != c.first || l.unasked%forget == 0 {
		l.known = nil
	}
	l.known = append(l.known, c)
}

// jump finds the head by listing, at or behind from.
func (l *ledger) jump(ctx context.Context, from int64) error {
	last, found, err := l.log.Last(ctx, from)
	if err != nil {
		return err
	}
	head := from
	if found {
		link, err := l.log.Link(ctx, last)
		if err != nil {
			return err
		}
		if link == nil {
			return fmt.Errorf("%w: %s is listed but cannot be read", avrofile.ErrDamaged, l.log.Key(last))
		}
		head = link.Next
	}
	if l.writer == nil || head != l.writer.Head() {
		l.writer, l.known = chain.NewWriter(head), nil
	}
	return nil
}

// refresh moves the head over links that others have made. A chain has no holes, so the place behind the head tells: while
// nothing happens that is one read of nothing.
func (l *ledger) refresh(ctx context.Context) error {
	for range walk {
		link, err := l.log.Link(ctx, l.writer.Head())
		if err != nil || link == nil {
			return err
		}
		l.writer = chain.NewWriter(link.Next)
		l.append(cut{link.First, link.Next, unread})
	}
	return l.jump(ctx, l.writer.Head())
}

// cut is the one that begins at first, and false where none does.
func (l *ledger) cut(ctx context.Context, first int64) (cut, bool, error) {
	i, found := slices.BinarySearchFunc(l.known, first, func(c cut, o int64) int {
		return int(min(1, max(-1, c.first-o)))
	})
	if found && l.known[i].cell != unread {
		return l.known[i], true, nil
	}
	b, err := l.log.Bucket.ReadRange(ctx, l.log.Key(first), 0, -1)
	if isNotFound(err) {
		return cut{}, false, nil
	}
	if err != nil {
		return cut{}, false, err
	}
	c, _, err := decode(b)
	if err == nil && (c.first != first || found && c.next != l.known[i].next) {
		err = fmt.Errorf("%w: it says [%d, %d)", avrofile.ErrDamaged, c.first, c.next)
	}
	if err != nil {
		return cut{}, false, fmt.Errorf("%s: %w", l.log.Key(first), err)
	}
	if found {
		l.known[i] = c
	}
	return c, true, nil
}

// cells lists the cells that covered leaves out.
func (l *ledger) cells(ctx context.Context, covered checkpoint.SpanSet) ([]checkpoint.Span, error) {
	if err := l.refresh(ctx); err != nil {
		return nil, err
	}
	from := covered.ContiguousFrom(l.genesis)
	l.empty.complete, l.unasked = from, 0
	if err := l.reach(ctx, from); err != nil {
		return nil, err
	}
	var out []checkpoint.Span
	for i := range l.known {
		if covered.Covers(l.known[i].span()) {
			continue
		}
		c, found, err := l.cut(ctx, l.known[i].first)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("%w: %s is gone", avrofile.ErrDamaged, l.log.Key(l.known[i].first))
		}
		out = c.uncovered(out, covered)
	}
	return out, nil
}

// reach makes known begin with the cut that holds from, and forgets those below.
func (l *ledger) reach(ctx context.Context, from int64) error {
	head := l.writer.Head()
	if from >= head {
		l.known = nil
		return nil
	}
	if len(l.known) == 0 || l.known[0].first > from {
		if err := l.list(ctx, from, head); err != nil {
			return err
		}
	}
	below := 0
	for l.known[below].next <= from {
		below++
	}
	l.known = slices.Delete(l.known, 0, below)
	return nil
}

// list learns the spans of all cuts from the one that holds from, by their names alone.
func (l *ledger) list(ctx context.Context, from, head int64) error {
	first, found, err := l.log.Before(ctx, l.genesis, from)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: no cut in %s holds offset %d, but the chain ends at %d", avrofile.ErrDamaged, l.log.Dir, from, head)
	}
	names, err := l.log.Names(ctx, first, head, 0)
	if err != nil {
		return err
	}
	known := make([]cut, len(names))
	for i := range names {
		known[i] = cut{names[i], head, unread}
		if i > 0 {
			known[i-1].next = names[i]
		}
	}
	l.known = known
	return nil
}
