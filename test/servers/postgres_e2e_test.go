//go:build e2e

package servers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestPostgres(t *testing.T) {
	ctx := t.Context()
	p, err := Postgres(ctx, PostgresOptions{Settings: map[string]string{"max_connections": "20"}})
	must(t, err)
	if p.external == "" {
		leavesNothing(t, p.dir)
	}
	closes(t, p)
	dsn, err := p.NewDatabase(ctx)
	must(t, err)
	ask(t, dsn, "create table t as select generate_series(1, 3) as n", "select count(*) from t", 3)
	other, err := p.NewDatabase(ctx)
	must(t, err)
	ask(t, other, "select 1", "select count(*) from pg_tables where tablename = 't'", 0)
	if p.external != "" {
		if err := p.Crash(); !errors.Is(err, ErrExternal) {
			t.Errorf("Crash of an external server: %v, want ErrExternal", err)
		}
		return
	}
	ask(t, dsn, "select 1", "select setting::bigint from pg_settings where name = 'max_connections'", 20)
	t.Run("Crash and Start", func(t *testing.T) {
		must(t, p.Crash())
		must(t, p.Start(ctx))
		ask(t, dsn, "select 1", "select count(*) from t", 3)
	})
	t.Run("Stop and Start", func(t *testing.T) {
		must(t, p.Stop())
		if p.PID() != 0 {
			t.Error("stopped, but has a process")
		}
		must(t, p.Start(ctx))
		ask(t, dsn, "select 1", "select count(*) from t", 3)
	})
	t.Run("Pause and Continue", func(t *testing.T) { postgresPaused(t, p, dsn) })
	t.Run("Close while paused", func(t *testing.T) {
		q, err := Postgres(ctx, PostgresOptions{})
		must(t, err)
		leavesNothing(t, q.dir)
		must(t, q.Pause())
		must(t, q.Close())
	})
	t.Run("hangs behind a proxy", func(t *testing.T) { postgresHangs(t, p, dsn) })
}

// ask executes a statement and checks a question's one number.
func ask(t *testing.T, dsn, statement, question string, want int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), statement)
	must(t, err)
	var got int64
	must(t, conn.QueryRow(t.Context(), question).Scan(&got))
	if got != want {
		t.Errorf("%s: %d, want %d", question, got, want)
	}
}

// postgresPaused asks over a connection whose session is stopped, and gets the answer after Continue.
func postgresPaused(t *testing.T, p *PostgresServer, dsn string) {
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	defer conn.Close(context.Background())
	session := int(conn.PgConn().PID())
	must(t, p.Pause())
	eventually(t, func() bool { return stateOf(session) == "T" && stateOf(p.PID()) == "T" })
	must(t, p.Continue())
	var n int64
	must(t, conn.QueryRow(t.Context(), "select count(*) from t").Scan(&n))
	if n != 3 {
		t.Errorf("%d rows after a pause, want 3", n)
	}
}

func postgresHangs(t *testing.T, p *PostgresServer, dsn string) {
	f, err := NewTCPFaults(p.Addr())
	must(t, err)
	closes(t, f)
	through, err := Via(dsn, f.Addr())
	must(t, err)
	ask(t, through, "select 1", "select count(*) from t", 3)
	must(t, f.Set(TCPHang))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, through); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("connect to a server that hangs: %v, want the deadline", err)
	}
	must(t, f.Set(TCPPass))
	ask(t, through, "select 1", "select count(*) from t", 3)
}
