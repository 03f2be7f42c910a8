package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Coverage implements sinks.Sink.
func (s *Sink) Coverage(ctx context.Context, p record.Partition) (set checkpoint.SpanSet, err error) {
	t := s.table()
	if t == nil {
		return set, s.notOpen()
	}
	err = s.session(ctx, "read the coverage of "+p.String(), func(ss *session) error {
		rows, err := ss.query(ctx, "SELECT spans FROM "+t.coverage.sql()+
			" WHERE stream = $1 AND sink = $2 AND topic = $3 AND topic_id = $4 AND partition = $5 AND generation = $6",
			s.opts.Stream, s.opts.Sink, p.Topic, topicID(p), number(p), generation(p))
		if err != nil || len(rows) == 0 {
			return err
		}
		set, err = parseSpans(string(rows[0][0]))
		return err
	})
	return set, err
}

// lockCoverage begins the transaction and locks the coverage of all partitions of the load, in one round trip. It returns what will
// write the new coverage, and whether some span of the load is covered already.
//
// Rows are first made to exist and then locked, both in the order of the key. Who waits for a row to be made holds only
// rows that he made before it in that order, and no locks; who waits for a lock holds only locks before it. So no two writers
// can wait for each other.
func (w *writer) lockCoverage(ctx context.Context) (cover statement, overlaps bool, err error) {
	keys := w.load.coverageKeys()
	o := w.load.sink.opts
	table := w.table.coverage.sql()
	params := []string{o.Stream, o.Sink, keys.topics(), keys.ids(), keys.numbers(), keys.generations()}
	const wanted = "unnest($3::text[], $4::uuid[], $5::integer[], $6::integer[])"
	batch := append(begin(w.copyTimeout(w.load.sent)),
		sql("INSERT INTO "+table+" AS c (stream, sink, topic, topic_id, partition, generation, table_name, spans) SELECT $1, $2, t, i, p, g, $7, '{}'::int8range[] FROM "+
			wanted+" AS u (t, i, p, g) ORDER BY t, i, p, g ON CONFLICT DO NOTHING", append(params, w.table.name.table)...),
		sql("SELECT topic, topic_id, partition, generation, spans FROM "+table+" WHERE stream = $1 AND sink = $2 AND (topic, topic_id, partition, generation) IN (SELECT * FROM "+
			wanted+") ORDER BY topic, topic_id, partition, generation FOR UPDATE", params...))
	results, err := w.batch(ctx, batch...)
	if err != nil {
		return statement{}, false, err
	}
	covered, err := readCoverage(results[len(results)-1])
	if err != nil {
		return statement{}, false, err
	}
	spans, overlaps := w.load.add(keys, covered)
	return sql("UPDATE "+table+" c SET spans = u.s::int8range[] FROM unnest($3::text[], $4::uuid[], $5::integer[], $6::integer[], $7::text[]) AS u (t, i, p, g, s)"+
		" WHERE c.stream = $1 AND c.sink = $2 AND c.topic = u.t AND c.topic_id = u.i AND c.partition = u.p AND c.generation = u.g",
		append(params, array(spans))...), overlaps, nil
}

// coverageKey is a partition as the table tells them apart.
type coverageKey struct{ topic, id, number, generation string }

func keyOf(p record.Partition) coverageKey {
	return coverageKey{p.Topic, topicID(p), number(p), generation(p)}
}

func number(p record.Partition) string     { return strconv.Itoa(int(p.Number)) }
func generation(p record.Partition) string { return strconv.Itoa(int(p.Generation)) }

// topicID is the text form of a UUID, as PostgreSQL prints it.
func topicID(p record.Partition) string { return record.ID(p.TopicID).String() }

// coverageKeys are the keys of a load, each once.
type coverageKeys struct {
	keys  []coverageKey
	spans []checkpoint.SpanSet
}

func (l *load) coverageKeys() (c coverageKeys) {
	for p, set := range l.spans {
		c.keys = append(c.keys, keyOf(p))
		c.spans = append(c.spans, set)
	}
	return c
}

func (c coverageKeys) column(f func(coverageKey) string) string {
	items := make([]string, len(c.keys))
	for i, k := range c.keys {
		items[i] = f(k)
	}
	return array(items)
}

func (c coverageKeys) topics() string { return c.column(func(k coverageKey) string { return k.topic }) }
func (c coverageKeys) ids() string    { return c.column(func(k coverageKey) string { return k.id }) }
func (c coverageKeys) numbers() string {
	return c.column(func(k coverageKey) string { return k.number })
}
func (c coverageKeys) generations() string {
	return c.column(func(k coverageKey) string { return k.generation })
}

func readCoverage(r *pgconn.Result) (map[coverageKey]checkpoint.SpanSet, error) {
	covered := map[coverageKey]checkpoint.SpanSet{}
	for _, row := range r.Rows {
		set, err := parseSpans(string(row[4]))
		if err != nil {
			return nil, err
		}
		covered[coverageKey{string(row[0]), string(row[1]), string(row[2]), string(row[3])}] = set
	}
	return covered, nil
}

// add is the coverage after the load, as text for each key, and whether some of it was there before.
func (l *load) add(keys coverageKeys, covered map[coverageKey]checkpoint.SpanSet) (spans []string, overlaps bool) {
	for i, k := range keys.keys {
		set := covered[k]
		for _, s := range keys.spans[i].Spans() {
			overlaps = overlaps || set.Overlaps(s)
		}
		set.Union(keys.spans[i])
		spans = append(spans, formatSpans(set))
	}
	return spans, overlaps
}

// formatSpans writes a set as int8range[].
func formatSpans(set checkpoint.SpanSet) string {
	var items []string
	for _, s := range set.Spans() {
		items = append(items, fmt.Sprintf("[%d,%d)", s.From, s.To))
	}
	return array(items)
}

// parseSpans reads int8range[] as PostgreSQL prints it: {"[0,100)","[200,300)"}.
func parseSpans(text string) (set checkpoint.SpanSet, err error) {
	inner := strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	for len(inner) > 0 {
		var item string
		item, inner, _ = strings.Cut(strings.TrimPrefix(inner, `"`), `"`)
		inner = strings.TrimPrefix(inner, ",")
		var s checkpoint.Span
		if n, err := fmt.Sscanf(item, "[%d,%d)", &s.From, &s.To); n != 2 || err != nil {
			return set, fmt.Errorf("the coverage %q is not of the form {\"[from,to)\",…}", text)
		}
		set.Add(s)
	}
	return set, nil
}
