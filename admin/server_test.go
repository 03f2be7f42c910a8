package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(t *testing.T) Options {
	return Options{
		Address: "127.0.0.1:0",
		DataDir: shortDir(t),
		Live:    func() error { return nil },
		Ready:   func() []string { return nil },
		Status:  func() any { return sample() },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "twg_build_info 1") }),
		Grace:   5 * time.Second,
		Log:     slog.New(slog.DiscardHandler),
	}
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "adm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// start runs a server until the test, or stop, ends it.
func start(t *testing.T, o Options) (s *Server, stop func() error) {
	t.Helper()
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("ending: %v", err)
		}
	})
	return s, stop
}

func sample() Status {
	n := func(v int64) *int64 { return &v }
	return Status{
		Version: "v1", Node: Node{ID: "node-1", Mode: "both", Roles: List[string]{"worker", "recovery"}, Uptime: 12},
		Streams: List[Stream]{{
			Name: "orders", State: "running",
			Partitions: List[Partition]{{Topic: "orders", Number: 3, Position: n(1200), Committed: n(1200), RawNext: n(1200), End: nil, Lag: nil}},
			Sinks:      List[Sink]{{Name: "lake", State: "live", Covered: n(1200), GapRecords: n(0), BacklogWindows: nil, LastError: "<script>\"&"}},
			Quarantine: Quarantine{Records: n(0)}, Drops: map[string]int64{},
		}, {Name: "new", State: "starting"}},
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String(), w.Header()
}

func TestViews(t *testing.T) {
	o := options(t)
	o.Live = func() error { return errors.New("stuck") }
	o.Ready = func() []string { return []string{"orders: starting", "no room"} }
	h := (&Server{options: o}).webHandler()
	f := func(path string, code int, holds string) {
		t.Helper()
		got, body, _ := get(t, h, path)
		if got != code || !strings.Contains(body, holds) {
			t.Errorf("%s: got %d %q, want %d %q", path, got, body, code, holds)
		}
	}
	f("/live", 503, "stuck\n")
	f("/ready", 503, "orders: starting\nno room\n")
	f("/metrics", 200, "twg_build_info 1")
	f("/", 200, "<main id=\"streams\">")
	f("/page.css", 200, "prefers-color-scheme")
	f("/page.js", 200, "textContent")
	f("/verdict.js", 200, "function verdict")
	f("/none", 404, "")
	f("/page/", 404, "")
	f("/index.html", 404, "")
	f("/command/leave", 404, "") // not over HTTP
	o = options(t)
	h = (&Server{options: o}).webHandler()
	f("/live", 200, "ok\n")
	f("/ready", 200, "ok\n")
}

func TestOnlyLooking(t *testing.T) {
	h := (&Server{options: options(t)}).webHandler()
	for _, path := range []string{"/", "/live", "/status", "/metrics", "/command/leave"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}")))
		if w.Code != http.StatusMethodNotAllowed && w.Code != http.StatusNotFound {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
}

func TestPageLoadsNothingFromElsewhere(t *testing.T) {
	h := (&Server{options: options(t)}).webHandler()
	for _, path := range []string{"/", "/page.css", "/page.js", "/verdict.js"} {
		_, body, header := get(t, h, path)
		for _, word := range []string{"http://", "https://", "innerHTML", "onclick=", "style=\"", "eval("} {
			if strings.Contains(body, word) {
				t.Errorf("%s holds %s", path, word)
			}
		}
		if !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, header)
		}
	}
}

func TestStatusJSON(t *testing.T) {
	_, body, header := get(t, (&Server{options: options(t)}).webHandler(), "/status")
	if header.Get("Content-Type") != "application/json" {
		t.Error(header)
	}
	want := `{"version":"v1","node":{"id":"node-1","mode":"both","roles":["worker","recovery"],"uptime_s":12,"flow":null},` +
		`"cluster":null,` +
		`"streams":[{"name":"orders","state":"running",` +
		`"partitions":[{"topic":"orders","partition":3,"position":1200,"committed":1200,"raw_next":1200,"end":null,"lag":null}],` +
		`"sinks":[{"name":"lake","state":"live","covered":1200,"gap_records":0,"backlog_windows":null,"last_error":"\u003cscript\u003e\"\u0026","backoff_s":0}],` +
		`"quarantine":{"records":0,"shed":null},"drops":{}},` +
		`{"name":"new","state":"starting","partitions":[],"sinks":[],"quarantine":{"records":null,"shed":null},"drops":null}]}` + "\n"
	if body != want {
		t.Errorf("got\n%s\nwant\n%s", body, want)
	}
}

func TestStatusThatIsNoJSON(t *testing.T) {
	o := options(t)
	o.Status = func() any { return func() {} }
	if code, _, _ := get(t, (&Server{options: o}).webHandler(), "/status"); code != 500 {
		t.Errorf("got %d", code)
	}
}

// TestVerdict runs the page's judgement, where there is something to run it with.
func TestVerdict(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node to run JavaScript with")
	}
	out, err := exec.Command(node, "testdata/verdict_test.js").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestConnectionsBeforeRun are not refused: they wait.
func TestConnectionsBeforeRun(t *testing.T) {
	s, err := Listen(options(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /live HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	first, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(first, "200 OK") {
		t.Errorf("got %q, %v", first, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestListenSaysWhatIsTaken(t *testing.T) {
	s, _ := start(t, options(t))
	o := options(t)
	o.Address = s.Address()
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "listening for HTTP") {
		t.Errorf("got %v", err)
	}
	o = options(t)
	o.DataDir = s.options.DataDir
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("got %v", err)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	o := options(t)
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(o.DataDir, socketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}
