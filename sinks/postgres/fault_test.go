package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stream-arrow/twgd/sinks"
)

func testSink(t *testing.T) *Sink {
	s, err := New(Options{DSN: "postgres://joe:hunter2@db.example:5433/shop?sslmode=disable", Table: "public.orders", Stream: "s", Sink: "db"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFailureKinds(t *testing.T) {
	s := testSink(t)
	f := func(err error, kind sinks.Kind, reason string) {
		t.Helper()
		var e *sinks.Error
		if got := s.failure("commit", err); !errors.As(got, &e) || e.Kind != kind || !strings.Contains(e.Reason, reason) {
			t.Errorf("%v becomes %v %q, want %v %q", err, sinks.KindOf(got), got, kind, reason)
		} else if strings.Contains(got.Error(), "hunter2") || strings.Contains(got.Error(), "user-value") {
			t.Errorf("%q shows a secret", got)
		}
	}
	pg := func(code, message string) error {
		return fmt.Errorf("x: %w", &pgconn.PgError{Code: code, Message: message})
	}
	f(pg("42P01", `relation "public.orders" does not exist`), sinks.Blocked, "table missing: public.orders")
	f(pg("42P01", `Relation »public._twg_coverage« existiert nicht`), sinks.Blocked, "table missing: _twg_coverage")
	f(pg("42501", "permission denied for table orders"), sinks.Blocked, "permission denied for table orders")
	f(pg("42703", "column"), sinks.Blocked, "42703")
	f(pg("28P01", "password hunter2 failed"), sinks.Blocked, "28P01")
	f(pg("28000", "no pg_hba.conf entry"), sinks.Blocked, "no pg_hba.conf entry")
	f(pg("3D000", `database "shop" does not exist`), sinks.Blocked, "database missing")
	f(pg("3F000", `schema "x" does not exist`), sinks.Blocked, "schema missing")
	f(pg("0A000", "COPY FROM not supported with row-level security"), sinks.Blocked, "row-level security")
	f(pg("22P03", "incorrect binary data format"), sinks.Blocked, "another type")
	f(&pgconn.PgError{Code: "23502", ColumnName: "x"}, sinks.Blocked, "column x of public.orders")
	for _, code := range []string{"08006", "08P01", "53100", "53200", "53300", "57014", "57P01", "57P03", "55P03", "55000", "40001", "40P01", "25006", "58030", "XX000", "P0001"} {
		f(pg(code, "message"), sinks.Retry, code)
	}
	f(pg("P0001", "refused: user-value"), sinks.Retry, "SQLSTATE P0001")
	f(pg("22003", "user-value out of range"), sinks.Retry, "22003 numeric_value_out_of_range")
	f(io.ErrUnexpectedEOF, sinks.Retry, "the connection to db.example:5433 failed")
	f(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errors.New("connection refused"))}, sinks.Retry, "cannot connect to db.example:5433: connect: connection refused")
	f(context.DeadlineExceeded, sinks.Retry, "no answer in time")
	f(context.Canceled, sinks.Retry, "canceled")
	f(&sinks.Error{Kind: sinks.Blocked, Reason: "known"}, sinks.Blocked, "known")
}

func TestRowFault(t *testing.T) {
	f := func(e pgconn.PgError, want string) {
		t.Helper()
		got, isRow := rowFault(&e)
		if isRow != (want != "") || isRow && got.String() != want {
			t.Errorf("%+v: %v %q, want %q", e, isRow, got, want)
		}
	}
	f(pgconn.PgError{Code: "22001", Where: "COPY orders, line 3, column __kafka_value"}, "22001 string_data_right_truncation, column __kafka_value")
	f(pgconn.PgError{Code: "22001", Where: "COPY a, line 9, column b, line 3, column __kafka_value: \"secret\""}, "22001 string_data_right_truncation, column __kafka_value")
	f(pgconn.PgError{Code: "23505", ConstraintName: "c"}, "23505 unique_violation, constraint c")
	f(pgconn.PgError{Code: "23502", ColumnName: "__kafka_value"}, "23502 not_null_violation, column __kafka_value")
	f(pgconn.PgError{Code: "2201B"}, "2201B")
	f(pgconn.PgError{Code: "54000"}, "54000 program_limit_exceeded")
	f(pgconn.PgError{Code: "23502", ColumnName: "other"}, "")
	f(pgconn.PgError{Code: "22P03"}, "")
	f(pgconn.PgError{Code: "42804"}, "")
	f(pgconn.PgError{Code: "53100"}, "")
	f(pgconn.PgError{Code: ""}, "")
}

func TestFaultLine(t *testing.T) {
	f := func(where string, want int) {
		t.Helper()
		if got := faultLine(&pgconn.PgError{Where: where}); got != want {
			t.Errorf("%q: %d, want %d", where, got, want)
		}
	}
	f("COPY orders, line 1", 0)
	f("COPY orders, line 31, column __kafka_value", 30)
	f("COPY we, line 5, ird, line 7", 6)
	f("PL/pgSQL function f() line 3 at RAISE\nCOPY orders, line 8", 7)
	f("", -1)
	f("SQL statement \"SELECT 1\"", -1)
	f("COPY orders, Zeile 3", -1)
	f("COPY orders, line 99999999999999999999", -1)
}

func TestParseName(t *testing.T) {
	f := func(in, sql, fault string) {
		t.Helper()
		n, err := parseName(in)
		if fault != "" {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("%q: %v, want %q", in, err, fault)
			}
		} else if err != nil || n.sql() != sql {
			t.Errorf("%q: %s, %v, want %s", in, n.sql(), err, sql)
		}
	}
	f("orders", `"orders"`, "")
	f("Sales.Orders", `"Sales"."Orders"`, "")
	f(`"a.b".c`, `"a.b"."c"`, "")
	f(`"a""b"`, `"a""b"`, "")
	f(`a"b`, `"a""b"`, "")
	f(`x."; DROP TABLE y"`, `"x"."; DROP TABLE y"`, "")
	f("", "", "empty")
	f("a.", "", "empty")
	f(".a", "", "empty")
	f("a.b.c", "", "more than")
	f(`"a`, "", "not closed")
	f(`"a"b`, "", "followed by")
	f("a\x00", "", "zero byte")
	f(strings.Repeat("x", 64), "", "longer than")
	f(strings.Repeat("x", 63), `"`+strings.Repeat("x", 63)+`"`, "")
}

func TestNewRefuses(t *testing.T) {
	f := func(o Options, want string) {
		t.Helper()
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	good := Options{DSN: "host=localhost", Table: "t", Stream: "s", Sink: "db"}
	bad := good
	bad.Stream = ""
	f(bad, "stream and sink")
	bad = good
	bad.ValueAs = "xml"
	f(bad, "value_as")
	bad = good
	bad.Table = "a.b.c"
	f(bad, "table")
	bad = good
	bad.DSN = "postgres://joe:hunter2@host:port/x"
	f(bad, "dsn")
	if got := testSink(t).Traits(); got.Target != "postgres://db.example:5433/shop/public.orders" || got.Cuts {
		t.Errorf("the traits are %+v", got)
	}
}

func TestSpans(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		set, err := parseSpans(text)
		if err != nil || set.String() != want {
			t.Errorf("%s is %v, %v, want %s", text, set, err, want)
		} else if back, err := parseSpans(formatSpans(set)); err != nil || back.String() != want {
			t.Errorf("%s comes back as %v, %v", formatSpans(set), back, err)
		}
	}
	f("{}", "")
	f(`{"[0,100)"}`, "[0, 100)")
	f(`{"[0,100)","[200,9223372036854775807)"}`, "[0, 100) [200, 9223372036854775807)")
	f(`{"[5,7)","[0,5)"}`, "[0, 7)")
	for _, bad := range []string{`{"(,5)"}`, `{empty}`, `{NULL}`} {
		if set, err := parseSpans(bad); err == nil {
			t.Errorf("%s is %v, want an error", bad, set)
		}
	}
}
