package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// method is one thing that may be asked.
type method struct {
	handler Handler
	open    bool // whoever asks, of whatever founding
}

// Handle answers a method, of peers of our founding and of peers that know of none yet. Call it before Run. A method is one word.
func (p *Port) Handle(name string, h Handler) { p.methods[name] = method{handler: h} }

// HandleOpen is Handle for what nodes ask in order to find out which founding they are of: it answers those of another one too.
func (p *Port) HandleOpen(name string, h Handler) { p.methods[name] = method{handler: h, open: true} }

func (p *Port) newServer() *http.Server {
	return &http.Server{
		Handler:   http.HandlerFunc(p.serve),
		Protocols: bareHTTP2(),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1024, MaxReceiveBufferPerStream: MaxBody, MaxReceiveBufferPerConnection: 8 * MaxBody,
			SendPingTimeout: silentFor, PingTimeout: answerFor, WriteByteTimeout: callFor},
		ReadHeaderTimeout: greetFor,
		IdleTimeout:       2 * idleFor,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(lines{p.o.Log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return p.life },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
}

type connKey struct{}

// serve answers one call.
func (p *Port) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return
	}
	p.jobs.Add(1)
	p.mu.Unlock()
	defer p.jobs.Done()
	answer, err := p.carryOut(w, r)
	p.say(w.Header())
	if err == nil {
		_, _ = w.Write(answer)
		return
	}
	w.Header().Set(headCode, err.code)
	w.WriteHeader(err.status)
	_, _ = io.WriteString(w, err.text[:min(len(err.text), textMost)])
}

// denial is an answer that says no.
type denial struct {
	status     int
	code, text string
}

func (p *Port) carryOut(w http.ResponseWriter, r *http.Request) ([]byte, *denial) {
	from, err := whoAsks(r)
	if err != nil {
		return nil, &denial{http.StatusBadRequest, CodeInvalid, err.Error()}
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	m, known := p.methods[name]
	if !known {
		return nil, &denial{http.StatusNotFound, CodeUnknown, fmt.Sprintf("this version of twgd does not know what %q asks for", name)}
	}
	if ours := p.founding(); !m.open && differ(ours, from.Founding) {
		reason := ErrFoundings{Theirs: from.Founding, Ours: ours, Address: from.Addr}
		p.refused(Refusal{Address: from.Addr, Inbound: true, Reason: reason})
		return nil, &denial{http.StatusConflict, CodeInvalid, reason.Error()}
	}
	limit := allowed(r.Header.Get(headTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
	body, err := readAll(http.MaxBytesReader(w, r.Body, MaxBody), r.ContentLength)
	if err != nil {
		return nil, &denial{http.StatusRequestEntityTooLarge, CodeTooLarge, "reading the question: " + err.Error()}
	}
	return judge(p.ask(ctx, m, name, from, body))
}

// readAll reads to the end what says to have so many bytes, into memory that is taken once.
func readAll(r io.Reader, length int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max(length, 0), MaxBody)) + bytes.MinRead)
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}

// ask calls a handler. One that panics costs its caller an answer, and says so where people look; the library would hide it.
func (p *Port) ask(ctx context.Context, m method, name string, from Peer, body []byte) (answer []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			p.o.Log.Error("a call failed by a mistake of the program", "method", name, "peer", from.Name, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s failed by a mistake of the program; its log says more", name)
		}
	}()
	return m.handler(ctx, from, body)
}

// judge makes of what a handler returned what the caller gets.
func judge(answer []byte, err error) ([]byte, *denial) {
	var coded *RemoteError
	switch {
	case errors.As(err, &coded):
		return nil, &denial{http.StatusUnprocessableEntity, coded.Code, coded.Text}
	case err != nil:
		return nil, &denial{http.StatusUnprocessableEntity, CodeFailed, err.Error()}
	case len(answer) > MaxBody:
		return nil, &denial{http.StatusUnprocessableEntity, CodeTooLarge, fmt.Sprintf("an answer of %d bytes is too large", len(answer))}
	}
	return answer, nil
}

// differ reports whether two foundings are known and are two.
func differ(a, b Founding) bool { return a != b && a != Founding{} && b != Founding{} }

// whoAsks returns the caller. Its name is proved; a server id must be one of that name.
func whoAsks(r *http.Request) (Peer, error) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return Peer{}, errNoNode
	}
	f, _ := parseFounding(r.Header.Get(headFounding))
	from := Peer{Name: c.peer, ServerID: r.Header.Get(headServer), Founding: f, Addr: c.RemoteAddr().String()}
	return from, checkServerID(from.ServerID, c.peer)
}

// checkServerID holds a server id against the name that its owner has proved.
func checkServerID(id, name string) error {
	if id != "" && !strings.HasPrefix(id, name+"~") {
		return fmt.Errorf("server id %.200q is none of node %s", id, name)
	}
	return nil
}

// allowed reads how long a caller waits.
func allowed(header string) time.Duration {
	ms, err := strconv.ParseUint(header, 10, 31)
	if err != nil {
		return callFor
	}
	return min(time.Duration(ms)*time.Millisecond, callMost)
}

// lines takes the lines that a library logs: they are for those who look for a fault.
type lines struct{ log *slog.Logger }

func (l lines) Write(b []byte) (int, error) {
	l.log.Debug("of the cluster's port", "line", strings.TrimSpace(string(b)))
	return len(b), nil
}
