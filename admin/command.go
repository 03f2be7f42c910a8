package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Command is something that the running node does for whoever may open its socket. Handle gets the arguments as JSON, may call
// progress as often as it likes, also from several goroutines, and returns when ctx ends: the caller is gone then, or the
// node.
type Command struct {
	Name   string
	Handle func(ctx context.Context, args json.RawMessage, progress func(any)) (any, error)
}

// Error is a failed command with the exit code that it means for the caller's program.
type Error struct {
	Exit int
	Text string
}

func (e *Error) Error() string { return e.Text }

// Exit codes of commands.
const (
	ExitFailed  = 1 // it failed while working
	ExitUsage   = 2 // it was asked for what does not exist
	ExitRefused = 5 // it would be unsafe
)

// line is one line of an answer: any number of progress, then either a result or an error.
type line struct {
	Progress json.RawMessage `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Exit     int             `json:"exit,omitempty"`
}

// mostArgs bounds the arguments of a command in bytes.
const mostArgs = 1 << 20

// socketHandler is what may be looked at, and the commands.
func (s *Server) socketHandler() http.Handler {
	mux := s.views()
	for _, c := range s.options.Commands {
		mux.HandleFunc("POST /command/"+c.Name, func(w http.ResponseWriter, r *http.Request) { s.command(c, w, r) })
	}
	mux.HandleFunc("POST /command/", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		newStream(w, func() {}).end(nil, &Error{ExitUsage, "this node knows no command " + r.URL.Path[len("/command/"):]})
	})
	return s.counted(mux)
}

func (s *Server) command(c Command, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := newStream(w, cancel)
	args, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostArgs))
	if err != nil {
		out.end(nil, &Error{ExitUsage, "reading the arguments: " + err.Error()})
		return
	}
	s.options.Log.Info("command", "name", c.Name)
	result, err := run(ctx, c, args, out.progress)
	if err != nil {
		s.options.Log.Warn("command failed", "name", c.Name, "error", err)
	}
	out.end(result, err)
}

// run keeps a fault of one command from leaving its caller without an answer.
func run(ctx context.Context, c Command, args json.RawMessage, progress func(any)) (result any, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("a fault of the program: %v", fault)
		}
	}()
	return c.Handle(ctx, args, progress)
}

// stream writes lines as they come.
type stream struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	cancel func() // ends the work where nobody listens any more
	ended  bool
}

func newStream(w http.ResponseWriter, cancel func()) *stream {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &stream{w: w, cancel: cancel}
}

func (s *stream) progress(v any) {
	if body, err := json.Marshal(v); err == nil {
		s.write(line{Progress: body}, false)
	} else {
		s.write(line{Progress: json.RawMessage(`"a step that cannot be shown"`)}, false)
	}
}

func (s *stream) end(result any, err error) {
	body, fault := json.Marshal(result)
	if err == nil {
		err = fault
	}
	if err == nil {
		s.write(line{Result: body}, true)
		return
	}
	exit := ExitFailed
	if e := (*Error)(nil); errors.As(err, &e) {
		exit = e.Exit
	}
	s.write(line{Error: err.Error(), Exit: exit}, true)
}

// write sends one line. After the last one it does nothing: a late progress must not follow a result.
func (s *stream) write(l line, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = last
	if json.NewEncoder(s.w).Encode(l) != nil || http.NewResponseController(s.w).Flush() != nil {
		s.cancel()
	}
}
