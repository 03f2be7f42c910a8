// Package postgres is the sink that writes rows into one table of a PostgreSQL database (12 or newer).
//
// PostgreSQL is transactional, so coverage lives in the database itself: the rows of a load and the spans that they answer for
// become durable in one transaction, and whoever reads the table _twg_coverage knows what the table of rows holds. Where a span
// was never seen before, rows are copied straight into the table; where it may have been, they are merged by record id. A row that
// the database refuses for good is found, reported and left out; its neighbours land.
//
// docs/formats/postgres.md draws both tables and shows how an auditor checks one against the other.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stream-arrow/twgd/sinks"
)

// Options say where a sink writes and how long it waits. DSN, Table, Stream and Sink are required.
type Options struct {
	DSN     string  // a postgres:// URL or the key=value form; the environment and a service file are read as libpq does
	Table   string  // name or schema.name as they are stored, each in double quotes where it holds a dot; without a schema: the session's current one
	Create  bool    // make the table where it is missing and never held a row of this sink
	ValueAs ValueAs // the type of __kafka_value; Bytea by default
	Stream  string  // with Sink the name under which coverage is kept
	Sink    string

	ConnectTimeout   time.Duration // dial, TLS and login together; 10s by default
	StatementTimeout time.Duration // how long one statement may take; 30s by default. A COPY gets a second more for each MiB
	IdleTimeout      time.Duration // how long an unused connection is kept; 2m by default
	Log              *slog.Logger  // where notices about the table go; it says itself of which sink they are. slog.Default() where nil
}

// ValueAs is the type of the column __kafka_value.
type ValueAs string

// The types that a value can have.
const (
	Bytea ValueAs = "bytea" // the bytes as they are
	Text  ValueAs = "text"  // the bytes are UTF-8 without zero bytes
	JSONB ValueAs = "jsonb" // the bytes are a JSON document
)

func (o Options) withDefaults() Options {
	if o.ValueAs == "" {
		o.ValueAs = Bytea
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.ConnectTimeout, 10 * time.Second}, {&o.StatementTimeout, 30 * time.Second}, {&o.IdleTimeout, 2 * time.Minute}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Sink writes to one table. Its methods may be called from several goroutines; each Commit that runs holds one connection.
type Sink struct {
	opts   Options
	target string // for status, without secrets
	name   name
	pool   *pool

	mu struct {
		sync.Mutex
		table *table // what Open found; nil before the first success
		stale bool   // the table refused rows in a way that makes Commit look at it again
	}
}

var _ sinks.Sink = (*Sink)(nil)

var errBadDSN = errors.New("postgres: dsn is neither a postgres:// URL nor key=value pairs, or an option in it is wrong (it is not shown: it may hold a password)")

// New makes a sink without connecting. An error is a mistake in the options, and shows no password.
func New(opts Options) (*Sink, error) {
	opts = opts.withDefaults()
	if opts.Stream == "" || opts.Sink == "" {
		return nil, errors.New("postgres: stream and sink must have names")
	}
	switch opts.ValueAs {
	case Bytea, Text, JSONB:
	default:
		return nil, fmt.Errorf("postgres: value_as is %q, want bytea, text or jsonb", opts.ValueAs)
	}
	n, err := parseName(opts.Table)
	if err != nil {
		return nil, fmt.Errorf("postgres: table: %w", err)
	}
	config, err := pgconn.ParseConfig(opts.DSN)
	if err != nil {
		return nil, errBadDSN // the driver's error quotes the DSN
	}
	s := &Sink{opts: opts, name: n, pool: newPool(config, opts)}
	s.target = fmt.Sprintf("postgres://%s/%s/%s", address(config), config.Database, n)
	return s, nil
}

// Traits implements sinks.Sink.
func (s *Sink) Traits() sinks.Traits {
	return sinks.Traits{Kind: "postgres", Target: s.target}
}

// Begin opens an empty load for the table as Open last found it.
func (s *Sink) Begin() (sinks.Load, error) {
	t := s.table()
	if t == nil {
		return nil, &sinks.Error{Kind: sinks.Retry, Reason: "postgres: the table has not been opened yet"}
	}
	return newLoad(s, t.layout), nil
}

// Close ends all connections at once. What is committing fails with Retry.
func (s *Sink) Close() error {
	s.pool.close()
	return nil
}

func (s *Sink) table() *table {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.table
}

func (s *Sink) setTable(t *table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.table, s.mu.stale = t, false
}

func (s *Sink) isStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stale
}

func (s *Sink) setStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stale = true
}

// session lends a connection to f. Where the connection was unused for a while and turns out to be dead at its first statement, f
// is run once more on a fresh one: the server may have restarted.
func (s *Sink) session(ctx context.Context, doing string, f func(*session) error) error {
	c, err := s.pool.get(ctx)
	if err != nil {
		return s.failure(doing, err)
	}
	answered, err := s.lend(c, f)
	if err != nil && c.reused && !answered && !pgconn.Timeout(err) && ctx.Err() == nil {
		s.pool.flush()
		if c, err = s.pool.dial(ctx); err != nil {
			return s.failure(doing, err)
		}
		_, err = s.lend(c, f)
	}
	if err != nil {
		return s.failure(doing, err)
	}
	return nil
}

// lend runs f and puts c back; answered is whether the server answered anything.
func (s *Sink) lend(c *conn, f func(*session) error) (answered bool, err error) {
	defer s.pool.put(c)
	ss := &session{conn: c.PgConn, timeout: s.opts.StatementTimeout}
	err = f(ss)
	return ss.answered, err
}
