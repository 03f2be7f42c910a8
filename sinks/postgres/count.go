package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Count implements sinks.Sink. It reads the whole table once, whatever the number of spans, unless a person has made an index on
// partition and offset: a count is rare, and even the cheapest index costs every row that is written. Only ctx bounds it.
//
// The table knows topics by name. Where coverage says that another topic of the same name, or another generation of the chain,
// has offsets in the spans too, rows are told apart by computing their ids anew, which costs a SHA-256 a row. From jsonb the bytes of
// a value cannot be had back, and Count fails there instead of guessing.
func (s *Sink) Count(ctx context.Context, p record.Partition, spans []checkpoint.Span) (counts []int64, err error) {
	t := s.table()
	if t == nil {
		return nil, s.notOpen()
	}
	within := bounds(spans)
	if within.Empty() {
		return make([]int64, len(spans)), nil
	}
	err = s.session(ctx, "count the rows of "+p.String(), func(ss *session) error {
		twin, err := s.hasTwin(ctx, ss, t, p, within)
		if err != nil {
			return err
		}
		st, cuts, err := countStatement(t, p, spans, twin)
		if err != nil {
			return err
		}
		rows, err := ss.scan(ctx, st)
		if err != nil {
			return err
		}
		counts, err = sumCells(spans, cuts, rows)
		return err
	})
	return counts, err
}

func (s *Sink) notOpen() error {
	return &sinks.Error{Kind: sinks.Retry, Reason: "postgres: the table has not been opened yet"}
}

// bounds is the least span that holds all.
func bounds(spans []checkpoint.Span) (b checkpoint.Span) {
	for _, sp := range spans {
		switch {
		case sp.Empty():
		case b.Empty():
			b = sp
		default:
			b = checkpoint.Span{From: min(b.From, sp.From), To: max(b.To, sp.To)}
		}
	}
	return b
}

// hasTwin says whether another partition of the same topic name and number has rows in the span, written by whatever stream.
func (s *Sink) hasTwin(ctx context.Context, ss *session, t *table, p record.Partition, within checkpoint.Span) (bool, error) {
	rows, err := ss.query(ctx, "SELECT 1 FROM "+t.coverage.sql()+" WHERE table_name = $1 AND topic = $2 AND partition = $3 AND (topic_id, generation) <> ($4::uuid, $5::integer)"+
		" AND EXISTS (SELECT FROM unnest(spans) r WHERE r && int8range($6, $7)) LIMIT 1",
		t.name.table, p.Topic, number(p), topicID(p), generation(p), offset(within.From), offset(within.To))
	return len(rows) > 0, err
}

func offset(o int64) string { return strconv.FormatInt(o, 10) }

// countStatement counts rows by the cells between the spans' ends: cell i lies between cuts[i-1] and cuts[i].
func countStatement(t *table, p record.Partition, spans []checkpoint.Span, twin bool) (statement, []int64, error) {
	var cuts []int64
	for _, sp := range spans {
		cuts = append(cuts, sp.From, max(sp.From, sp.To))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	items := make([]string, len(cuts))
	for i, c := range cuts {
		items[i] = offset(c)
	}
	st := sql("SELECT width_bucket(__kafka_offset, $1::bigint[]), count(*) FROM "+t.name.sql()+
		" WHERE __kafka_topic = $2 AND __kafka_partition = $3 AND __kafka_offset >= $4 AND __kafka_offset < $5",
		array(items), p.Topic, number(p), items[0], items[len(items)-1])
	if twin {
		id, ok := idSQL(t.layout[colValue])
		if !ok {
			return st, nil, &sinks.Error{Kind: sinks.Blocked, Reason: fmt.Sprintf("postgres: the rows of %v cannot be counted: another topic or generation "+
				"of this name has the same offsets, and jsonb does not keep the bytes that tell them apart", p)}
		}
		st.sql += " AND _twg_record_id = " + id
		for _, v := range []string{p.Cluster, topicID(p), generation(p)} {
			st.params = append(st.params, []byte(v))
		}
	}
	st.sql += " GROUP BY 1"
	return st, cuts, nil
}

// sumCells adds up the cells that lie in each span.
func sumCells(spans []checkpoint.Span, cuts []int64, rows [][][]byte) ([]int64, error) {
	cells := make([]int64, len(cuts)+1)
	for _, r := range rows {
		i, err := strconv.Atoi(string(r[0]))
		if err != nil || i >= len(cells) {
			return nil, fmt.Errorf("a count in cell %q", r[0])
		}
		if cells[i], err = strconv.ParseInt(string(r[1]), 10, 64); err != nil {
			return nil, fmt.Errorf("a count of %q", r[1])
		}
	}
	counts := make([]int64, len(spans))
	for i, sp := range spans {
		for c := 1; c < len(cuts); c++ {
			if cuts[c-1] >= sp.From && cuts[c] <= sp.To {
				counts[i] += cells[c]
			}
		}
	}
	return counts, nil
}

// idSQL computes a row's id from its columns: record.Hasher in SQL. $2 is the topic, $6 the cluster, $7 the topic id and $8 the
// generation. It is false where the value's bytes cannot be had.
func idSQL(value format) (string, bool) {
	bytes := map[format]string{formatBytea: "__kafka_value", formatText: "convert_to(__kafka_value, 'UTF8')"}[value]
	if bytes == "" {
		return "", false
	}
	nullable := func(c string) string {
		return "CASE WHEN " + c + ` IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || int4send(octet_length(` + c + ")) || " + c + " END"
	}
	sized := func(p string) string {
		return "int4send(octet_length(convert_to(" + p + "::text, 'UTF8'))) || convert_to(" + p + "::text, 'UTF8')"
	}
	return `(SELECT encode(set_byte(set_byte(raw, 6, get_byte(raw, 6) & 15 | 128), 8, get_byte(raw, 8) & 63 | 128), 'hex')::uuid FROM (
  SELECT substr(int8send(least(greatest(coalesce((extract(epoch FROM __kafka_timestamp) * 1000)::bigint, -1), 0), 281474976710655) << 16), 1, 6) ||
    substr(sha256(` + sized("$6") + " || " + sized("$2") + ` || uuid_send($7::uuid) || int4send(__kafka_partition::integer) || int4send($8::integer) ||
      int8send(__kafka_offset) || ` + nullable("__kafka_key") + " || " + nullable(bytes) + `), 1, 10) AS raw) AS computed)`, true
}
