//go:build e2e

package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

const ordersAs = `CREATE TABLE orders (_twg_record_id uuid PRIMARY KEY, __kafka_topic text NOT NULL, __kafka_partition integer NOT NULL,
	__kafka_offset bigint NOT NULL, __kafka_timestamp timestamptz, __kafka_timestamp_type smallint NOT NULL, __kafka_leader_epoch integer NOT NULL,
	__kafka_producer_id bigint NOT NULL, __kafka_producer_epoch smallint NOT NULL, __kafka_headers jsonb NOT NULL, __kafka_key bytea, __kafka_value %s)`

// made makes the table as a user would, with that type of the value and more columns or constraints.
func (d *database) made(value string) {
	d.t.Helper()
	d.exec(fmt.Sprintf(ordersAs, value))
}

func userMade(v ValueAs) func(*Options) {
	return func(o *Options) { o.Create, o.ValueAs = false, v }
}

func TestCaseD05TheSecondOfThree(t *testing.T) {
	t.Run("for good", func(t *testing.T) {
		d := newDatabase(t, server)
		d.made("text CHECK (__kafka_value <> 'bad')")
		s := d.opened(userMade(Text))
		commits(t, loaded(t, s, orders0, values("a", "bad", "c")), "1: 23514 check_violation, constraint orders___kafka_value_check")
		d.ask("SELECT __kafka_value FROM orders ORDER BY __kafka_offset", "a", "c")
	})
	t.Run("for now", func(t *testing.T) {
		d := newDatabase(t, server)
		s := d.opened(nil)
		l := loaded(t, s, orders0, values("a", "b", "c"))
		d.exec("REVOKE ALL ON orders FROM PUBLIC")
		role := "r" + strings.ToLower(d.sql.Config().Database)
		d.exec("CREATE ROLE " + role + " LOGIN")
		d.exec("GRANT SELECT, INSERT, UPDATE ON _twg_coverage TO " + role)
		d.exec("GRANT SELECT ON orders TO " + role)
		t.Cleanup(func() {
			d.sql.Exec(context.Background(), "DROP OWNED BY "+role)
			d.sql.Exec(context.Background(), "DROP ROLE "+role)
		})
		as := d.sink(func(o *Options) { o.DSN = strings.Replace(o.DSN, "postgres@", role+"@", 1) })
		fails(t, as.Open(t.Context()), sinks.Blocked, "permission denied: INSERT on column __kafka_topic")
		as.setTable(s.table())
		l.sink = as
		_, err := l.Commit(t.Context(), noReport(t))
		fails(t, err, sinks.Blocked, "permission denied for table orders")
		d.ask("SELECT count(*) FROM _twg_coverage WHERE spans <> '{}'", "0")
		d.exec("GRANT INSERT ON orders TO " + role)
		commits(t, l)
		d.ask("SELECT __kafka_value FROM orders ORDER BY __kafka_offset", "a", "b", "c")
	})
	t.Run("for now: no such role", func(t *testing.T) {
		d := newDatabase(t, server)
		s := d.sink(func(o *Options) { o.DSN = strings.Replace(o.DSN, "postgres@", "nobody:s3cr3t-pw@", 1) })
		err := s.Open(t.Context())
		fails(t, err, sinks.Blocked, `role "nobody" does not exist`)
		if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("the error shows the password: %v", err)
		}
	})
}

func TestCaseD13TooLong(t *testing.T) {
	d := newDatabase(t, server)
	d.made("varchar(8)")
	s := d.opened(userMade(Text))
	r := commits(t, loaded(t, s, orders0, values("1", "12345678", "123456789", "4", "5")),
		"2: 22001 string_data_right_truncation, column __kafka_value")
	if r.Rows != 4 || r.Rejected != 1 {
		t.Errorf("the receipt is %+v", r)
	}
	d.ask("SELECT __kafka_value FROM orders ORDER BY __kafka_offset", "1", "12345678", "4", "5")
	d.ask("SELECT spans::text FROM _twg_coverage", `{"[0,5)"}`)
}

func TestCaseD14ZeroCharacters(t *testing.T) {
	const escaped, real = `{"name":"a\u0000b"}`, "{\"name\":\"a\x00b\"}"
	f := func(v ValueAs, column string, rejected ...string) {
		t.Helper()
		d := newDatabase(t, server)
		d.made(column)
		s := d.opened(userMade(v))
		commits(t, loaded(t, s, orders0, values(`"x"`, escaped, `"y"`, real, `"z"`)), rejected...)
		d.ask("SELECT count(*) FROM orders", fmt.Sprint(5-len(rejected)))
	}
	f(Bytea, "bytea")
	f(Text, "text", "3: 22021 character_not_in_repertoire, column __kafka_value")
	f(JSONB, "json", "3: 22021 character_not_in_repertoire, column __kafka_value")
	f(JSONB, "jsonb", "1: 22P05 untranslatable_character, column __kafka_value", "3: 22021 character_not_in_repertoire, column __kafka_value")
}

func TestCaseD15JSONNulls(t *testing.T) {
	d := newDatabase(t, server)
	s := d.opened(func(o *Options) { o.ValueAs = JSONB })
	rs := values(`"FIRST"`, `123`, `null`, ``)
	rs[3].Value = nil
	commits(t, loaded(t, s, orders0, rs))
	d.ask("SELECT coalesce(jsonb_typeof(__kafka_value), 'SQL NULL') FROM orders ORDER BY __kafka_offset", "string", "number", "null", "SQL NULL")
}

// The neighbours of rows that only the server can judge land, too, whichever way it refuses.
func TestBadRowsByTheServer(t *testing.T) {
	f := func(v ValueAs, column, extra string, bad map[int]string, want string) {
		t.Helper()
		d := newDatabase(t, server)
		d.made(column)
		if extra != "" {
			d.exec(extra)
		}
		s := d.opened(userMade(v))
		vs := make([]string, 500)
		var rejected []string
		for i := range vs {
			vs[i] = fmt.Sprintf(`{"n":%d}`, i)
			if b, ok := bad[i]; ok {
				vs[i] = b
				rejected = append(rejected, fmt.Sprintf("%d: %s", i, want))
			}
		}
		commits(t, loaded(t, s, orders0, values(vs...)), rejected...)
		d.ask("SELECT count(*) FROM orders", fmt.Sprint(len(vs)-len(bad)))
		// And by the way of a merge.
		d.exec("TRUNCATE orders")
		commits(t, loaded(t, s, orders0, values(vs...)), rejected...)
		d.ask("SELECT count(*) FROM orders", fmt.Sprint(len(vs)-len(bad)))
	}
	long := map[int]string{0: "123456789012345", 1: "123456789012345", 250: "123456789012345", 499: "123456789012345"}
	f(Text, "varchar(12)", "", long, "22001 string_data_right_truncation, column __kafka_value")
	f(Text, "text", "CREATE DOMAIN short AS text CHECK (length(value) < 13); ALTER TABLE orders ALTER __kafka_value TYPE short", long,
		"23514 check_violation, column __kafka_value, constraint short_check")
	f(JSONB, "jsonb", "", map[int]string{7: "1e400000"}, "22003 numeric_value_out_of_range, column __kafka_value")
	f(JSONB, "jsonb", "", map[int]string{7: strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)}, "54001 statement_too_complex, column __kafka_value")
	f(JSONB, "jsonb", "ALTER TABLE orders ADD n integer GENERATED ALWAYS AS ((__kafka_value->>'n')::integer) STORED", map[int]string{3: `{"n":"x"}`, 4: `{"n":"y"}`},
		"22P02 invalid_text_representation")
	f(Text, "text", "CREATE TABLE parent (v text PRIMARY KEY); INSERT INTO parent SELECT '{\"n\":' || i || '}' FROM generate_series(0, 500) i; "+
		"ALTER TABLE orders ADD CONSTRAINT fk FOREIGN KEY (__kafka_value) REFERENCES parent DEFERRABLE INITIALLY DEFERRED", long, "23503 foreign_key_violation, constraint fk")
}

// A user's own unique index refuses a row; an id that is there already is success, in the same load.
func TestUniqueViolations(t *testing.T) {
	d := newDatabase(t, server)
	d.made("text UNIQUE")
	s := d.opened(userMade(Text))
	commits(t, loaded(t, s, orders0, values("a", "b")))
	d.exec("DELETE FROM _twg_coverage")
	commits(t, loaded(t, s, orders0, values("a", "b", "c", "b", "d")), "3: 23505 unique_violation, constraint orders___kafka_value_key")
	d.ask("SELECT __kafka_offset, __kafka_value FROM orders ORDER BY 1", "0|a", "1|b", "2|c", "4|d")
}

func TestCaseD16TableDropped(t *testing.T) {
	for _, create := range []bool{false, true} {
		t.Run(fmt.Sprintf("create %v", create), func(t *testing.T) {
			d := newDatabase(t, server)
			d.made("text")
			s := d.opened(func(o *Options) { o.Create = create })
			commits(t, loaded(t, s, orders0, values("first")))
			vs := make([]string, 1000)
			rs := values(vs...)
			for i := range rs {
				rs[i].Offset += 1
			}
			l := loaded(t, s, orders0, rs)
			d.exec("DROP TABLE orders")
			for range 2 {
				_, err := l.Commit(t.Context(), noReport(t))
				fails(t, err, sinks.Blocked, "table missing: public.orders")
			}
			fails(t, s.Open(t.Context()), sinks.Blocked, "table missing: public.orders")
			d.ask("SELECT spans::text FROM _twg_coverage", `{"[0,1)"}`)
			d.made("text")
			commits(t, l)
			d.ask("SELECT count(*) FROM orders", "1000")
			d.ask("SELECT spans::text FROM _twg_coverage", `{"[0,1001)"}`)
		})
	}
}

func TestCaseD18D19D20D21Representation(t *testing.T) {
	d := newDatabase(t, server)
	s := d.opened(func(o *Options) { o.ValueAs = Bytea })
	rs := values("v", "", "v", "", "micro", "beyond", "append")
	rs[0].Headers = []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "c", Value: []byte{}}, {Key: "q\"\\\n", Value: []byte{0xff}}}
	rs[1].Value = nil
	rs[2].Key, rs[2].Timestamp, rs[2].TimestampType = nil, -1, record.TimestampNone
	rs[3].Key = []byte{}
	rs[4].Timestamp = 1_700_000_000_000_000
	rs[5].Timestamp = 1_700_000_000_000_000_000
	rs[6].TimestampType = record.TimestampLogAppend
	commits(t, loaded(t, s, orders0, rs), "5: 22008 datetime_field_overflow, column __kafka_timestamp")
	d.ask("SELECT __kafka_headers::text FROM orders WHERE __kafka_offset = 0", `[["a", "MQ=="], ["a", "Mg=="], ["b", null], ["c", ""], ["q\"\\\n", "/w=="]]`)
	d.ask(`SELECT __kafka_offset, __kafka_key IS NULL, octet_length(__kafka_key), __kafka_value IS NULL, octet_length(__kafka_value),
		coalesce(extract(year from __kafka_timestamp)::text, '-'), __kafka_timestamp_type FROM orders ORDER BY 1`,
		"0|false|1|false|1|2023|0", "1|false|1|true|<nil>|2023|0", "2|true|<nil>|false|1|-|-1", "3|false|0|false|0|2023|0", "4|false|1|false|5|55840|0", "6|false|1|false|6|2023|1")
}

func TestCaseD32NothingLeft(t *testing.T) {
	d := newDatabase(t, server)
	s := d.opened(func(o *Options) { o.ValueAs = JSONB })
	commits(t, loaded(t, s, orders0, values("{", "}")), "0: 22P02 invalid_text_representation, column __kafka_value", "1: 22P02 invalid_text_representation, column __kafka_value")
	set, err := s.Coverage(t.Context(), orders0)
	if err != nil || !set.Covers(checkpoint.Span{From: 0, To: 2}) {
		t.Errorf("coverage is %v, %v", set, err)
	}
	d.ask("SELECT count(*) FROM orders", "0")
}

// A column that was widened while the sink is open takes what did not fit before, by way of the temporary table too.
func TestAWidenedColumnTakesMore(t *testing.T) {
	d := newDatabase(t, server)
	d.made("varchar(8)")
	s := d.opened(userMade(Text))
	const refused = "1: 22001 string_data_right_truncation, column __kafka_value"
	commits(t, loaded(t, s, orders0, values("a", "ninechars", "c")), refused)
	commits(t, loaded(t, s, orders0, values("a", "ninechars", "c")), refused) // its span is covered: merged
	d.exec("ALTER TABLE orders ALTER __kafka_value TYPE varchar(9)")
	commits(t, loaded(t, s, orders0, values("a", "ninechars", "c")))
	d.ask("SELECT __kafka_value FROM orders ORDER BY __kafka_offset", "a", "ninechars", "c")
}

func TestOpenChecksTheTable(t *testing.T) {
	f := func(reason string, statements ...string) {
		t.Helper()
		d := newDatabase(t, server)
		for _, st := range statements {
			d.exec(st)
		}
		fails(t, d.sink(userMade(Bytea)).Open(t.Context()), sinks.Blocked, reason)
	}
	made := func(value string) string { return fmt.Sprintf(ordersAs, value) }
	f("table missing: public.orders")
	f("table public.orders: column __kafka_value is integer, wanted bytea", made("integer"))
	f("column missing: __kafka_key bytea", made("bytea"), "ALTER TABLE orders DROP __kafka_key")
	f("column __kafka_offset is integer, wanted bigint", made("bytea"), "ALTER TABLE orders ALTER __kafka_offset TYPE integer")
	f("column x is not null and has no default", made("bytea"), "ALTER TABLE orders ADD x integer NOT NULL")
	f("table public.orders is unlogged", made("bytea"), "ALTER TABLE orders SET UNLOGGED")
	f("public.orders is not a table", "CREATE VIEW orders AS SELECT 1")
	f("schema missing", "DROP SCHEMA public")
	f("says that this sink writes to public.elsewhere", made("bytea"), coverageDDL(name{"public", coverageTable}),
		"INSERT INTO _twg_coverage VALUES ('s', 'db', 't', gen_random_uuid(), 0, 0, 'elsewhere', '{}')")
}

func TestOpenTakesWhatFits(t *testing.T) {
	d := newDatabase(t, server)
	d.made("bytea")
	d.exec("ALTER TABLE orders ADD loaded timestamptz NOT NULL DEFAULT now(), ADD n bigint GENERATED ALWAYS AS IDENTITY, ALTER __kafka_partition TYPE bigint, " +
		"ALTER __kafka_timestamp_type TYPE integer, ALTER __kafka_producer_epoch TYPE bigint, ALTER __kafka_headers TYPE json, ALTER __kafka_topic TYPE varchar(20)")
	s := d.opened(userMade(Bytea))
	rs := values("a", "b")
	rs[1].ProducerEpoch = 7
	commits(t, loaded(t, s, record.Partition{Topic: "t", Number: 3}, rs))
	d.ask("SELECT __kafka_partition, __kafka_producer_epoch, n, loaded IS NOT NULL FROM orders ORDER BY __kafka_offset", "3|-1|1|true", "3|7|2|true")
}

// A table that is altered under a load blocks it or not, but never makes rejects of its rows.
func TestAlteredWhileLoaded(t *testing.T) {
	f := func(alter, reason, mend string) {
		t.Helper()
		d := newDatabase(t, server)
		d.made("text")
		s := d.opened(userMade(Text))
		l := loaded(t, s, orders0, values("a", "b", "c"))
		d.exec(alter)
		for i := 0; ; i++ {
			_, err := l.Commit(t.Context(), noReport(t))
			if err == nil && mend == "" {
				break
			}
			fails(t, err, sinks.Blocked, reason)
			if i == 1 {
				d.exec(mend)
				commits(t, l)
				break
			}
		}
		d.ask("SELECT count(*) FROM orders", "3")
	}
	f("ALTER TABLE orders ALTER __kafka_partition TYPE bigint", "another type", "")
	f("ALTER TABLE orders ALTER __kafka_offset TYPE integer", "", "ALTER TABLE orders ALTER __kafka_offset TYPE bigint")
	f("ALTER TABLE orders ADD x integer NOT NULL", "column x", "ALTER TABLE orders DROP x")
	f("ALTER TABLE orders DROP __kafka_key", "__kafka_key", "ALTER TABLE orders ADD __kafka_key bytea")
	f("DROP TABLE _twg_coverage", "table missing: _twg_coverage", "")
}

// Without a unique index on exactly the id a merge looks for it, and doubles nothing.
func TestPartitionedTableWithoutKey(t *testing.T) {
	d := newDatabase(t, server)
	d.exec(strings.Replace(fmt.Sprintf(ordersAs, "text"), "uuid PRIMARY KEY", "uuid", 1) + " PARTITION BY RANGE (__kafka_timestamp)")
	d.exec("CREATE TABLE orders_a PARTITION OF orders FOR VALUES FROM ('2023-01-01') TO ('2024-01-01')")
	s := d.opened(userMade(Text))
	rs := values("a", "b", "c")
	rs[1].Timestamp = 0 // no partition takes it
	for range 2 {
		commits(t, loaded(t, s, orders0, rs), "1: 23514 check_violation")
	}
	l := loaded(t, s, orders0, rs)
	if err := l.Add(batchOf(orders0, 0, 3, rs)); err != nil {
		t.Fatal(err)
	}
	commits(t, l, "1: 23514 check_violation", "1: 23514 check_violation")
	d.ask("SELECT __kafka_value FROM orders ORDER BY __kafka_offset", "a", "c")
}

// Without a key only coverage tells that rows are there already: where it is gone or kept under another name, nothing is written
// until a person has chosen.
func TestRowsThatNoCoverageKnows(t *testing.T) {
	f := func(name, lose, mend string, keyed bool, as string) {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t, server)
			d.exec(strings.Replace(fmt.Sprintf(ordersAs, "text"), "uuid PRIMARY KEY", map[bool]string{true: "uuid PRIMARY KEY", false: "uuid"}[keyed], 1))
			named := func(sink string) func(*Options) {
				return func(o *Options) { userMade(Text)(o); o.Sink = sink }
			}
			rs := values("a", "b", "c")
			first := d.opened(named("db"))
			commits(t, loaded(t, first, orders0, rs))
			d.opened(named("db")) // as after a restart
			d.exec(lose)
			d.exec("INSERT INTO _twg_coverage SELECT 's', $1, 'orders', $2, 7, 0, 'orders', '{}' ", as, topicID(orders0)) // says nothing
			s := d.sink(named(as))
			if !keyed {
				for _, part := range []string{"public.orders holds rows", "unique index on _twg_record_id", "empty the table", "former name"} {
					fails(t, s.Open(t.Context()), sinks.Blocked, part)
				}
				d.exec(mend)
			}
			if err := s.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			commits(t, loaded(t, s, orders0, rs))
			d.ask("SELECT __kafka_value FROM orders ORDER BY __kafka_offset", "a", "b", "c")
			d.ask("SELECT spans::text FROM _twg_coverage WHERE sink = '"+as+"' AND partition = 0", `{"[0,3)"}`)
		})
	}
	const index, lost = "CREATE UNIQUE INDEX ON orders (_twg_record_id)", "DELETE FROM _twg_coverage"
	f("renamed, then indexed", "SELECT", index, false, "lake")
	f("renamed, then emptied", "SELECT", "TRUNCATE orders", false, "lake")
	f("renamed, then named as before", "SELECT", "DELETE FROM _twg_coverage WHERE sink = 'lake'; UPDATE _twg_coverage SET sink = 'lake'", false, "lake")
	f("coverage deleted", lost, index, false, "db")
	f("keyed and renamed", "SELECT", "", true, "lake")
	f("keyed, coverage deleted", lost, "", true, "db")
}

// Topics that were deleted and created again have one name and the same offsets.
func TestCountTellsTwinsApart(t *testing.T) {
	again := orders0
	again.TopicID[0]++
	spans := []checkpoint.Span{{From: 0, To: 3}, {From: 1, To: 9}}
	f := func(v ValueAs, want map[record.Partition][]int64) {
		t.Helper()
		d := newDatabase(t, server)
		s := d.opened(func(o *Options) { o.ValueAs = v })
		commits(t, loaded(t, s, orders0, values(`"a"`, `"b"`, `"c"`)))
		commits(t, loaded(t, s, again, values(`"a"`, `"b"`)))
		for p, w := range want {
			got, err := s.Count(t.Context(), p, spans)
			if w == nil {
				fails(t, err, sinks.Blocked, "jsonb does not keep the bytes")
			} else if err != nil || !slices.Equal(got, w) {
				t.Errorf("%v: counted %v, %v, want %v", v, got, err, w)
			}
		}
	}
	f(Bytea, map[record.Partition][]int64{orders0: {3, 2}, again: {2, 1}})
	f(Text, map[record.Partition][]int64{orders0: {3, 2}, again: {2, 1}})
	f(JSONB, map[record.Partition][]int64{orders0: nil, again: nil})
}

// jsonFault says exactly what the server says.
func TestJSONAsTheServerReadsIt(t *testing.T) {
	d := newDatabase(t, server)
	for _, doc := range append(jsonDocuments, strings.Repeat("[", 1000)+strings.Repeat("]", 1000)) {
		want := ""
		if _, err := d.sql.Exec(t.Context(), "SELECT $1::jsonb", json.RawMessage(doc)); err != nil {
			want = sqlState(err)
		}
		if got := jsonFault([]byte(doc)); got != want {
			t.Errorf("%.60q: we say %q, the server %q", doc, got, want)
		}
	}
}

func sqlState(err error) string {
	if s, ok := err.(interface{ SQLState() string }); ok {
		return s.SQLState()
	}
	return err.Error()
}

// The SQL that docs/formats/postgres.md shows to an auditor finds what is right and what is not.
func TestDocumentedChecks(t *testing.T) {
	_, file, _, _ := runtime.Caller(0)
	page, err := os.ReadFile(filepath.Join(filepath.Dir(file), "../../docs/formats/postgres.md"))
	if err != nil {
		t.Fatal(err)
	}
	function, check := block(t, page, "create function"), block(t, page, "-- rows that coverage does not account for")
	ddl := block(t, page, "CREATE TABLE orders")
	d := newDatabase(t, server)
	d.exec(ddl)
	d.opened(userMade(JSONB))
	d.exec("DROP TABLE orders, _twg_coverage")
	s := d.opened(func(o *Options) { o.ValueAs = Bytea })
	rs := values("a", "", strings.Repeat("long", 3000), "d")
	rs[1].Key, rs[1].Value = []byte{}, nil
	rs[2].Key, rs[2].Timestamp, rs[2].TimestampType = nil, -1, record.TimestampNone
	rs[3].Timestamp = 1_700_000_000_000_123
	p := orders0
	p.Topic, p.Generation, p.Number = "ключ", 2, 5
	commits(t, loaded(t, s, p, rs))
	d.exec(function)
	d.ask(fmt.Sprintf(`SELECT count(*) FROM orders WHERE _twg_record_id = twg_record_id('c', __kafka_topic, '%s', __kafka_partition, 2,
		__kafka_offset, __kafka_timestamp, __kafka_key, __kafka_value)`, topicID(p)), "4")
	d.ask(check)
	d.exec("UPDATE orders SET __kafka_offset = 99 WHERE __kafka_offset = 3")
	d.ask(check, "ключ|5|99")
}

// block is the SQL of the page that begins with start.
func block(t *testing.T, page []byte, start string) string {
	t.Helper()
	_, after, ok := strings.Cut(string(page), "```sql\n"+start)
	body, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatalf("docs/formats/postgres.md has no block that begins with %q", start)
	}
	return start + body
}
