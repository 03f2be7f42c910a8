package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// logger hands raft's log to slog, tamed. Raft tells at info and warn how it works, which is for who looks into it: debug. Its errors are
// mostly those of a peer that is away, repeated many times a second; the cluster says once that a node is away. What is left is about
// this server's disk and state, and comes as a warning, each text once a minute.
type logger struct {
	log  *slog.Logger
	name string
	args []any
	last *lastSaid
}

var _ hclog.Logger = (*logger)(nil)

// lastSaid is shared by all loggers of one server.
type lastSaid struct {
	mu   sync.Mutex
	when map[string]time.Time
}

const sayAgain = time.Minute

func (l *lastSaid) again(msg string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.when[msg]; ok && now.Sub(at) < sayAgain {
		return false
	}
	l.when[msg] = now
	return true
}

func newLogger(l *slog.Logger) *logger {
	if l == nil {
		l = slog.Default()
	}
	return &logger{log: l, name: "raft", last: &lastSaid{when: map[string]time.Time{}}}
}

// ofPeers are beginnings of errors that are about another server, or about the way there. A log that cannot be got is one that has become a
// snapshot, which is then sent.
var ofPeers = []string{
	"failed to heartbeat to", "failed to appendEntries to", "failed to make request", "failed to start pipeline", "failed to pipeline",
	"failed to decode incoming", "failed to flush response", "failed to accept connection", "failed to send snapshot to",
	"failed to install snapshot", "failed to get log", "peer has newer term", "target does not support",
}

func (l *logger) level(from hclog.Level, msg string, args []any) slog.Level {
	if from < hclog.Error || slices.ContainsFunc(args, ofClosing) || slices.ContainsFunc(ofPeers, func(p string) bool { return strings.HasPrefix(msg, p) }) {
		return slog.LevelDebug
	}
	if !l.last.again(msg, time.Now()) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// ofClosing: what raft meets after this server was put down is our own doing.
func ofClosing(arg any) bool {
	err, ok := arg.(error)
	return ok && errors.Is(err, ErrClosed)
}

func (l *logger) Log(from hclog.Level, msg string, args ...any) {
	level := l.level(from, msg, args)
	ctx := context.Background()
	if !l.log.Enabled(ctx, level) {
		return
	}
	l.log.Log(ctx, level, l.name+": "+msg, plain(append(slices.Clone(l.args), args...))...)
}

// plain turns hclog's own kinds of values into texts.
func plain(args []any) []any {
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	return args
}

func (l *logger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *logger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *logger) IsTrace() bool { return l.IsDebug() }
func (l *logger) IsDebug() bool { return l.log.Enabled(context.Background(), slog.LevelDebug) }
func (l *logger) IsInfo() bool  { return l.IsDebug() }
func (l *logger) IsWarn() bool  { return l.IsDebug() }
func (l *logger) IsError() bool { return true }

func (l *logger) ImpliedArgs() []any { return l.args }
func (l *logger) Name() string       { return l.name }

func (l *logger) With(args ...any) hclog.Logger {
	return &logger{log: l.log, name: l.name, args: append(slices.Clone(l.args), args...), last: l.last}
}

func (l *logger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

func (l *logger) ResetNamed(name string) hclog.Logger {
	return &logger{log: l.log, name: name, args: l.args, last: l.last}
}

// SetLevel does nothing: slog's handler has the level.
func (l *logger) SetLevel(hclog.Level) {}

func (l *logger) GetLevel() hclog.Level {
	if l.IsDebug() {
		return hclog.Debug
	}
	return hclog.Error
}

func (l *logger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.log.Handler(), slog.LevelDebug)
}

func (l *logger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}
