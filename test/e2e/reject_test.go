//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

// rejecting is a bed with a quarantine of its own and a table "orders".
func rejecting(t *testing.T, shape func(*harness.Sink)) (b *bed, dsn, quarantine string) {
	t.Helper()
	dsn, quarantine = suite.Database(t), harness.Dir(t)
	b = lay(t, 1, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToPostgres("db", dsn)}
		shape(&s.Sinks[0])
		s.Quarantine = map[string]any{"to": "file://" + quarantine}
	})
	return b, dsn, quarantine
}

func (b *bed) sendValues(values ...string) {
	b.Helper()
	for _, v := range values {
		b.Send(harness.Record{Key: []byte("k"), Value: []byte(v)})
	}
}

// refused waits until n records are counted as rejected, ends the node, and returns the quarantine's rows. Raw has all records.
func (b *bed) refused(quarantine string, n int64) []harness.Rejected {
	b.Helper()
	b.complete(b.Count())
	b.node.WaitUntil(fmt.Sprintf("%d rejected records", n), 20*time.Second, func(s harness.StreamStatus) bool {
		return s.Quarantine.Records != nil && *s.Quarantine.Records == n
	})
	b.stop()
	harness.SameRecords(b, "raw", b.records(), b.Acked())
	rows := harness.Quarantine(b, quarantine, "s")
	if int64(len(rows)) != n {
		b.Errorf("the quarantine has %v, want %d rows", rows, n)
	}
	return rows
}

// landed compares the offsets in the table.
func landed(t testing.TB, dsn string, want ...int64) {
	t.Helper()
	if got := harness.Query[int64](t, dsn, "select __kafka_offset from orders order by 1"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the table has offsets %v, want %v", got, want)
	}
}

func about(t testing.TB, r harness.Rejected, offset int64, reason string, words ...string) {
	t.Helper()
	if r.Offset != offset || r.Reason != reason || r.Sink != "db" {
		t.Errorf("rejected is %v, want offset %d for %s", r, offset, reason)
	}
	for _, w := range words {
		if r.Detail == nil || !strings.Contains(*r.Detail, w) {
			t.Errorf("the detail of %v does not say %q", r, w)
		}
	}
}

// TestCaseD05ForGood: the record at fault is quarantined, and only it.
func TestCaseD05ForGood(t *testing.T) {
	t.Parallel()
	b, dsn, quarantine := rejecting(t, func(s *harness.Sink) { s.Postgres.ValueAs = "jsonb" })
	b.sendValues(`{"n":1}`, `{"n":`, `{"n":3}`)
	b.node.Start()
	rows := b.refused(quarantine, 1)
	landed(t, dsn, 0, 2)
	if len(rows) == 1 {
		about(t, rows[0], 1, "sink", "22P02")
		if want := suite.IDs(b.topic, b.Acked()[1:2])[0]; rows[0].ID != want {
			t.Errorf("the rejected id is %s, want %s", rows[0].ID, want)
		}
	}
}

// TestCaseD13: a value that does not fit into the user's column.
func TestCaseD13(t *testing.T) {
	t.Parallel()
	never := false
	b, dsn, quarantine := rejecting(t, func(s *harness.Sink) { s.Postgres.Create, s.Postgres.ValueAs = &never, "text" })
	harness.Exec(t, dsn, ddl("varchar(8)"))
	b.sendValues("one", "two", "ninechars", "four", "five")
	b.node.Start()
	rows := b.refused(quarantine, 1)
	landed(t, dsn, 0, 1, 3, 4)
	if len(rows) == 1 {
		about(t, rows[0], 2, "sink", "22001", "__kafka_value")
	}
}

// TestCaseD14: an escaped zero in JSON is text to text, and nothing that jsonb could hold; a real zero byte is for bytea alone.
func TestCaseD14(t *testing.T) {
	t.Parallel()
	escaped, real := `{"name":"a\u0000b"}`, "a\x00b"
	for as, rejects := range map[string][]int64{"text": {3}, "jsonb": {1, 3}, "bytea": nil} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			b, dsn, quarantine := rejecting(t, func(s *harness.Sink) { s.Postgres.ValueAs = as })
			b.sendValues(`{"n":1}`, escaped, `{"n":2}`, real, `{"n":3}`)
			b.node.Start()
			rows := b.refused(quarantine, int64(len(rejects)))
			var want []int64
			for o := range int64(5) {
				if len(rejects) == 0 || o != rejects[0] && o != rejects[len(rejects)-1] {
					want = append(want, o)
				}
			}
			landed(t, dsn, want...)
			for i, r := range rows {
				about(t, r, rejects[i], "sink", map[bool]string{true: "22P05", false: "22"}[rejects[i] == 1])
			}
			if as == "text" {
				if got := harness.Query[string](t, dsn, "select __kafka_value from orders where __kafka_offset = 1"); len(got) != 1 || got[0] != escaped {
					t.Errorf("as text it is %q", got)
				}
			}
		})
	}
}

// TestCaseD17: a record that is too large for a sink is in raw, and a piece of it in the quarantine; the next one does not wait.
func TestCaseD17(t *testing.T) {
	t.Parallel()
	dsn, quarantine := suite.Database(t), harness.Dir(t)
	topic := suite.Topic(t, 1, map[string]string{"max.message.bytes": "2000000"})
	b := layOn(t, topic, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToPostgres("db", dsn)}
		s.Sinks[0].MaxRecord = "1MB"
		s.Quarantine = map[string]any{"to": "file://" + quarantine}
	})
	b.node.Start()
	b.ready()
	b.Send(harness.Record{Value: bytes.Repeat([]byte("0123456789ab"), 100_000)})
	b.Send(harness.Record{Value: []byte("ten bytes.")})
	begin := time.Now()
	b.complete(2)
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the small record took %v", took)
	}
	rows := b.refused(quarantine, 1)
	landed(t, dsn, 1)
	if len(rows) == 1 {
		r := rows[0]
		about(t, r, 0, "oversize")
		if r.ValueSize == nil || *r.ValueSize != 1_200_000 || r.Value == nil || len(*r.Value) >= 1_200_000 || len(*r.Value) == 0 || r.TopicID != fmt.Sprintf("%x", topic.ID) {
			t.Errorf("the entry has no cut preview with a reference: size %v, %d bytes, topic id %s", *r.ValueSize, len(*r.Value), r.TopicID)
		}
	}
}
