package postgres

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// session runs statements on one connection, each within a bound: a server that accepts and never answers becomes an error.
type session struct {
	conn     *pgconn.PgConn
	timeout  time.Duration
	answered bool // a batch came back whole
}

// statement is SQL with its parameters in text form; nil is null.
type statement struct {
	sql    string
	params [][]byte
}

func sql(text string, params ...string) statement {
	s := statement{sql: text}
	for _, p := range params {
		s.params = append(s.params, []byte(p))
	}
	return s
}

// batch runs statements in one round trip and returns the rows of each, in text form. Outside a transaction they are one.
func (s *session) batch(ctx context.Context, statements ...statement) ([]*pgconn.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var b pgconn.Batch
	for _, st := range statements {
		b.ExecParams(st.sql, st.params, nil, nil, nil)
	}
	results, err := s.conn.ExecBatch(ctx, &b).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		if r.Err != nil {
			return nil, r.Err
		}
	}
	s.answered = true
	return results, nil
}

// query runs one statement and returns its rows.
func (s *session) query(ctx context.Context, text string, params ...string) ([][][]byte, error) {
	results, err := s.batch(ctx, sql(text, params...))
	if err != nil {
		return nil, err
	}
	return results[0].Rows, nil
}

// exec runs statements without parameters, separated by semicolons, in one round trip.
func (s *session) exec(ctx context.Context, script string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.conn.Exec(ctx, script).ReadAll()
	return err
}

// copyIn runs a COPY FROM STDIN with bytes of r, after the statements before it, in one script. It returns the rows that it
// wrote. A second more is allowed for each MiB.
func (s *session) copyIn(ctx context.Context, script string, r io.Reader, bytes int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.copyTimeout(bytes))
	defer cancel()
	f := &fence{r: r}
	defer f.shut()
	tag, err := s.conn.CopyFrom(ctx, f, script)
	return tag.RowsAffected(), err
}

func (s *session) copyTimeout(bytes int64) time.Duration {
	return s.timeout + time.Duration(bytes>>20)*time.Second
}

// fence keeps a reader from being read after the call that it was given to: CopyFrom reads in a goroutine of its own, which may
// still run when it has failed, and the memory behind r may belong to another load by then.
type fence struct {
	mu sync.Mutex
	r  io.Reader
}

func (f *fence) Read(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r == nil {
		return 0, io.ErrClosedPipe
	}
	return f.r.Read(b)
}

func (f *fence) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.r = nil
}

// array is the text form of a one-dimensional array.
func array(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// scan is query for a statement that may read a whole table: only ctx bounds it.
func (s *session) scan(ctx context.Context, st statement) ([][][]byte, error) {
	r := s.conn.ExecParams(ctx, st.sql, st.params, nil, nil, nil).Read()
	return r.Rows, r.Err
}
