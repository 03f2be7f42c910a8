//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

// everywhere compares raw, read by two libraries, a lake and a table with what was produced.
func (b *bed) everywhere(lake, dsn string, want []harness.Record) {
	b.Helper()
	harness.SameRecords(b, "raw", b.records(), want)
	harness.SameRecords(b, "raw by fastavro", suite.RawByFastavro(b, b.raw, "s"), want)
	harness.SameRecords(b, "the lake", suite.Lake(b, lake, "s"), want)
	harness.SameRecords(b, "the table", table(b, dsn), want)
	ids := suite.IDs(b.topic, want)
	harness.SameIDs(b, "the lake", suite.LakeIDs(b, lake, "s"), ids)
	harness.SameIDs(b, "the table", harness.TableIDs(b, dsn, "orders"), ids)
}

// table reads the rows of the table "orders", whose value is bytea.
func table(t testing.TB, dsn string) (out []harness.Record) {
	t.Helper()
	conn := harness.Connect(t, dsn)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select __kafka_partition, __kafka_offset, (extract(epoch from __kafka_timestamp) * 1000)::bigint,
		__kafka_timestamp_type, __kafka_key, __kafka_value, __kafka_headers::text from orders`)
	harness.Must(t, err)
	defer rows.Close()
	for rows.Next() {
		var r harness.Record
		var at *int64
		var headers *string
		harness.Must(t, rows.Scan(&r.Partition, &r.Offset, &at, &r.TimestampType, &r.Key, &r.Value, &headers))
		r.Timestamp = -1
		if at != nil {
			r.Timestamp = *at
		}
		r.Headers = headersOf(t, headers)
		out = append(out, r)
	}
	harness.Must(t, rows.Err())
	return out
}

// headersOf reads a jsonb array of [key, base64 or null].
func headersOf(t testing.TB, text *string) (out []harness.Header) {
	t.Helper()
	if text == nil {
		return nil
	}
	var pairs [][2]*string
	harness.Must(t, json.Unmarshal([]byte(*text), &pairs))
	for _, p := range pairs {
		h := harness.Header{Key: *p[0]}
		if p[1] != nil {
			v, err := base64.StdEncoding.DecodeString(*p[1])
			harness.Must(t, err)
			h.Value = append([]byte{}, v...)
		}
		out = append(out, h)
	}
	return out
}

// TestCaseD18D19D20: headers, nulls and empty values come out of every store as they went in, and again after a replay.
func TestCaseD18D19D20(t *testing.T) {
	t.Parallel()
	lake, dsn := "file://"+harness.Dir(t), suite.Database(t)
	b := lay(t, 1, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToParquet("lake", lake), harness.ToPostgres("db", dsn)}
	})
	b.Send(harness.Record{Value: []byte("D20: neither key nor headers")},
		harness.Record{Key: []byte("k"), Value: []byte("D20: both"), Headers: []harness.Header{{Key: "h", Value: []byte{0, 255}}}},
		harness.Record{Key: []byte("D18"), Value: []byte("v"), Headers: []harness.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "c", Value: []byte{}}}},
		harness.Record{Key: []byte("D19"), Value: []byte{}}, harness.Record{Value: []byte("v")}, harness.Record{Key: []byte{}, Value: []byte("v")},
		harness.Record{Key: []byte("D19"), Value: nil})
	b.node.Start()
	b.complete(7)
	if st, err := b.node.Status(); err != nil || *st.Streams[0].Partitions[0].Lag != 0 {
		t.Errorf("D19: a topic that ends with a tombstone has lag: %v, %v", st, err)
	}
	b.stop()
	b.everywhere(lake, dsn, b.Acked())

	for _, f := range files(t, lake) {
		harness.Must(t, os.Remove(f))
	}
	harness.Exec(t, dsn, "delete from orders; delete from _twg_coverage")
	b.node.Start()
	b.complete(7)
	b.stop()
	b.everywhere(lake, dsn, b.Acked())
}

// TestCaseD15: what JSON calls a null is not what SQL calls one.
func TestCaseD15(t *testing.T) {
	t.Parallel()
	dsn := suite.Database(t)
	b := lay(t, 1, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToPostgres("db", dsn)}
		s.Sinks[0].Postgres.ValueAs = "jsonb"
	})
	b.Send(harness.Record{Value: []byte(`"FIRST"`)}, harness.Record{Value: []byte("123")}, harness.Record{Value: []byte("null")}, harness.Record{Value: nil})
	b.node.Start()
	b.complete(4)
	b.stop()
	got := harness.Query[string](t, dsn, "select coalesce(jsonb_typeof(__kafka_value), 'SQL NULL') from orders order by __kafka_offset")
	if want := "[string number null SQL NULL]"; fmt.Sprint(got) != want {
		t.Errorf("the values are %v, want %s", got, want)
	}
}

// TestCaseD21: no timestamp, an absurd one, and the broker's own.
func TestCaseD21(t *testing.T) {
	t.Parallel()
	lake, dsn := "file://"+harness.Dir(t), suite.Database(t)
	topic := suite.Topic(t, 1, map[string]string{"message.timestamp.after.max.ms": "9223372036854775807"})
	b := layOn(t, topic, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToParquet("lake", lake), harness.ToPostgres("db", dsn)}
	})
	none := suite.SendAsIs(t, topic, harness.Record{Timestamp: -1, TimestampType: -1, Value: []byte("none")})
	absurd := suite.SendAsIs(t, topic, harness.Record{Timestamp: 1_700_000_000_000_000, Value: []byte("microseconds")})
	want := append(b.Send(harness.Record{Value: []byte("now")}), none, absurd)
	b.node.Start()
	b.complete(3)
	b.stop()
	b.everywhere(lake, dsn, want)

	stamped := suite.Topic(t, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	b = layOn(t, stamped, nil)
	begin := time.Now().UnixMilli()
	b.Send(harness.Record{Timestamp: 1000, Value: []byte("the broker's time")})
	b.node.Start()
	b.complete(1)
	b.stop()
	if got := b.records(); len(got) != 1 || got[0].TimestampType != 1 || got[0].Timestamp < begin-1000 {
		t.Errorf("LogAppendTime: raw has %v", got)
	}
}

// TestCaseD22: an aborted transaction leaves nothing where only what is committed is read, and flagged records elsewhere.
func TestCaseD22(t *testing.T) {
	t.Parallel()
	topic := suite.Topic(t, 1, nil)
	gone := suite.Transaction(t, topic, "a-"+topic.Name, false, harness.Plain(0, 3, 10)...)
	kept := suite.Transaction(t, topic, "b-"+topic.Name, true, harness.Plain(0, 2, 10)...)
	committed := layOn(t, topic, nil)
	committed.node.Start()
	committed.node.WaitUntil("lag 0 behind the last marker", 30*time.Second, func(s harness.StreamStatus) bool {
		lag, ok := s.Lag()
		return ok && lag == 0 && s.Raw() == 7
	})
	committed.stop()
	harness.SameRecords(t, "read_committed", committed.records(), kept)

	all := layOn(t, topic, func(s *harness.Stream) {
		s.Source.Kafka.Isolation, s.Source.Kafka.Group = "read_uncommitted", "u-"+topic.Name
	})
	all.node.Start()
	all.stored(7)
	all.stop()
	harness.SameRecords(t, "read_uncommitted", all.records(), append(gone, kept...))
	for _, c := range []*harness.Chain{committed.chain(topic, 0), all.chain(topic, 0)} {
		if len(c.Gaps) > 0 {
			t.Errorf("markers are gaps: %v", c.Gaps)
		}
		for i, s := range c.Producer {
			if !s.Transactional || s.ProducerID < 0 {
				t.Errorf("record %d is not flagged transactional: %+v", i, s)
			}
		}
	}
}
