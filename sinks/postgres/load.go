package postgres

import (
	"maps"
	"sync"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
)

// load holds rows as they go over the wire, in chunks that loads share through a pool, and an index of them. Nothing is allocated
// for a row. A row that is known to be refused is encoded like any other and left out when rows are sent: what the quarantine
// needs is read back from it.
//
// Invariant: refused has a key only for rows that are in rows; a row with wild set is in refused.
type load struct {
	sink   *Sink
	layout layout
	chunks [][]byte
	rows   []place
	parts  []record.Partition // one for each Add, or fewer where it was the same as before
	spans  map[record.Partition]checkpoint.SpanSet
	twice  bool // some span was added twice, so rows may be, too

	refused  map[int]fault // rows that are refused for good, as far as is known
	reported map[int]bool  // those whose refusal is durable in the trail
	sent     int64         // bytes of rows that are not refused
}

// place is where a row lies: chunks[chunk][from:to].
type place struct {
	chunk, from, to uint32
	part            uint32 // index into parts
	wild            bool   // the timestamp is in a form that PostgreSQL does not take
	transactional   bool
}

// fault is why a row is refused.
type fault struct{ code, column, constraint string }

const chunkSize = 256 << 10

var chunkPool = sync.Pool{New: func() any { b := make([]byte, 0, chunkSize); return &b }}

func newLoad(s *Sink, l layout) *load {
	return &load{sink: s, layout: l, spans: map[record.Partition]checkpoint.SpanSet{}, refused: map[int]fault{}, reported: map[int]bool{}}
}

// Add implements sinks.Load.
func (l *load) Add(b *row.Batch) error {
	l.cover(b.Partition, b.Span)
	part := l.part(b.Partition)
	e := newEncoder(l.layout, b.Partition)
	topic := textFault([]byte(b.Partition.Topic))
	for i := range b.Records {
		l.addRow(&e, part, topic, b.IDs[i], &b.Records[i])
	}
	return nil
}

func (l *load) cover(p record.Partition, s checkpoint.Span) {
	set := l.spans[p]
	l.twice = l.twice || set.Overlaps(s)
	set.Add(s)
	l.spans[p] = set
}

func (l *load) part(p record.Partition) uint32 {
	if n := len(l.parts); n == 0 || l.parts[n-1] != p {
		l.parts = append(l.parts, p)
	}
	return uint32(len(l.parts) - 1)
}

func (l *load) addRow(e *encoder, part uint32, topic string, id record.ID, r *record.Record) {
	c := l.chunk(e.room(r))
	from := len(*c)
	b, wild := e.append(*c, id, r)
	*c = b
	if f := l.judge(topic, r, len(b)-from, wild); f.code != "" {
		l.refused[len(l.rows)] = f
	} else {
		l.sent += int64(len(b) - from)
	}
	l.rows = append(l.rows, place{chunk: uint32(len(l.chunks) - 1), from: uint32(from), to: uint32(len(b)),
		part: part, wild: wild, transactional: r.Transactional})
}

// chunk is the last chunk, which has room for n bytes more.
func (l *load) chunk(n int) *[]byte {
	if k := len(l.chunks); k > 0 && cap(l.chunks[k-1])-len(l.chunks[k-1]) >= n {
		return &l.chunks[k-1]
	}
	if n > chunkSize {
		l.chunks = append(l.chunks, make([]byte, 0, n))
	} else {
		l.chunks = append(l.chunks, (*chunkPool.Get().(*[]byte))[:0])
	}
	return &l.chunks[len(l.chunks)-1]
}

// maxRow is what PostgreSQL allocates for one value at most, less than a gibibyte by what a row has besides.
const maxRow = 1<<30 - 1<<20

// judge says which faults of a row can be told without the server. The first column at fault counts, as in PostgreSQL.
func (l *load) judge(topic string, r *record.Record, size int, wild bool) fault {
	switch {
	case size > maxRow:
		return fault{code: tooLarge}
	case topic != "":
		return fault{code: topic, column: names[colTopic]}
	case wild:
		return fault{code: outOfTime, column: names[colTimestamp]}
	}
	for i := range r.Headers {
		if code := headerFault(l.layout[colHeaders], r.Headers[i].Key); code != "" {
			return fault{code: code, column: names[colHeaders]}
		}
	}
	if code := valueFault(l.layout[colValue], r.Value); code != "" {
		return fault{code: code, column: names[colValue]}
	}
	return fault{}
}

// headerFault: a zero byte is escaped in the JSON text, which json takes and jsonb does not.
func headerFault(f format, key string) string {
	zero := false
	for i, c := range key {
		if c == 0xfffd && (len(key)-i < 3 || key[i:i+3] != "\ufffd") {
			return notInEncoding
		}
		zero = zero || c == 0
	}
	if zero && f == formatJSONB {
		return untranslatable
	}
	return ""
}

func valueFault(f format, v []byte) string {
	switch {
	case v == nil:
		return ""
	case f == formatText:
		return textFault(v)
	case f == formatJSONB:
		return jsonFault(v)
	case f == formatJSON:
		if code := textFault(v); code != "" {
			return code
		}
	}
	return ""
}

// Size implements sinks.Load.
func (l *load) Size() sinks.Size {
	held := int64(len(l.rows)) * 20
	for _, c := range l.chunks {
		held += int64(cap(c))
	}
	return sinks.Size{Rows: int64(len(l.rows) - len(l.refused)), Held: held, Out: l.sent}
}

// Spans implements sinks.Load.
func (l *load) Spans() map[record.Partition]checkpoint.SpanSet {
	spans := maps.Clone(l.spans)
	for p, s := range spans {
		spans[p] = s.Clone()
	}
	return spans
}

// Discard implements sinks.Load.
func (l *load) Discard() {
	for _, c := range l.chunks {
		if cap(c) == chunkSize {
			chunkPool.Put(&c)
		}
	}
	l.chunks, l.rows = nil, nil
}

// row is the encoded row i.
func (l *load) row(i int) []byte {
	p := l.rows[i]
	return l.chunks[p.chunk][p.from:p.to]
}

// reject is row i as the trail wants it.
func (l *load) reject(i int, f fault) sinks.Reject {
	p := l.rows[i]
	r, id := decode(l.layout, l.row(i), p.wild)
	r.Transactional = p.transactional
	return sinks.Reject{Partition: l.parts[p.part], Offset: r.Offset, ID: id, Reason: sinks.ReasonSink, Detail: f.String(), Record: &r}
}

// refit encodes the rows again for another layout: a person has altered the table since the load began. What only the server had
// refused may be right now.
func (l *load) refit(to layout) {
	if to == l.layout {
		return
	}
	old := *l
	l.layout, l.chunks, l.rows, l.sent, l.refused = to, nil, nil, 0, map[int]fault{}
	for i, p := range old.rows {
		r, id := decode(old.layout, old.row(i), p.wild)
		r.Transactional = p.transactional
		e := newEncoder(to, l.parts[p.part])
		l.addRow(&e, p.part, textFault([]byte(l.parts[p.part].Topic)), id, &r)
	}
	for i := range l.reported {
		l.refuse(i, old.refused[i])
	}
	old.Discard()
}

// refuse notes that row i is refused.
func (l *load) refuse(i int, f fault) {
	if _, known := l.refused[i]; !known {
		l.sent -= int64(l.rows[i].to - l.rows[i].from)
	}
	l.refused[i] = f
}

func (l *load) isRefused(i int) bool {
	_, refused := l.refused[i]
	return refused
}

// relent takes back the refusal of those of these rows that are refused.
func (l *load) relent(rows []int) {
	for _, i := range rows {
		if l.isRefused(i) {
			delete(l.refused, i)
			l.sent += int64(l.rows[i].to - l.rows[i].from)
		}
	}
}
