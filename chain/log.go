package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// Log is a chain whose links are objects of a folder, named by their first offset.
type Log struct {
	Bucket store.Bucket
	Dir    string // without a slash at its end
	Suffix string // of every link's name
	Peek   int64  // how many bytes of an object Parse needs; 0 for all
	Parse  func(first int64, begin []byte) (Link, error)
}

// Key is the object's name of the link that begins at first.
func (l *Log) Key(first int64) string {
	return l.Dir + "/" + record.OffsetName(first) + l.Suffix
}

// Link reads the link that begins at first, nil where there is none.
func (l *Log) Link(ctx context.Context, first int64) (*Link, error) {
	n := l.Peek
	if n == 0 {
		n = -1
	}
	b, err := l.Bucket.ReadRange(ctx, l.Key(first), 0, n)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading link %s: %w", l.Key(first), err)
	}
	link, err := l.Parse(first, b)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", l.Key(first), err)
	}
	if link.First != first || link.Next <= first {
		return nil, fmt.Errorf("link %s says that it covers [%d, %d)", l.Key(first), link.First, link.Next)
	}
	return &link, nil
}

// page is how many names one listing is asked for: what S3 gives for the price of one request.
const page = 1000

// Names lists the first offsets of links in [from, to), at most limit of them (0: all).
func (l *Log) Names(ctx context.Context, from, to int64, limit int) ([]int64, error) {
	after := l.Dir + "/"
	if from > 0 {
		after = l.Dir + "/" + record.OffsetName(from-1) + l.Suffix
	}
	var names []int64
	for {
		want := page
		if limit > 0 {
			want = min(page, limit-len(names)+1) // one more, since the list may begin with another suffix
		}
		entries, err := l.Bucket.List(ctx, l.Dir+"/", after, want)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", l.Dir, err)
		}
		for _, e := range entries {
			first, ok := l.parseName(e.Key)
			if ok && first >= to || strings.HasPrefix(e.Key, l.Dir+"/_") {
				return names, nil
			}
			if ok && first >= from {
				names = append(names, first)
			}
			if limit > 0 && len(names) == limit {
				return names, nil
			}
		}
		if len(entries) < want {
			return names, nil
		}
		after = entries[len(entries)-1].Key
	}
}

func (l *Log) parseName(key string) (int64, bool) {
	name, ok := strings.CutSuffix(strings.TrimPrefix(key, l.Dir+"/"), l.Suffix)
	if !ok {
		return 0, false
	}
	first, err := record.ParseOffset(name)
	return first, err == nil
}

// Last finds the greatest name at or above from, by listing: a short chain in one request, a long one by steps that grow and
// then halve. The group's offset, or any other memory of where the chain was, plays no part in it.
func (l *Log) Last(ctx context.Context, from int64) (first int64, found bool, err error) {
	return l.last(ctx, from, maxOffset)
}

const maxOffset = 1<<63 - 1

// last finds the greatest name in [from, ceiling).
func (l *Log) last(ctx context.Context, from, ceiling int64) (first int64, found bool, err error) {
	names, err := l.Names(ctx, from, ceiling, page)
	if err != nil || len(names) == 0 {
		return 0, false, err
	}
	first = names[len(names)-1]
	if len(names) < page {
		return first, true, nil
	}
	for step := int64(page); first+1 < ceiling; { // nothing lies at or above ceiling
		probe := first + min(step, (ceiling-first)/2+1)
		names, err := l.Names(ctx, probe, ceiling, page)
		switch {
		case err != nil:
			return 0, false, err
		case len(names) == 0:
			ceiling = probe
			step = max(1, step/2)
		case len(names) < page:
			return names[len(names)-1], true, nil
		default:
			first, step = names[len(names)-1], min(step, maxOffset/8)*4
		}
	}
	return first, true, nil
}

// Before finds the link that holds offset or ends before it: the greatest name in [floor, offset]. It searches back from there,
// so that what is near the end of a long chain is near.
func (l *Log) Before(ctx context.Context, floor, offset int64) (first int64, found bool, err error) {
	ceiling := offset + 1
	for step := int64(1 << 16); floor < ceiling; step *= 16 {
		from := floor
		if step < ceiling-floor {
			from = ceiling - step
		}
		if first, found, err = l.last(ctx, from, ceiling); err != nil || found {
			return first, found, err
		}
		if from == floor {
			return 0, false, nil
		}
		if step > maxOffset/16 {
			step = maxOffset / 16
		}
		ceiling = from
	}
	return 0, false, nil
}

// Commit tries once to extend the chain to next. body makes the object for an attempt. It returns the link that the chain has
// got, which may be another's, or an earlier and shorter attempt of ours: ours says so, and the link's Next counts, not the one
// that was asked for. An error leaves the outcome open at worst; the next Commit finds out before it writes.
func (l *Log) Commit(ctx context.Context, w *Writer, next int64, body func(Link) ([]byte, error)) (link Link, ours bool, err error) {
	if w.InDoubt() {
		if link, ours, err = l.settle(ctx, w); err != nil || link.Next > 0 {
			return link, ours, err
		}
	}
	attempt := Link{w.Head(), next, NewNonce()}
	b, err := body(attempt)
	if err != nil {
		return Link{}, false, err
	}
	w.Propose(attempt.Next, attempt.Nonce)
	err = l.Bucket.Create(ctx, l.Key(attempt.First), b)
	if w.Answered(answer(err)) {
		return attempt, true, nil
	}
	if !w.InDoubt() {
		return Link{}, false, err
	}
	link, ours, rerr := l.settle(ctx, w)
	if rerr == nil && link.Next > 0 {
		return link, ours, nil
	}
	return Link{}, false, errors.Join(err, rerr)
}

// settle reads what is stored under the head's name. A zero link means that nothing is.
func (l *Log) settle(ctx context.Context, w *Writer) (Link, bool, error) {
	found, err := l.Link(ctx, w.Head())
	if err != nil {
		return Link{}, false, err
	}
	ours := w.Found(found)
	if found == nil {
		return Link{}, false, nil
	}
	return *found, ours, nil
}

// answer sorts a store's error. A store says with ErrUnknown when it does not know; should it be wrong about a plain refusal, the
// next attempt meets the name, and the nonce tells whose it is.
func answer(err error) Answer {
	switch {
	case err == nil:
		return Stored
	case errors.Is(err, store.ErrExists):
		return Exists
	case errors.Is(err, store.ErrUnknown):
		return Unknown
	}
	return Refused
}

// Once makes sure that a create-only object exists and returns what is stored in it, which may be another's. It settles lost
// replies by reading.
func Once(ctx context.Context, b store.Bucket, key string, body []byte) (stored []byte, ours bool, err error) {
	cerr := b.Create(ctx, key, body)
	if cerr == nil {
		return body, true, nil
	}
	if a := answer(cerr); a == Refused {
		return nil, false, cerr
	}
	stored, err = b.Read(ctx, key)
	if err != nil {
		return nil, false, errors.Join(cerr, err)
	}
	return stored, bytes.Equal(stored, body), nil
}
