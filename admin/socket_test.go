package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSocketIsPrivate(t *testing.T) {
	o := options(t)
	start(t, o)
	info, err := os.Lstat(filepath.Join(o.DataDir, socketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
}

func TestStaleSocket(t *testing.T) {
	o := options(t)
	path := filepath.Join(o.DataDir, socketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as a process that is killed leaves it
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(o.DataDir); err == nil || !errors.Is(err, ErrNoNode) {
		t.Errorf("got %v", err)
	}
	start(t, o)
	dial(t, o)
}

func TestWhatIsNoSocketStays(t *testing.T) {
	o := options(t)
	path := filepath.Join(o.DataDir, socketName)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
		t.Errorf("the file is gone: %v", err)
	}
}

func TestLongPath(t *testing.T) {
	o := options(t)
	o.DataDir = filepath.Join(o.DataDir, strings.Repeat("x", 100))
	_, err := Listen(o)
	_, dialled := Dial(o.DataDir)
	for _, err := range []error{err, dialled} {
		if err == nil || !strings.Contains(err.Error(), "use a shorter data_dir") {
			t.Errorf("got %v", err)
		}
	}
}

func TestNoNode(t *testing.T) {
	if _, err := Dial(shortDir(t)); !errors.Is(err, ErrNoNode) {
		t.Errorf("got %v", err)
	}
}

func dial(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := Dial(o.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCommands(t *testing.T) {
	o := options(t)
	o.Commands = []Command{
		{"count", func(_ context.Context, args json.RawMessage, progress func(any)) (any, error) {
			var n int
			if err := json.Unmarshal(args, &n); err != nil {
				return nil, &Error{ExitUsage, "a number is wanted"}
			}
			for i := range n {
				progress(i)
			}
			return map[string]int{"counted": n}, nil
		}},
		{"nothing", func(context.Context, json.RawMessage, func(any)) (any, error) { return nil, nil }},
		{"fail", func(context.Context, json.RawMessage, func(any)) (any, error) { return nil, errors.New("no luck") }},
		{"refuse", func(context.Context, json.RawMessage, func(any)) (any, error) {
			return nil, fmt.Errorf("leaving: %w", &Error{ExitRefused, "unsafe"})
		}},
		{"panic", func(context.Context, json.RawMessage, func(any)) (any, error) { panic("oh") }},
		{"unfit", func(_ context.Context, _ json.RawMessage, progress func(any)) (any, error) {
			progress(func() {})
			return func() {}, nil
		}},
	}
	start(t, o)
	c := dial(t, o)
	f := func(name string, args any, want string, steps int, exit int) {
		t.Helper()
		n := 0
		got, err := c.Call(context.Background(), name, args, func(json.RawMessage) { n++ })
		var e *Error
		switch {
		case n != steps:
			t.Errorf("%s: %d steps, want %d", name, n, steps)
		case exit == 0 && (err != nil || string(got) != want):
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		case exit != 0 && (!errors.As(err, &e) || e.Exit != exit || !strings.Contains(e.Text, want)):
			t.Errorf("%s: got %v, want %s and exit %d", name, err, want, exit)
		}
	}
	f("count", 3, `{"counted":3}`, 3, 0)
	f("count", 0, `{"counted":0}`, 0, 0)
	f("count", "x", "a number is wanted", 0, ExitUsage)
	f("count", strings.Repeat("x", mostArgs), "too large", 0, ExitUsage)
	f("nothing", nil, "null", 0, 0)
	f("fail", nil, "no luck", 0, ExitFailed)
	f("refuse", nil, "leaving: unsafe", 0, ExitRefused)
	f("panic", nil, "a fault of the program: oh", 0, ExitFailed)
	f("unfit", nil, "unsupported type", 1, ExitFailed)
	f("none", nil, "knows no command none", 0, ExitUsage)
}

func TestSocketShowsTheSame(t *testing.T) {
	o := options(t)
	s, _ := start(t, o)
	code, body, err := dial(t, o).Get(context.Background(), "/status")
	if err != nil || code != 200 {
		t.Fatalf("got %d, %v", code, err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + s.Address() + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if web, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(web, body) {
		t.Errorf("got %s and %s, %v", web, body, err)
	}
}

// waiting is a command that says it has begun and waits for its context.
func waiting(then func()) (Command, chan struct{}) {
	begun := make(chan struct{})
	return Command{"wait", func(ctx context.Context, _ json.RawMessage, _ func(any)) (any, error) {
		close(begun)
		<-ctx.Done()
		then()
		return nil, ctx.Err()
	}}, begun
}

// TestCallerGone ends the command.
func TestCallerGone(t *testing.T) {
	o := options(t)
	ended := make(chan struct{})
	wait, begun := waiting(func() { close(ended) })
	o.Commands = []Command{wait}
	start(t, o)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-begun; cancel() }()
	if _, err := dial(t, o).Call(ctx, "wait", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-ended
}

// TestShutdownWaitsForACommand that ends within the grace period, and its caller gets the answer.
func TestShutdownWaitsForACommand(t *testing.T) {
	o := options(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	o.Commands = []Command{{"leave", func(context.Context, json.RawMessage, func(any)) (any, error) {
		close(begun)
		<-finish
		return "left", nil
	}}}
	s, stop := start(t, o)
	answered := make(chan string, 1)
	c := dial(t, o)
	go func() {
		got, err := c.Call(context.Background(), "leave", nil, nil)
		answered <- fmt.Sprint(string(got), err)
	}()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // until nothing listens any more: the end has begun
		conn, err := net.Dial("tcp", s.Address())
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	close(finish)
	if got := <-answered; got != `"left"<nil>` {
		t.Errorf("got %s", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestShutdownCancelsACommand that goes on beyond the grace period.
func TestShutdownCancelsACommand(t *testing.T) {
	o := options(t)
	o.Grace = time.Millisecond
	ended := make(chan struct{})
	wait, begun := waiting(func() { close(ended) })
	o.Commands = []Command{wait}
	_, stop := start(t, o)
	c := dial(t, o)
	answered := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), "wait", nil, nil)
		answered <- err
	}()
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	<-ended
	if err := <-answered; err == nil {
		t.Error("the caller is told that it worked")
	}
}

func TestRead(t *testing.T) {
	f := func(text, want, fault string) {
		t.Helper()
		got, err := read(strings.NewReader(text), nil)
		if string(got) != want || (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	f(`{"progress":1} {"result":2}`, "2", "")
	f(`{"result":null}`, "null", "")
	f(`{"progress":1}`, "", "ended before it answered")
	f(`{"error":"x","exit":5}`, "", "x")
	f(`404 page not found`, "", "ended before it answered")
}
