package servers

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// echo is a server that sends back what it is sent.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { io.Copy(c, c); c.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func dial(t *testing.T, f *TCPFaults) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// says sends a word and reads it back.
func says(t *testing.T, c net.Conn, word string) {
	t.Helper()
	if _, err := io.WriteString(c, word); err != nil {
		t.Fatal(err)
	}
	hears(t, c, word)
}

func hears(t *testing.T, c net.Conn, word string) {
	t.Helper()
	got := make([]byte, len(word))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != word {
		t.Fatalf("heard %q, %v, want %q", got, err, word)
	}
}

func TestTCPFaults(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	addr := echo(t)
	f, err := NewTCPFaults(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	set := func(mode TCPMode) {
		t.Helper()
		if err := f.Set(mode); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, f)
	says(t, c, "pass")

	set(TCPHang)
	late := dial(t, f) // accepted all the same
	for _, conn := range []net.Conn{c, late} {
		if _, err := io.WriteString(conn, "held"); err != nil {
			t.Fatal(err)
		}
	}
	set(TCPPass)
	hears(t, c, "held")
	hears(t, late, "held")

	set(TCPReset)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read in TCPReset: %v, want a reset", err)
	}
	// The reset of a new connection may come before the client's own dial has returned.
	again, err := net.Dial("tcp", f.Addr())
	if err == nil {
		_, err = again.Read(make([]byte, 1))
		again.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection in TCPReset: %v, want a reset", err)
	}

	set(TCPRefuse)
	if _, err := net.Dial("tcp", f.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial in TCPRefuse: %v, want refused", err)
	}
	set(TCPPass)
	says(t, dial(t, f), "back")
	if n := f.Accepted(); n != 4 {
		t.Errorf("%d connections accepted, want 4", n)
	}
}

func TestTCPFaultsAfterClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	f, err := NewTCPFaults("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Set(TCPHang); err != nil {
		t.Fatal(err)
	}
	c := dial(t, f)
	f.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("read after the proxy's end: %v, want the connection's end", err)
	}
	if err := f.Set(TCPPass); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Set after Close: %v", err)
	}
}

// store is an S3 server that takes everything and remembers what it was sent.
type store struct {
	mu   sync.Mutex
	seen []string
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method+" "+r.Host+" "+r.RequestURI+" "+string(body)+" "+r.Header.Get("If-None-Match"))
	io.WriteString(w, "done")
}

func (s *store) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[len(s.seen)-1]
}

func TestS3Faults(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	backend := &store{}
	server := httptest.NewServer(backend)
	t.Cleanup(server.Close)
	f, err := NewS3Faults(&S3Server{external: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	put := func(path string, want int, body string) {
		t.Helper()
		req, _ := http.NewRequest(http.MethodPut, f.Endpoint()+path, strings.NewReader("value"))
		req.Header.Set("If-None-Match", "*")
		resp, err := client.Do(req)
		if want == 0 {
			if err == nil {
				t.Errorf("%s: answered %s, want none", path, resp.Status)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want || !strings.Contains(string(got), body) {
			t.Errorf("%s: %d %q, want %d and %q", path, resp.StatusCode, got, want, body)
		}
	}
	host := strings.TrimPrefix(f.Endpoint(), "http://")

	put("/b/a%20~%255F/k?x=%2F", 200, "done")
	if got, want := backend.last(), "PUT "+host+" /b/a%20~%255F/k?x=%2F value *"; got != want {
		t.Errorf("passed %q, want %q", got, want)
	}
	f.Add(S3Fault{S3Match: S3Match{Key: "k1"}, Times: 2, Do: Unavailable()}, S3Fault{S3Match: S3Match{Op: "PutObject", Key: "k1"}, Do: DropAnswer()},
		S3Fault{S3Match: S3Match{Method: "PUT", Key: "k2"}, Do: ErrorInOK("InternalError")}, S3Fault{S3Match: S3Match{Key: "k3"}, Times: -1, Do: IgnoreIfNoneMatch()})
	put("/b/k2", 200, "<Code>InternalError</Code>")
	put("/b/k1", 503, "SlowDown")
	put("/b/k1", 503, "SlowDown")
	if f.Left() != 1 || len(backend.seen) != 1 {
		t.Errorf("%d faults left, want 1; the store saw %q", f.Left(), backend.seen)
	}
	put("/b/k1", 0, "")
	if got, want := backend.last(), "PUT "+host+" /b/k1 value *"; got != want {
		t.Errorf("the store saw %q before the answer was dropped, want %q", got, want)
	}
	put("/b/k1", 200, "done")
	put("/b/k3", 200, "done")
	put("/b/k3", 200, "done")
	if got, want := backend.last(), "PUT "+host+" /b/k3 value "; got != want {
		t.Errorf("the store saw %q, want %q", got, want)
	}
	f.Clear()
	put("/b/k3", 200, "done")
	if got := backend.last(); !strings.HasSuffix(got, "*") {
		t.Errorf("the store saw %q after Clear, want If-None-Match", got)
	}
	if n := f.Count(S3Match{Op: "PutObject", Key: "k1"}); n != 4 {
		t.Errorf("%d puts of k1 counted, want 4", n)
	}
}

func TestOperation(t *testing.T) {
	f := func(method, target, want string) {
		t.Helper()
		if got := describeRequest(httptest.NewRequest(method, target, nil)); got.Op != want {
			t.Errorf("%s %s: %q, want %q", method, target, got.Op, want)
		}
	}
	f("PUT", "/b/a/k", "PutObject")
	f("GET", "/b/a/k", "GetObject")
	f("HEAD", "/b/a/k", "HeadObject")
	f("DELETE", "/b/a/k", "DeleteObject")
	f("GET", "/b?list-type=2&prefix=a", "ListObjectsV2")
	f("POST", "/b?delete", "DeleteObjects")
	f("POST", "/b/k?uploads", "CreateMultipartUpload")
	f("PUT", "/b/k?partNumber=1&uploadId=u", "UploadPart")
	f("POST", "/b/k?uploadId=u", "CompleteMultipartUpload")
	f("DELETE", "/b/k?uploadId=u", "AbortMultipartUpload")
	f("PUT", "/b", "PUT")
}
