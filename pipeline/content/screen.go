package content

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/minio/highwayhash"

	"github.com/stream-arrow/twgd/record"
)

// What a record's content may be.
const (
	OnValue  = "value"
	OnFields = "fields"
)

// Options of a Screen.
type Options struct {
	Stream string
	On     string   // OnValue or OnFields
	Fields []string // with OnFields: dotted paths into the value, which is JSON; their order does not matter
	Claims Claims

	// Unfit says in a word why a record may not stand for others, or nothing: because a sink of the stream refuses it for something that is
	// not its content. Were its content dropped elsewhere for its sake, that sink would never see it. nil: each may.
	Unfit func(r *record.Record) (reason string)

	// Raw tells the raw that has the records from every other that a stream of this name ever had. It is asked until it has answered
	// once; nil: there is no other. A twin is only dropped because raw has the record that stands for it.
	Raw func(ctx context.Context) ([32]byte, error)
}

// Screen asks whose content records have. It is safe for concurrent use.
//
// Everything that goes wrong goes toward "no twin": a record without a hash is nobody's twin, and an answer that names a record as its own
// holder, or a row that was not asked about, is not believed.
type Screen struct {
	opt    Options
	paths  []string // sorted; none where the whole value counts
	idle   sync.Pool
	raw    atomic.Pointer[[32]byte] // what Options.Raw has answered
	hashed atomic.Pointer[derived]
}

// derived is a key of the founding with what comes of it for this stream.
type derived struct{ key, sub [32]byte }

// New checks the options. It asks nothing.
func New(opt Options) (*Screen, error) {
	s := &Screen{opt: opt}
	switch {
	case opt.On == OnValue && len(opt.Fields) > 0:
		return nil, fmt.Errorf("fields are declared, but the whole value is what counts")
	case opt.On == OnFields && len(opt.Fields) == 0:
		return nil, fmt.Errorf("no field is declared")
	case opt.On != OnValue && opt.On != OnFields:
		return nil, fmt.Errorf("a record's content is %q or %q, not %q", OnValue, OnFields, opt.On)
	}
	s.paths = slices.Sorted(slices.Values(opt.Fields))
	root, nodes, err := newTree(s.paths)
	if err != nil {
		return nil, err
	}
	s.idle.New = func() any {
		w := &work{unkeyed: map[string]int64{}}
		if len(s.paths) > 0 {
			w.scan = newScanner(root, len(s.paths), nodes)
		}
		return w
	}
	return s, nil
}

// work is the memory of one call.
type work struct {
	scan    *scanner // nil where the whole value counts
	rows    []Row
	places  []place // of rows
	key     [32]byte
	unkeyed map[string]int64
}

// place is where a row's record is.
type place struct{ batch, record int }

// Screen claims the content of all records of batches, and names those whose content another record holds. An error says that nothing is known
// of any of them; Reason names it.
func (s *Screen) Screen(ctx context.Context, batches []Batch) (Verdict, error) {
	w := s.idle.Get().(*work)
	defer s.idle.Put(w)
	var err error
	if w.key, err = s.opt.Claims.Key(ctx); err != nil {
		return Verdict{}, err
	}
	raw, err := s.within(ctx)
	if err != nil {
		return Verdict{}, &Unavailable{Reason: "raw", Err: err}
	}
	w.hash(batches, s.derive(&w.key, raw), s.opt.Unfit)
	v := Verdict{Checked: int64(len(w.rows))}
	if len(w.unkeyed) > 0 {
		v.Unkeyed = make(map[string]int64, len(w.unkeyed))
		for reason, n := range w.unkeyed {
			v.Unkeyed[reason] = n
		}
	}
	if len(w.rows) == 0 {
		return v, nil
	}
	held, err := s.opt.Claims.Claim(ctx, &w.key, w.rows)
	if err != nil {
		return Verdict{}, err
	}
	v.Twins = w.twins(held)
	return v, nil
}

// within is the raw that the records are in.
func (s *Screen) within(ctx context.Context) (*[32]byte, error) {
	if raw := s.raw.Load(); raw != nil || s.opt.Raw == nil {
		return raw, nil
	}
	raw, err := s.opt.Raw(ctx)
	if err != nil {
		return nil, err
	}
	s.raw.Store(&raw)
	return &raw, nil
}

// derive is the subkey of the stream, which changes only where the founding does.
func (s *Screen) derive(key, raw *[32]byte) *[32]byte {
	d := s.hashed.Load()
	if d == nil || d.key != *key {
		d = &derived{*key, subkey(key, s.opt.Stream, raw, s.paths)}
		s.hashed.Store(d)
	}
	return &d.sub
}

// hash makes the rows.
func (w *work) hash(batches []Batch, sub *[32]byte, unfit func(*record.Record) string) {
	w.rows, w.places = w.rows[:0], w.places[:0]
	clear(w.unkeyed)
	for b := range batches {
		records, ids := batches[b].Records, batches[b].IDs
		for i := range records {
			content, reason := w.content(records[i].Value)
			if reason == "" && unfit != nil {
				reason = unfit(&records[i])
			}
			if reason != "" {
				w.unkeyed[reason]++
				continue
			}
			var row Row
			sum := highwayhash.Sum128(content, sub[:])
			copy(row[:16], sum[:])
			copy(row[16:], ids[i][8:])
			w.rows, w.places = append(w.rows, row), append(w.places, place{b, i})
		}
	}
}

// content is the bytes that are hashed for a value, or why there are none.
func (w *work) content(value []byte) (bytes []byte, reason string) {
	switch {
	case value == nil:
		return nil, NullValue
	case len(value) == 0:
		return nil, EmptyValue
	case w.scan == nil:
		return value, ""
	}
	return w.scan.fields(value)
}

// twins maps an answer back to the records, ascending and each once.
func (w *work) twins(held []Held) (out []Twin) {
	if !slices.IsSortedFunc(held, byRow) {
		held = slices.SortedFunc(slices.Values(held), byRow)
	}
	last := -1
	for _, h := range held {
		if h.Row <= last || h.Row >= len(w.rows) || [8]byte(w.rows[h.Row][16:]) == h.By {
			continue
		}
		last = h.Row
		p := w.places[h.Row]
		out = append(out, Twin{Batch: p.batch, Record: p.record, Stands: h.By})
	}
	return out
}

func byRow(a, b Held) int { return a.Row - b.Row }
