package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dialed remembers how the last attempt to connect went. The client retries what it cannot connect to until somebody's deadline
// and then reports the deadline; what a user must see is the refusal, the certificate or the password behind it.
type dialed struct {
	mu   sync.Mutex
	err  error
	when time.Time
}

var _ kgo.HookBrokerConnect = (*dialed)(nil)

// OnBrokerConnect is called by the client after every attempt.
func (d *dialed) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		d.err, d.when = err, time.Now()
	}
}

// behind is the error of connecting that explains err, where there was one since the attempt began; else err.
func (d *dialed) behind(err error, since time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil && !d.when.Before(since) {
		return d.err
	}
	return err
}

// health decides when an operator is told that the source is down, and that it is back: once each. Short disturbances, such as
// a broker that restarts while others serve, are not worth a word.
type health struct {
	failures int
	down     bool
}

// tolerated is the number of failures in a row that are kept quiet once a connection stood.
const tolerated = 1

// failed notes a failure and reports whether it is to be announced.
func (h *health) failed() bool {
	h.failures++
	if h.down || h.failures <= tolerated {
		return false
	}
	h.down = true
	return true
}

// reached notes a success and reports whether it is to be announced.
func (h *health) reached() bool {
	was := h.down
	*h = health{}
	return was
}

// clientLog passes what the client library has to say to the stream's log, for debugging only: it repeats itself with every
// attempt, and what matters of it the source tells once.
type clientLog struct{ *slog.Logger }

// Level is what the library should bother to format.
func (l clientLog) Level() kgo.LogLevel {
	if l.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

// Log is called by the library.
func (l clientLog) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.Debug(msg, keyvals...)
}
