package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stream-arrow/twgd/sinks"
)

// begin opens a transaction that relies on no setting of the user or the database. Its bounds make the server give up the locks
// of a client that went away in the middle; deferred constraints are checked where a row can still be found; and a commit that
// is answered is on disk, since the position of others may follow it.
func begin(timeout time.Duration) []statement {
	return []statement{
		sql("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
		sql(`SELECT set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true),
  set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)`,
			strconv.FormatInt(timeout.Milliseconds(), 10)),
		sql("SET CONSTRAINTS ALL IMMEDIATE"),
	}
}

// Commit implements sinks.Load: one transaction holds rows and coverage.
//
// It locks the coverage rows of its partitions, so that two writers of one partition follow each other, and copies the rows
// straight into the table where none of its spans is covered. Otherwise, and where the table says that an id is there already, it
// copies them into a temporary table and takes over those whose ids are new. Rows that the server refuses are found by hunt. When
// the answer to COMMIT is lost the outcome is not known and the error is Retry: the next Commit sees in the coverage what
// happened, and merging what is there already changes nothing.
func (l *load) Commit(ctx context.Context, report sinks.Report) (sinks.Receipt, error) {
	receipt, err := l.attempt(ctx, report)
	if errors.Is(err, errAltered) {
		return l.attempt(ctx, report)
	}
	return receipt, err
}

// attempt is one transaction.
func (l *load) attempt(ctx context.Context, report sinks.Report) (sinks.Receipt, error) {
	s := l.sink
	if s.isStale() {
		if err := s.Open(ctx); err != nil {
			return sinks.Receipt{}, err
		}
	}
	t := s.table()
	l.refit(t.layout)
	err := s.session(ctx, "commit to "+t.name.String(), func(ss *session) error {
		w := &writer{load: l, session: ss, table: t, live: l.live()}
		return w.commit(ctx, report)
	})
	if err != nil {
		if sinks.KindOf(err) == sinks.Blocked {
			s.setStale()
		}
		return sinks.Receipt{}, err
	}
	return sinks.Receipt{Spans: l.Spans(), Rows: int64(len(l.rows) - len(l.refused)), Bytes: l.sent, Rejected: int64(len(l.refused))}, nil
}

// live lists the rows that are not known to be refused.
func (l *load) live() []int {
	live := make([]int, 0, len(l.rows)-len(l.refused))
	for i := range l.rows {
		if _, bad := l.refused[i]; !bad {
			live = append(live, i)
		}
	}
	return live
}

// writer is one attempt to commit a load.
type writer struct {
	*session
	load  *load
	table *table
	live  []int  // the rows to write
	merge bool   // by way of the temporary table
	next  string // statements to run before the next one: they end the savepoint of the last try
}

func (w *writer) commit(ctx context.Context, report sinks.Report) error {
	cover, overlaps, err := w.lockCoverage(ctx)
	if err != nil {
		return err
	}
	if err := w.writeRows(ctx, overlaps || w.load.twice); err != nil {
		return err
	}
	if err := w.doubt(ctx); err != nil {
		return err
	}
	if err := w.load.report(ctx, report); err != nil {
		return err
	}
	return w.finish(ctx, cover)
}

// errAltered says that a person has altered a column since the table was looked at.
var errAltered = errors.New("a column has another type than when the table was opened")

const typesSQL = `SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped`

// doubt looks at the columns again where the server refused rows by way of the temporary table: that has the types that Open found, and a
// person may have widened a column since, so that its rows fit. Then the load is as if nothing had been refused, and the table is
// looked at by the next attempt.
func (w *writer) doubt(ctx context.Context) error {
	if !w.merge || !slices.ContainsFunc(w.live, w.load.isRefused) {
		return nil
	}
	rows, err := w.query(ctx, typesSQL, w.table.name.sql())
	if err != nil {
		return err
	}
	now := map[string]string{}
	for _, r := range rows {
		now[string(r[0])] = string(r[1])
	}
	for i, n := range names {
		if now[n] != w.table.types[i] {
			w.load.relent(w.live)
			w.load.sink.setStale()
			return &sinks.Error{Kind: sinks.Retry, Reason: "postgres: column " + n + " of " + w.table.name.String() + " was altered", Err: errAltered}
		}
	}
	return nil
}

// report hands over the refused rows that the trail does not have yet. Once it has them they stay refused, whatever a later
// attempt would say.
func (l *load) report(ctx context.Context, report sinks.Report) error {
	var rejects []sinks.Reject
	var rows []int
	for i := range l.refused {
		if !l.reported[i] {
			rows = append(rows, i)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	slices.Sort(rows)
	for _, i := range rows {
		rejects = append(rejects, l.reject(i, l.refused[i]))
	}
	if err := report(ctx, rejects); err != nil {
		return &sinks.Error{Kind: sinks.Retry, Reason: "postgres: report rejects", Err: err}
	}
	for _, i := range rows {
		l.reported[i] = true
	}
	return nil
}

// finish writes coverage and commits. A server that was told to roll back says so in the tag of COMMIT.
func (w *writer) finish(ctx context.Context, cover statement) error {
	results, err := w.batch(ctx, cover, sql("COMMIT"))
	if err != nil {
		return err
	}
	if tag := results[1].CommandTag.String(); tag != "COMMIT" {
		return fmt.Errorf("the server answered %s to COMMIT", tag)
	}
	return nil
}

const (
	savepoint = "SAVEPOINT _twg; "
	keep      = "RELEASE SAVEPOINT _twg; SAVEPOINT _twg; "
	undo      = "ROLLBACK TO SAVEPOINT _twg; "
	staging   = "pg_temp._twg_load"
)

// writeRows writes all rows but those at fault, which it notes in the load.
func (w *writer) writeRows(ctx context.Context, merge bool) error {
	if len(w.live) == 0 {
		return nil
	}
	w.next = savepoint
	if merge {
		w.startMerge()
	}
	h := newHunt(len(w.live))
	for s, more := h.next(); more; s, more = h.next() {
		err := w.put(ctx, w.live[s.from:s.to])
		if err == nil {
			h.good(s)
			w.next = keep
			continue
		}
		if err := w.judge(h, s, err); err != nil {
			return err
		}
	}
	return w.settle(ctx)
}

// startMerge makes the temporary table before the next try. It has the columns of the target without its constraints.
func (w *writer) startMerge() {
	w.merge = true
	w.next += "CREATE TEMPORARY TABLE " + staging + " ("
	for i, n := range names {
		if i > 0 {
			w.next += ", "
		}
		w.next += quote(n) + " " + w.table.types[i]
	}
	w.next += ") ON COMMIT DROP; " + keep
}

// judge decides what an error says of the rows of s. What is not a row's fault ends the attempt.
func (w *writer) judge(h *hunt, s stretch, err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) || w.conn.IsClosed() {
		return err
	}
	f, isRow := rowFault(e)
	switch {
	case !isRow:
		return w.tableFault(e)
	case f.code == "23505" && !w.merge:
		w.next = undo
		w.startMerge()
		h.again(s)
	default:
		w.next = undo
		if h.failed(s, faultLine(e)) {
			w.load.refuse(w.live[s.from], f)
		}
	}
	return nil
}

// tableFault is an error that concerns the table and not a row. Unless the server is only busy, the table may have been altered,
// and the next Commit looks at it again. Integers of another width show as a broken protocol.
func (w *writer) tableFault(e *pgconn.PgError) error {
	switch class(e) {
	case "40", "53", "55", "57":
		return e
	}
	w.load.sink.setStale()
	if e.Code == "08P01" {
		e.Code = "22P03"
	}
	return e
}

// settle undoes the last try where it failed; else COMMIT ends the savepoint.
func (w *writer) settle(ctx context.Context) error {
	if !strings.HasPrefix(w.next, undo) {
		return nil
	}
	return w.exec(ctx, w.next)
}

// put tries to write rows, all or none.
func (w *writer) put(ctx context.Context, rows []int) error {
	into := w.table.name.sql()
	if w.merge {
		into = staging
	}
	script := w.next + "COPY " + into + " (" + columnList() + ") FROM STDIN (FORMAT binary)"
	w.next = ""
	n, err := w.copyIn(ctx, script, w.load.reader(rows), w.load.sent)
	if err != nil {
		return err
	}
	if w.merge {
		return w.exec(ctx, w.mergeSQL())
	}
	if n < int64(len(rows)) {
		w.load.sink.opts.Log.Warn("a trigger of the table keeps rows out", "table", w.table.name.String(), "rows", int64(len(rows))-n)
	}
	return nil
}

// mergeSQL takes over what is new of the temporary table, and empties it for the next try.
func (w *writer) mergeSQL() string {
	columns := columnList()
	insert := "INSERT INTO " + w.table.name.sql() + " (" + columns + ") SELECT "
	if w.table.keyed {
		insert += columns + " FROM " + staging + " ON CONFLICT (_twg_record_id) DO NOTHING"
	} else {
		insert += "DISTINCT ON (_twg_record_id) " + columns + " FROM " + staging + " l WHERE NOT EXISTS (SELECT FROM " +
			w.table.name.sql() + " t WHERE t._twg_record_id = l._twg_record_id)"
	}
	return insert + "; TRUNCATE " + staging
}

// reader gives rows as a binary COPY wants them.
func (l *load) reader(rows []int) io.Reader { return &rowReader{load: l, rows: rows, part: copyHeader} }

type rowReader struct {
	load *load
	rows []int
	part []byte // of what is read now, what is left
	done bool   // the trailer is part, or was
}

// Read fills b with as many rows as fit: each call becomes one message.
func (r *rowReader) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if len(r.part) == 0 && !r.advance() {
			break
		}
		k := copy(b[n:], r.part)
		r.part = r.part[k:]
		n += k
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *rowReader) advance() bool {
	switch {
	case len(r.rows) > 0:
		r.part = r.load.row(r.rows[0])
		r.rows = r.rows[1:]
	case !r.done:
		r.part, r.done = bytes.Clone(copyTrailer), true
	default:
		return false
	}
	return true
}
