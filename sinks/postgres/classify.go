package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stream-arrow/twgd/sinks"
)

// failure makes err the *sinks.Error that it stands for. What is one already stays as it is.
//
// Blocked is what a person must mend: login, privileges, a database, schema, table or column that is not there or has another
// type. All else is worth another try: the server is away, restarting, busy, full, or it cancelled us. The outage of a server is
// never the fault of a row.
func (s *Sink) failure(doing string, err error) error {
	var known *sinks.Error
	var server *pgconn.PgError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &server):
		return s.serverFailure(doing, server)
	case errors.As(err, &cert):
		return blocked(doing, "the server's certificate cannot be verified: "+cert.Error(), cert)
	}
	return &sinks.Error{Kind: sinks.Retry, Reason: "postgres: " + doing + ": " + s.cause(err), Err: errors.New(s.hide(err.Error()))}
}

func blocked(doing, reason string, err error) *sinks.Error {
	return &sinks.Error{Kind: sinks.Blocked, Reason: reason, Err: fmt.Errorf("postgres: %s: %w", doing, err)}
}

func (s *Sink) serverFailure(doing string, e *pgconn.PgError) error {
	err := errors.New(s.hide(message(e)))
	switch class := class(e); {
	case class == "42" || class == "28" || class == "3D" || class == "3F" || class == "0A":
		return blocked(doing, s.hide(reason(e, s.shownName())), err)
	case e.Code == "22P03":
		return blocked(doing, "a column of "+s.shownName()+" has another type than when it was checked", err)
	case e.Code == "23502":
		return blocked(doing, "column "+e.ColumnName+" of "+s.shownName()+" is not null and is not filled by twgd", err)
	}
	return &sinks.Error{Kind: sinks.Retry, Reason: "postgres: " + doing + ": " + s.hide(message(e)), Err: err}
}

// reason is what a person must know to mend e. It is told in our words where we are sure of them: the server's language varies.
func reason(e *pgconn.PgError, table string) string {
	switch {
	case e.Code == "42P01" && e.Where == "" && e.InternalQuery == "":
		if strings.Contains(e.Message, coverageTable) {
			table = coverageTable
		}
		return "table missing: " + table
	case e.Code == "3F000":
		return "schema missing: " + e.Message
	case e.Code == "3D000":
		return "database missing: " + e.Message
	}
	return message(e)
}

// message is SQLSTATE and text of a server's error. Of the classes whose text may quote a value, or is a user's own, only the
// SQLSTATE is shown.
func message(e *pgconn.PgError) string {
	switch class(e) {
	case "22", "23", "P0", "38", "39", "44":
		return strings.TrimSuffix("SQLSTATE "+e.Code+" "+conditions[e.Code], " ")
	}
	return e.Message + " (SQLSTATE " + e.Code + ")"
}

// cause is one line about an error that is not the server's.
func (s *Sink) cause(err error) string {
	var op *net.OpError
	at := address(s.pool.config)
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err):
		return "no answer in time from " + at
	case errors.As(err, &op) && op.Op == "dial":
		return "cannot connect to " + at + ": " + op.Err.Error()
	}
	return "the connection to " + at + " failed: " + s.hide(err.Error())
}

// shownName is the table's name with its schema, where that is known.
func (s *Sink) shownName() string {
	if t := s.table(); t != nil {
		return t.name.String()
	}
	return s.name.String()
}

// hide takes the password out of a text, whoever put it there.
func (s *Sink) hide(text string) string {
	if p := s.pool.config.Password; p != "" {
		text = strings.ReplaceAll(text, p, "********")
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// class is the first two characters of the SQLSTATE.
func class(e *pgconn.PgError) string { return e.Code[:min(2, len(e.Code))] }
