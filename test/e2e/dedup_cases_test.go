//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

// dropping is how most of these cases deduplicate.
var dropping = harness.Dedup{Mode: "drop", Window: "5m"}

// send produces values for one partition, in order.
func (w *twinned) send(partition int32, values ...string) {
	w.Helper()
	for _, v := range values {
		w.Send(harness.Record{Partition: partition, Value: []byte(v)})
	}
}

// screened waits until all that was sent has been screened and is in every sink, and fails where any of it passed unscreened: these cases say
// what happens to single records.
func (w *twinned) screened() {
	w.Helper()
	w.complete(w.Count())
	if n := w.unscreened(); n > 0 {
		w.Fatalf("%d records passed unscreened, so that the case says nothing", n)
	}
}

// orders is n values, no two of them equal.
func orders(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(`{"order":%d}`, i))
	}
	return out
}

// landedOf compares the offsets of one partition in the table.
func landedOf(t testing.TB, dsn, table string, partition int32, want ...int64) {
	t.Helper()
	got := harness.Query[int64](t, dsn, "select __kafka_offset from "+table+" where __kafka_partition = $1 order by 1", partition)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s has offsets %v of partition %d, want %v", table, got, partition, want)
	}
}

// TestDedupFields: a copy that is written otherwise is the same where its fields are, and nothing else is.
func TestDedupFields(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, harness.Dedup{Mode: "drop", Window: "5m", On: "fields", Fields: []string{"id", "meta.try"}}, nil)
	w.begin()
	w.send(0,
		`{"id":1,"meta":{"try":"a"},"at":"noon"}`,
		`{"id":"1","meta":{"try":"a"}}`, // a text is no number
		`{"id":2,"meta":{"try":"é"}}`,
		`{"id":3,"meta":{}}`, // without one of the fields
		`{"id":4,"meta":{"try":null}}`,
		`not JSON`,
		`{"id":12345678901234567890,"meta":{"try":"a"}}`,
		`{"id":5,"meta":{"try":{"of":"more"}}}`)
	w.complete(8) // a partition's batches are screened in order, those of two partitions need not be
	w.send(1,
		`{ "meta" : { "try" : "\u0061" } , "id" : 1.0 , "at" : "night" }`, // the first again
		`{"id":"1","meta":{"try":"a","more":1}}`,                          // the second
		`{"meta":{"try":"\u00e9"},"id":20e-1}`,                            // the third
		`{"id":3,"meta":{}}`,
		`{"id":4,"meta":{"try":null}}`,
		`not JSON`,
		`{"id":12345678901234567891,"meta":{"try":"a"}}`, // one more than the seventh
		`{"id":5,"meta":{"try":{"of":"more"}}}`,
		`{"id":1,"meta":{"try":"b"}}`)
	w.screened()
	for reason, want := range map[string]float64{"missing_field": 4, "not_json": 2, "field_type": 2, "null_value": 0} {
		if got := w.node.Metric("twg_dedup_unkeyed_total", `reason="`+reason+`"`); got != want {
			t.Errorf("%v records have no key for %s, want %v", got, reason, want)
		}
	}
	if n := w.metric("twg_dedup_duplicates_total"); n != 3 {
		t.Errorf("%v duplicates were found, want 3", n)
	}
	w.stop()
	landedOf(t, w.dsn, "orders", 0, 0, 1, 2, 3, 4, 5, 6, 7)
	landedOf(t, w.dsn, "orders", 1, 3, 4, 5, 6, 7, 8)
	w.audited("--rows")
}

// TestDedupTombstonesAreNeverDropped: records without a value, or with an empty one, are all alike, and each of them counts.
func TestDedupTombstonesAreNeverDropped(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, dropping, nil)
	w.begin()
	for range 3 {
		for p := range int32(2) {
			w.Send(harness.Record{Partition: p, Key: []byte("k")}, harness.Record{Partition: p, Key: []byte("k"), Value: []byte{}})
		}
	}
	w.screened()
	for _, reason := range []string{"null_value", "empty_value"} {
		if n := w.node.Metric("twg_dedup_unkeyed_total", `reason="`+reason+`"`); n != 6 {
			t.Errorf("%v records have no key for %s, want 6", n, reason)
		}
	}
	w.stop()
	w.hold(w.truth(), 0)
	harness.SameIDs(t, "the table", harness.TableIDs(t, w.dsn, "orders"), suite.IDs(w.topic, w.Acked()))
}

// TestDedupRemembersOverAKill: what was claimed before a SIGKILL is claimed after it, and no record that is read, stored or carried again is its own twin.
func TestDedupRemembersOverAKill(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, dropping, nil)
	w.begin()
	w.send(0, orders(200)...)
	w.screened()
	w.node.Kill()
	w.begin()
	w.send(1, orders(200)...)
	w.screened()
	if n := w.metric("twg_dedup_duplicates_total"); n != 200 {
		t.Errorf("%v of 200 were found to be claimed before the kill", n)
	}
	w.stop()
	w.hold(w.truth(), 0)
	landedOf(t, w.dsn, "orders", 1)
	w.audited("--rows")
}

// TestDedupKilledAtWork: SIGKILL at any moment of the work. No content is lost, no row is doubled, and a duplicate survives only where its batch
// was not through when the process died, or passed unscreened.
func TestDedupKilledAtWork(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 3, dropping, func(s *harness.Stream) { s.Sinks[0].Deadline = "3s" })
	lapses := &harness.Lapses{DSN: w.dsn, Ends: w.ends}
	w.begin()
	w.BeginRetrying(1500, repeats)
	for range 4 {
		was := w.Count()
		harness.Await(t, "a second's load", 20*time.Second, func() (string, bool) { return fmt.Sprint(w.Count()), w.Count() > was+1500 })
		lapses.Kill(w.node)
		w.begin()
	}
	want := w.End()
	w.complete(int64(len(want)))
	living := w.unscreened()
	w.stop()
	c := w.truth()
	harness.SameRecords(t, "raw", w.records(), want)
	named := suite.Dropped(t, w.raw, "s", true)
	most, why := lapses.Most(c, want, suite.IDs(w.topic, want), living)
	t.Logf("%d records, %d contents, at most %d duplicates may survive: %s", c.Records(), c.Distinct(), most, why)
	for where, rows := range map[string][]harness.Held{"the table": harness.TableRows(t, w.dsn, "orders"), "the lake": suite.LakeRows(t, w.lake, "s")} {
		extra := c.Present(t, where, rows)
		c.LeftOut(t, where, rows, named, true)
		t.Logf("%s has %d of %d duplicates", where, extra, c.Twins)
		if extra > most {
			t.Errorf("%s has %d duplicates, and %s", where, extra, why)
		}
	}
	for sink, n := range w.audited("--rows") {
		if n != int64(len(named)) {
			t.Errorf("audit says that %d are left out of %s, and %d are named", n, sink, len(named))
		}
	}
	w.begin()
	w.drops(int64(len(named)))
	w.stop()
}

// ends are the ends of the chains in a local raw, while others may write.
func (b *bed) ends() map[int32]int64 {
	b.Helper()
	out := map[int32]int64{}
	chains := suite.RawAfterKill(b, b.raw, "s")
	for p := range b.topic.Partitions {
		if c := chains[b.topic.Path(p)]; c != nil {
			out[p] = c.Next
		}
	}
	return out
}

// TestDedupTwinOfARejectedRecord: a record that a sink refuses for good cannot stand for another one there. The auditor says so, and once the table
// takes the value recovery writes the twin.
func TestDedupTwinOfARejectedRecord(t *testing.T) {
	t.Parallel()
	never := false
	w := layTwinned(t, 2, dropping, func(s *harness.Stream) {
		s.Sinks[0].Postgres.Create, s.Sinks[0].Postgres.ValueAs = &never, "text"
		s.Quarantine = map[string]any{"to": "file://" + harness.Dir(t)}
	})
	harness.Exec(t, w.dsn, ddl("varchar(8)"))
	w.begin()
	w.send(0, "one", "ninechars")
	w.screened()
	w.send(1, "two", "ninechars", "one")
	w.screened()
	landedOf(t, w.dsn, "orders", 0, 0)
	landedOf(t, w.dsn, "orders", 1, 0)
	code, r := w.node.Audit()
	if code != 3 || len(r.Findings) != 1 {
		t.Fatalf("audit exits with code %d: %v", code, r.Findings)
	}
	f := r.Findings[0]
	if f.Sink != "db" || f.Partition != 1 || f.Span == nil || f.Span.From > 1 || f.Span.To < 2 || !strings.Contains(f.Text, "twgd recover") {
		t.Errorf("the finding is %+v", f)
	}
	harness.Exec(t, w.dsn, "alter table orders alter column __kafka_value type varchar(20)")
	if code, out := w.node.Ask("recover", "--stream", "s", "--sink", "db", "--topic", w.topic.Name, "--partition", "1", "--from", "0", "--to", "3"); code != 0 {
		t.Errorf("recover exits with code %d:\n%s", code, out)
	}
	harness.Await(t, "the twin to be there", 30*time.Second, func() (string, bool) {
		got := harness.Query[int64](t, w.dsn, "select __kafka_offset from orders where __kafka_partition = 1 order by 1")
		return fmt.Sprint(got), fmt.Sprint(got) == "[0 1]"
	})
	w.audited()
	w.audited("--rows")
	w.stop()
}

// TestDedupTheUnfitStandForNobody: a file takes no record that is too large with its headers, nor one with a header name that is no UTF-8, and nothing once
// it is written. So such a record claims nothing, and the next one of its content is in every sink.
func TestDedupTheUnfitStandForNobody(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, dropping, func(s *harness.Stream) {
		s.Sinks[0].MaxRecord, s.Sinks[1].MaxRecord = "1MiB", "64KiB"
		s.Quarantine = map[string]any{"to": "file://" + harness.Dir(t)}
	})
	w.begin()
	all := orders(3)
	w.Send(harness.Record{Partition: 0, Value: []byte(all[0]), Headers: []harness.Header{{Key: "large", Value: make([]byte, 100_000)}}},
		harness.Record{Partition: 0, Value: []byte(all[1]), Headers: []harness.Header{{Key: "\xff"}}})
	w.screened()
	w.send(1, all...)
	w.screened()
	for _, reason := range []string{"oversize", "header_name"} {
		if n := w.node.Metric("twg_dedup_unkeyed_total", `reason="`+reason+`"`); n != 1 {
			t.Errorf("%v records have no key for %s, want 1", n, reason)
		}
	}
	w.stop()
	landedOf(t, w.dsn, "orders", 1, 0, 1, 2)
	if rows := suite.LakeRows(t, w.lake, "s"); len(rows) != 3 {
		t.Errorf("the lake has %d rows, want 3", len(rows))
	}
	w.audited("--rows")
}

// TestDedupAuditFindsOrphans: somebody removes a topic's folder from raw, with what stands for others in it, and its sinks, while its claims are remembered.
// What is dropped then is in no sink, and the auditor says so.
func TestDedupAuditFindsOrphans(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, dropping, func(s *harness.Stream) { s.Sinks = s.Sinks[:1] })
	w.begin()
	w.send(0, orders(20)...)
	w.screened()
	w.stop()
	was := w.topic
	harness.Must(t, suite.Kafka.DeleteTopic(t.Context(), was.Name))
	harness.Must(t, os.RemoveAll(filepath.Join(suite.Local(t, w.raw), "s", filepath.Dir(was.Path(0)))))
	harness.Exec(t, w.dsn, "drop table orders; drop table _twg_coverage")
	w.topic = suite.TopicNamed(t, was.Name, 2, nil)
	w.Producer = suite.Producer(t, w.topic)
	w.begin()
	w.send(0, orders(20)...)
	w.screened()
	w.stop()
	landedOf(t, w.dsn, "orders", 0)
	code, r := w.node.Audit("--rows")
	if code != 3 || len(r.Findings) != 1 || r.Findings[0].Kind != "orphan" || fmt.Sprint(*r.Findings[0].Span) != "{0 20}" {
		t.Errorf("audit exits with code %d: %v", code, r.Findings)
	}
}

// TestCaseD32EverythingIsADuplicate: of a span all records are duplicates. It is covered all the same, recovery does not come back to it, and the
// auditor is content.
func TestCaseD32EverythingIsADuplicate(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, dropping, nil)
	w.begin()
	w.send(0, orders(100)...)
	w.screened()
	w.send(1, orders(100)...)
	w.screened()
	w.drops(100)
	w.stop()
	w.audited()
	w.audited("--rows")
	w.begin()
	w.send(0, `{"one":"more"}`)
	w.complete(w.Count())
	time.Sleep(3 * time.Second) // recovery looks around once a second
	if n := w.metric("twg_recovery_windows_total"); n != 0 {
		t.Errorf("recovery came back for %v windows", n)
	}
	w.complete(w.Count())
	w.stop()
	landedOf(t, w.dsn, "orders", 1)
	w.hold(w.truth(), 0)
}

// TestCaseD36: two streams read one topic and both deduplicate. Neither takes the other's record for its own twin.
func TestCaseD36(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, dropping, nil)
	other := suite.Stream(w.topic, w.raw)
	other.Name, other.Source.Kafka.Group = "s2", "g2-"+w.topic.Name
	other.Sinks = []harness.Sink{harness.ToPostgres("db", w.dsn)}
	other.Sinks[0].Postgres.Table = "others"
	other.Deduplicate(dropping)
	w.node.Streams = append(w.node.Streams, other)
	w.begin()
	both := func() {
		t.Helper()
		harness.Await(t, "both streams to have all", 30*time.Second, func() (string, bool) {
			st, err := w.node.Status()
			if err != nil || len(st.Streams) != 2 {
				return fmt.Sprint(err), false
			}
			return st.String(), st.Streams[0].Complete(w.Count()) && st.Streams[1].Complete(w.Count())
		})
	}
	w.send(0, `{"order":1}`)
	both()
	w.send(1, `{"order":1}`)
	both()
	if n := w.unscreened(); n > 0 {
		t.Fatalf("%d records passed unscreened, so that the case says nothing", n)
	}
	w.stop()
	for _, table := range []string{"orders", "others"} {
		landedOf(t, w.dsn, table, 0, 0)
		landedOf(t, w.dsn, table, 1)
	}
}

// TestDedupIsValidated: dropping is refused where it would be wrong, and who may drop is told what it takes.
func TestDedupIsValidated(t *testing.T) {
	t.Parallel()
	w := layTwinned(t, 2, harness.Dedup{Mode: "drop", Window: "5m", Entries: 5_000_000}, nil)
	s := &w.node.Streams[0]
	validates := func(code int, words ...string) {
		t.Helper()
		got, printed := w.node.Ask("validate")
		if got != code {
			t.Errorf("validate exits with code %d, want %d:\n%s", got, code, printed)
		}
		for _, word := range words {
			if !strings.Contains(printed, word) {
				t.Errorf("validate does not say %q:\n%s", word, printed)
			}
		}
	}
	validates(0, "dedup", "MiB")
	s.Contract = nil
	validates(2, "contract.unique: true", "measure")
	s.Deduplicate(*s.Dedup)
	w.node.Cluster = nil
	validates(2, "cluster.size")
	w.node.Cluster = map[string]any{"size": 0}
	validates(2, "cluster.size")
	if code := w.node.Run(20 * time.Second); code != 2 {
		t.Errorf("run exits with code %d", code)
	}
	s.Dedup.Mode = "measure"
	validates(0)
}
