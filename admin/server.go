// Package admin is what people and machines ask a running node through: HTTP for looking, and a socket in the data directory
// for commands. It knows nothing of streams; what it shows it is handed by callbacks.
//
// HTTP changes nothing, so it needs no password and may be bound to any address. The socket may change things: its file's
// mode is the permission.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options are what a server shows. Callbacks are called by many goroutines at once and do not block: /live must answer while
// everything else is stuck.
type Options struct {
	Address  string          // host:port to listen on
	DataDir  string          // an existing directory; the socket is <data_dir>/twgd.sock
	Live     func() error    // why the process should be replaced; nil while it should not
	Ready    func() []string // why it is not ready; empty when it is
	Status   func() any      // what /status shows, as JSON
	Metrics  http.Handler    // what /metrics shows
	Commands []Command       // what the socket takes besides
	Grace    time.Duration   // how long requests may go on once the server is to end, and as long again once they are cancelled
	Log      *slog.Logger
}

// Server listens from the moment it is made.
type Server struct {
	options Options
	web     net.Listener
	socket  net.Listener
	busy    sync.WaitGroup // handlers that run
}

// Listen makes a server that listens already, so that a connection that comes in before Run waits for it and is not refused.
// Either Run or Close must follow.
func Listen(o Options) (*Server, error) {
	web, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("listening for HTTP: %w", err)
	}
	socket, err := listenSocket(o.DataDir)
	if err != nil {
		return nil, errors.Join(err, web.Close())
	}
	return &Server{options: o, web: web, socket: socket}, nil
}

// Address is where HTTP is served: the one of the options, with the port that the system chose where that was 0.
func (s *Server) Address() string { return s.web.Addr().String() }

// Close gives up a server that was not run.
func (s *Server) Close() error { return errors.Join(s.web.Close(), s.socket.Close()) }

// Run serves until ctx ends. Requests that are being served then may go on for the grace period; after it they are cancelled,
// and connections closed. It returns when all it started has ended, or says what did not.
func (s *Server) Run(ctx context.Context) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	web := s.server(requests, s.webHandler())
	web.WriteTimeout = 30 * time.Second
	socket := s.server(requests, s.socketHandler())
	ended := make(chan error, 2)
	go func() { ended <- serve(web, s.web) }()
	go func() { ended <- serve(socket, s.socket) }()

	var err error
	running := 2
	select {
	case <-ctx.Done():
	case err = <-ended:
		running--
	}
	err = errors.Join(err, s.shutdown(cancel, web, socket))
	for ; running > 0; running-- {
		err = errors.Join(err, <-ended)
	}
	return err
}

func (s *Server) server(requests context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    1 << 14,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
}

func serve(server *http.Server, l net.Listener) error {
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// shutdown ends both servers: first kindly, within the grace period, then not.
func (s *Server) shutdown(cancel func(), servers ...*http.Server) error {
	grace, stop := context.WithTimeout(context.Background(), s.options.Grace)
	defer stop()
	var all sync.WaitGroup
	for _, server := range servers {
		all.Go(func() {
			if server.Shutdown(grace) != nil {
				cancel()
				_ = server.Close() // it reports how its connections ended, which is our doing
			}
		})
	}
	all.Wait()
	cancel()
	return s.idle()
}

// idle waits for the handlers to return, as long again as the grace period.
func (s *Server) idle() error {
	done := make(chan struct{})
	go func() { s.busy.Wait(); close(done) }()
	late := time.NewTimer(max(s.options.Grace, time.Second))
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return errors.New("a request goes on although it was cancelled")
	}
}

// counted lets idle wait for what h does.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.busy.Add(1)
		defer s.busy.Done()
		h.ServeHTTP(w, r)
	})
}
