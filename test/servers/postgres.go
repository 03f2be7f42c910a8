package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions shape a server; the zero value is one on its defaults, with fsync.
type PostgresOptions struct {
	Settings map[string]string // more of postgresql.conf, such as {"max_connections": "20"}
}

// PostgresServer is one PostgreSQL with its own data folder. Its superuser is postgres, who needs no password.
type PostgresServer struct {
	external string // DSN of a server that is not ours; then all else but databases is nil
	dir      string
	ports    *ports
	options  PostgresOptions
	bin      string
	account  *syscall.Credential // PostgreSQL refuses to be run by root; nil where we are somebody else
	process  *process

	mu        sync.Mutex
	databases []string // made by NewDatabase
	guard     *guard   // while paused
}

// Postgres starts a server, or returns the one that TWGD_E2E_PG names. Close it.
func Postgres(ctx context.Context, options PostgresOptions) (*PostgresServer, error) {
	if dsn := os.Getenv(EnvPG); dsn != "" {
		return &PostgresServer{external: dsn}, nil
	}
	bin, err := installPostgres(ctx)
	if err != nil {
		return nil, err
	}
	p := &PostgresServer{options: options, bin: bin}
	if err := p.prepare(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := p.Start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *PostgresServer) prepare(ctx context.Context) (err error) {
	if p.account, err = postgresAccount(); err != nil {
		return err
	}
	if p.dir, err = postgresFolder(p.account); err != nil {
		return err
	}
	if p.ports, err = reservePorts(1); err != nil {
		return err
	}
	p.process = &process{name: "PostgreSQL", command: p.command, death: syscall.SIGQUIT, log: filepath.Join(p.dir, "postgres.log"),
		ready: p.answers, limit: time.Minute}
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "initdb"), "-D", p.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C.UTF-8", "--no-sync", "--no-instructions")
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account, Pdeathsig: syscall.SIGKILL}
	if out, err := combined(cmd); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLine(out))
	}
	return nil
}

func (p *PostgresServer) command() *exec.Cmd {
	args := []string{"-D", p.data(), "-p", strconv.Itoa(p.ports.numbers[0]), "-k", p.dir, "-c", "listen_addresses=127.0.0.1"}
	for _, name := range slices.Sorted(maps.Keys(p.options.Settings)) {
		args = append(args, "-c", name+"="+p.options.Settings[name])
	}
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account}
	return cmd
}

func (p *PostgresServer) data() string { return filepath.Join(p.dir, "data") }

// answers opens a connection and asks a question.
func (p *PostgresServer) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return p.exec(ctx, "select 1")
}

func (p *PostgresServer) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// Start starts the server again after Stop or Crash, on the same port and data, and returns when it answers.
func (p *PostgresServer) Start(ctx context.Context) error {
	if p.external != "" {
		return ErrExternal
	}
	return p.process.start(ctx)
}

// Stop is PostgreSQL's fast shutdown: sessions are ended, transactions rolled back, the state written.
func (p *PostgresServer) Stop() error { return p.end(syscall.SIGINT) }

// Crash is PostgreSQL's immediate shutdown: everything ends at once, the next start recovers from the log.
func (p *PostgresServer) Crash() error { return p.end(syscall.SIGQUIT) }

func (p *PostgresServer) end(sig syscall.Signal) error {
	if p.external != "" {
		return ErrExternal
	}
	return errors.Join(p.Continue(), p.process.stop(sig))
}

// Pause stops the server and all its sessions: connections stay open, new ones are accepted by the kernel, and nothing answers until Continue.
func (p *PostgresServer) Pause() error {
	if p.external != "" {
		return ErrExternal
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guard != nil {
		return nil
	}
	pid := p.process.pid()
	if pid == 0 {
		return errors.New("pause PostgreSQL: it does not run")
	}
	g, err := pauseFamily(pid)
	p.guard = g
	return err
}

// Continue ends a Pause; where there is none it does nothing.
func (p *PostgresServer) Continue() error {
	if p.external != "" {
		return ErrExternal
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guard == nil {
		return nil
	}
	err := p.guard.release()
	p.guard = nil
	return err
}

// Close ends the server and removes all it kept. Of an external one it drops the databases that NewDatabase made.
func (p *PostgresServer) Close() error {
	if p.external != "" {
		return p.dropDatabases()
	}
	var errs []error
	if p.process != nil {
		errs = append(errs, p.Continue(), p.process.stop(syscall.SIGQUIT))
	}
	if p.ports != nil {
		p.ports.release()
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}

// PID is the server's first process, 0 while it is stopped or external.
func (p *PostgresServer) PID() int {
	if p.external != "" {
		return 0
	}
	return p.process.pid()
}

// Addr is the server's host:port, for a TCPFaults.
func (p *PostgresServer) Addr() string {
	u, err := url.Parse(p.DSN())
	if err != nil {
		return ""
	}
	if u.Port() == "" {
		return u.Host + ":5432"
	}
	return u.Host
}

// DSN is a postgres:// URL of the server's first database. Tests want NewDatabase.
func (p *PostgresServer) DSN() string {
	if p.external != "" {
		return p.external
	}
	return "postgres://postgres@" + loopback(p.ports.numbers[0]) + "/postgres?sslmode=disable"
}

// NewDatabase makes a fresh, empty database and returns its DSN.
func (p *PostgresServer) NewDatabase(ctx context.Context) (dsn string, err error) {
	u, err := url.Parse(p.DSN())
	if err != nil {
		return "", fmt.Errorf("%s is no postgres:// URL: %w", EnvPG, err)
	}
	name := "twgd_" + strings.ToLower(rand.Text()[:12])
	if err := p.exec(ctx, "create database "+name); err != nil {
		return "", fmt.Errorf("create a database: %w", err)
	}
	p.mu.Lock()
	p.databases = append(p.databases, name)
	p.mu.Unlock()
	u.Path = "/" + name
	return u.String(), nil
}

// Via is dsn with another address, for instance that of a TCPFaults.
func Via(dsn, addr string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("read a DSN: %w", err)
	}
	u.Host = addr
	return u.String(), nil
}

func (p *PostgresServer) dropDatabases() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, name := range p.databases {
		errs = append(errs, p.exec(ctx, "drop database if exists "+name+" with (force)"))
	}
	p.databases = nil
	return errors.Join(errs...)
}
