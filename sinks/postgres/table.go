package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stream-arrow/twgd/sinks"
)

// table is what Open found out about the target.
type table struct {
	name     name // with its schema
	coverage name // the coverage table beside it
	layout   layout
	types    [columnCount]string // the columns' types as SQL
	keyed    bool                // a unique index on exactly _twg_record_id exists, which ON CONFLICT needs
}

const coverageTable = "_twg_coverage"

// openLock is the advisory lock under which tables are looked for and made: two nodes start at the same time.
const openLock = "8391027745602113771"

// oldest is the first server version with all that is used here (generated columns in the catalogue).
const oldest = 120000

// Open implements sinks.Sink. It makes what is missing and may be made: the coverage table always, the target only with Create and
// only where no coverage says that it held rows before. A table that was there and is gone is a person's decision: to make it
// anew silently would hide that rows are lost.
func (s *Sink) Open(ctx context.Context) error {
	var t *table
	err := s.session(ctx, "open "+s.shownName(), func(ss *session) error {
		found, err := s.open(ctx, ss)
		if err != nil {
			return err
		}
		t = found
		return ss.exec(ctx, "COMMIT")
	})
	if err != nil {
		return err
	}
	s.setTable(t)
	if !t.keyed {
		s.opts.Log.Warn("no unique index on exactly _twg_record_id: a merge looks for ids by reading the table", "table", t.name.String())
	}
	return nil
}

func (s *Sink) open(ctx context.Context, ss *session) (*table, error) {
	if _, err := ss.batch(ctx, append(begin(ss.timeout), sql("SELECT pg_advisory_xact_lock($1)", openLock))...); err != nil {
		return nil, err
	}
	n, err := s.locate(ctx, ss)
	if err != nil {
		return nil, err
	}
	t := &table{name: n, coverage: name{n.schema, coverageTable}}
	if err := s.ensureCoverage(ctx, ss, t); err != nil {
		return nil, err
	}
	if err := s.ensureTable(ctx, ss, t); err != nil {
		return nil, err
	}
	if err := s.inspect(ctx, ss, t); err != nil {
		return nil, err
	}
	return t, s.knowRows(ctx, ss, t)
}

// locate asks for the version of the server and completes the name.
func (s *Sink) locate(ctx context.Context, ss *session) (name, error) {
	rows, err := ss.query(ctx, "SELECT current_setting('server_version_num'), current_schema()")
	if err != nil {
		return name{}, err
	}
	if v, _ := strconv.Atoi(string(rows[0][0])); v < oldest {
		return name{}, s.blocks("the server's version is %d, wanted PostgreSQL 12 or newer", v)
	}
	n := s.name
	if n.schema == "" {
		if rows[0][1] == nil {
			return name{}, s.blocks("schema missing: none of the search_path exists")
		}
		n.schema = string(rows[0][1])
	}
	return n, nil
}

func (s *Sink) blocks(format string, args ...any) error {
	return &sinks.Error{Kind: sinks.Blocked, Reason: fmt.Sprintf(format, args...)}
}

const existsSQL = `SELECT c.oid, c.relkind, c.relpersistence FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2`

// ensureCoverage makes the coverage table, and refuses one in which this name speaks of another target.
func (s *Sink) ensureCoverage(ctx context.Context, ss *session, t *table) error {
	rows, err := ss.query(ctx, existsSQL, t.coverage.schema, t.coverage.table)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return ss.exec(ctx, coverageDDL(t.coverage))
	}
	if string(rows[0][2]) != "p" {
		return s.blocks("table %s is unlogged or temporary: a crash of the server would empty it", t.coverage)
	}
	other, err := ss.query(ctx, "SELECT table_name FROM "+t.coverage.sql()+" WHERE stream = $1 AND sink = $2 AND table_name <> $3 LIMIT 1",
		s.opts.Stream, s.opts.Sink, t.name.table)
	if err != nil || len(other) == 0 {
		return err
	}
	return s.blocks("%s says that this sink writes to %s.%s: give the sink of another table another name", t.coverage, t.name.schema, other[0][0])
}

// ensureTable makes the target where that is allowed.
func (s *Sink) ensureTable(ctx context.Context, ss *session, t *table) error {
	rows, err := ss.query(ctx, existsSQL, t.name.schema, t.name.table)
	if err != nil || len(rows) > 0 {
		return err
	}
	held, err := ss.query(ctx, "SELECT 1 FROM "+t.coverage.sql()+" WHERE stream = $1 AND sink = $2 AND spans <> '{}' LIMIT 1", s.opts.Stream, s.opts.Sink)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		return s.blocks("table missing: %s (it held rows: create it again, or delete this sink's rows of %s to have it filled anew)", t.name, coverageTable)
	}
	if !s.opts.Create {
		missing := &MissingTable{t.name.String()}
		return &sinks.Error{Kind: sinks.Blocked, Reason: missing.Error(), Err: missing}
	}
	return ss.exec(ctx, tableDDL(t.name, s.opts.ValueAs))
}

// MissingTable says that there is no table, and that the sink never had one: whoever may create it has lost nothing.
type MissingTable struct{ Name string }

func (m *MissingTable) Error() string { return "table missing: " + m.Name }

// tableDDL makes the target.
func tableDDL(n name, v ValueAs) string {
	var lines []string
	for i, c := range columnsFor(v) {
		line := "  " + c.name + " " + c.sqlType
		switch {
		case i == colID:
			line += " PRIMARY KEY"
		case c.notNull:
			line += " NOT NULL"
		}
		lines = append(lines, line)
	}
	return "CREATE TABLE " + n.sql() + " (\n" + strings.Join(lines, ",\n") + "\n);"
}

func coverageDDL(n name) string {
	return "CREATE TABLE " + n.sql() + ` (
  stream text NOT NULL,
  sink text NOT NULL,
  topic text NOT NULL,
  topic_id uuid NOT NULL,
  partition integer NOT NULL,
  generation integer NOT NULL,
  table_name text NOT NULL,
  spans int8range[] NOT NULL,
  PRIMARY KEY (stream, sink, topic, topic_id, partition, generation)
);`
}

const columnsSQL = `SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), coalesce(b.typreceive, t.typreceive)::text,
  a.attnotnull, a.atthasdef OR a.attidentity <> '', a.attgenerated <> '',
  has_column_privilege(a.attrelid, a.attnum, 'INSERT'), has_column_privilege(a.attrelid, a.attnum, 'SELECT')
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid LEFT JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`

const keyedSQL = `SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indnkeyatts = 1
  AND i.indpred IS NULL AND i.indexprs IS NULL AND a.attname = '_twg_record_id'`

// inspect checks that our rows fit into the table.
func (s *Sink) inspect(ctx context.Context, ss *session, t *table) error {
	rows, err := ss.query(ctx, existsSQL, t.name.schema, t.name.table)
	if err != nil {
		return err
	}
	oid, kind, persistence := string(rows[0][0]), string(rows[0][1]), string(rows[0][2])
	if kind != "r" && kind != "p" {
		return s.blocks("%s is not a table", t.name)
	}
	if persistence != "p" {
		return s.blocks("table %s is unlogged or temporary: a crash of the server would empty it", t.name)
	}
	columns, err := ss.query(ctx, columnsSQL, oid)
	if err != nil {
		return err
	}
	if err := s.fit(t, columns); err != nil {
		return err
	}
	keys, err := ss.query(ctx, keyedSQL, oid)
	t.keyed = len(keys) > 0
	return err
}

// knowRows refuses a table without a key whose rows no coverage of this sink speaks of: its name or its coverage may be new while
// the rows are its own, and since only coverage makes a load look for ids there, every row would come a second time. One statement
// sees both tables at one moment: another node of this sink may commit its first rows meanwhile.
func (s *Sink) knowRows(ctx context.Context, ss *session, t *table) error {
	if t.keyed {
		return nil
	}
	rows, err := ss.query(ctx, "SELECT NOT EXISTS (SELECT FROM "+t.coverage.sql()+" WHERE stream = $1 AND sink = $2 AND spans <> '{}') AND EXISTS (SELECT FROM "+
		t.name.sql()+")", s.opts.Stream, s.opts.Sink)
	if err != nil || string(rows[0][0]) != "t" {
		return err
	}
	return s.blocks("table %s holds rows, %s says nothing of them for stream %s and sink %s, and without a unique index on _twg_record_id they could be doubled: "+
		"add that index, or empty the table, or give a renamed sink its former name back", t.name, coverageTable, s.opts.Stream, s.opts.Sink)
}

func (s *Sink) fit(t *table, rows [][][]byte) error {
	columns := map[string]found{}
	for _, r := range rows {
		yes := func(i int) bool { return string(r[i]) == "t" }
		columns[string(r[0])] = found{name: string(r[0]), sqlType: string(r[1]), receive: receiver(string(r[2])),
			notNull: yes(3), filled: yes(4), generated: yes(5), insert: yes(6), selects: yes(7)}
	}
	for i, n := range names {
		t.types[i] = columns[n].sqlType
	}
	l, problems := fit(s.opts.ValueAs, columns)
	if len(problems) > 0 {
		slices.Sort(problems)
		return s.blocks("table %s: %s", t.name, strings.Join(problems, "; "))
	}
	t.layout = l
	return nil
}

// receiver is a function's name without its schema: an extension's type may live anywhere.
func receiver(f string) string { return f[strings.LastIndexByte(f, '.')+1:] }
