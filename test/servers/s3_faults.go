package servers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// S3Faults is a proxy before an S3 server that plays a script of faults and counts requests.
//
// Requests pass byte for byte, the Host header included, because it is part of their signature. The script is a queue: a request takes the
// first fault that matches it and has turns left, and passes where there is none.
type S3Faults struct {
	s3      *S3Server
	backend *url.URL
	client  *http.Transport
	server  *http.Server
	addr    string
	closed  chan struct{}
	done    chan struct{} // the server's loop has ended

	mu       sync.Mutex
	script   []*S3Fault
	requests []S3Request
}

// S3Match says which requests are meant; empty fields match all.
type S3Match struct {
	Method string // GET, PUT, …
	Op     string // the API's name: PutObject, UploadPart, CompleteMultipartUpload, …; see S3Request
	Key    string // a part of the object's key
}

// S3Fault is one line of the script.
type S3Fault struct {
	S3Match
	Times int // how many requests it takes; 0 is once, -1 is for ever
	Do    S3Action
}

// S3Request is one request as the proxy saw it.
type S3Request struct {
	Method, Op, Bucket, Key string
	IfNoneMatch             string
	Fault                   string // name of the action that it met, empty for none
	Status                  int    // of the answer to the client, 0 where it got none
}

// S3Action is what happens to a request. The functions below make them.
type S3Action struct {
	name string
	do   func(f *S3Faults, w http.ResponseWriter, r *http.Request) (status int)
}

// Unavailable answers 503 SlowDown; the server sees nothing.
func Unavailable() S3Action {
	return S3Action{"unavailable", func(_ *S3Faults, w http.ResponseWriter, r *http.Request) int {
		return errorDocument(w, r, http.StatusServiceUnavailable, "SlowDown")
	}}
}

// ErrorInOK answers 200 with an error document of that code, as S3 does when completing a multipart upload fails late; the server sees nothing.
func ErrorInOK(code string) S3Action {
	return S3Action{"error-in-ok", func(_ *S3Faults, w http.ResponseWriter, r *http.Request) int {
		return errorDocument(w, r, http.StatusOK, code)
	}}
}

// DropAnswer lets the server do the work and then closes the connection without an answer.
func DropAnswer() S3Action {
	return S3Action{"drop-answer", func(f *S3Faults, _ http.ResponseWriter, r *http.Request) int {
		if resp, err := f.forward(r); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return 0
	}}
}

// DelayAnswer lets the server do the work and holds the answer back for d, or until the client gives up.
func DelayAnswer(d time.Duration) S3Action {
	return S3Action{"delay-answer", func(f *S3Faults, w http.ResponseWriter, r *http.Request) int {
		resp, err := f.forward(r)
		if err != nil {
			return badGateway(w, err)
		}
		defer resp.Body.Close()
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return answer(w, resp)
		case <-r.Context().Done():
		case <-f.closed:
		}
		return 0
	}}
}

// IgnoreIfNoneMatch takes If-None-Match out of the request, as a store without create-only writes would ignore it, and signs it anew.
func IgnoreIfNoneMatch() S3Action {
	return S3Action{"ignore-if-none-match", func(f *S3Faults, w http.ResponseWriter, r *http.Request) int {
		if r.Header.Get("If-None-Match") != "" {
			r.Header.Del("If-None-Match")
			if err := f.sign(r); err != nil {
				return badGateway(w, err)
			}
		}
		return f.pass(w, r)
	}}
}

// NewS3Faults starts a proxy before s with an empty script. Close it.
func NewS3Faults(s *S3Server) (*S3Faults, error) {
	backend, err := url.Parse(s.Endpoint())
	if err != nil {
		return nil, fmt.Errorf("read the S3 endpoint: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the S3 proxy: %w", err)
	}
	f := &S3Faults{s3: s, backend: backend, client: &http.Transport{DisableCompression: true}, addr: l.Addr().String(),
		closed: make(chan struct{}), done: make(chan struct{})}
	f.server = &http.Server{Handler: f}
	go func() {
		defer close(f.done)
		f.server.Serve(l)
	}()
	return f, nil
}

// Endpoint is the proxy's http:// URL.
func (f *S3Faults) Endpoint() string { return "http://" + f.addr }

// URL is S3Server.URL through the proxy.
func (f *S3Faults) URL(bucket, prefix string) string { return s3URL(f.Endpoint(), bucket, prefix) }

// Add appends faults to the script.
func (f *S3Faults) Add(faults ...S3Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		if fault.Times == 0 {
			fault.Times = 1
		}
		f.script = append(f.script, &fault)
	}
}

// Clear empties the script; the requests stay counted.
func (f *S3Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = nil
}

// Left counts the faults of the script that still wait for a request: 0 proves that a test met all it had planned.
func (f *S3Faults) Left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, fault := range f.script {
		n += max(0, fault.Times)
	}
	return n
}

// Requests are all requests answered (or left unanswered) so far, in the order in which that was done.
func (f *S3Faults) Requests() []S3Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]S3Request(nil), f.requests...)
}

// Count counts the Requests that match.
func (f *S3Faults) Count(m S3Match) int {
	n := 0
	for _, r := range f.Requests() {
		if m.matches(r) {
			n++
		}
	}
	return n
}

// Close ends the proxy and its connections.
func (f *S3Faults) Close() error {
	close(f.closed)
	err := f.server.Close()
	<-f.done
	f.client.CloseIdleConnections()
	return err
}

// ServeHTTP handles one request of a client.
func (f *S3Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := describeRequest(r)
	action := f.next(seen)
	seen.Fault = action.name
	seen.Status = action.do(f, w, r)
	f.mu.Lock()
	f.requests = append(f.requests, seen)
	f.mu.Unlock()
	if seen.Status == 0 {
		panic(http.ErrAbortHandler) // the server's word for: close the connection, say nothing
	}
}

// next takes a turn of the first fault that matches.
func (f *S3Faults) next(r S3Request) S3Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.script {
		if fault.Times == 0 || !fault.matches(r) {
			continue
		}
		if fault.Times > 0 {
			fault.Times--
		}
		return fault.Do
	}
	return S3Action{"", (*S3Faults).pass}
}

func (f *S3Faults) pass(w http.ResponseWriter, r *http.Request) int {
	resp, err := f.forward(r)
	if err != nil {
		return badGateway(w, err)
	}
	defer resp.Body.Close()
	return answer(w, resp)
}

// forward sends the request on. It outlives the client: what a client has sent whole is stored even if it gives up meanwhile, as on a real network.
func (f *S3Faults) forward(r *http.Request) (*http.Response, error) {
	out := r.Clone(context.WithoutCancel(r.Context()))
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = f.backend.Scheme, f.backend.Host
	out.Header.Del("Connection")
	if out.ContentLength == 0 {
		out.Body = http.NoBody
	}
	return f.client.RoundTrip(out)
}

// sign replaces the request's signature. Payloads that are signed in chunks hang on the old one; clients send those only over TLS.
func (f *S3Faults) sign(r *http.Request) error {
	payload := r.Header.Get("X-Amz-Content-Sha256")
	if strings.HasPrefix(payload, "STREAMING-AWS4") {
		return fmt.Errorf("cannot sign %s %s anew: its payload is signed in chunks", r.Method, r.URL.Path)
	}
	if payload == "" {
		empty := sha256.Sum256(nil)
		payload = hex.EncodeToString(empty[:])
	}
	r.Header.Del("Authorization")
	keys := aws.Credentials{AccessKeyID: f.s3.AccessKey(), SecretAccessKey: f.s3.SecretKey()}
	return v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).
		SignHTTP(r.Context(), keys, r, payload, "s3", s3Region, time.Now())
}

// answer copies the server's answer to the client. A copy that breaks off leaves the client with a short body, which it notices.
func answer(w http.ResponseWriter, resp *http.Response) int {
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
	return resp.StatusCode
}

func badGateway(w http.ResponseWriter, err error) int {
	http.Error(w, err.Error(), http.StatusBadGateway)
	return http.StatusBadGateway
}

// errorDocument reads the body to its end first, so that the client hears an answer and not a broken connection.
func errorDocument(w http.ResponseWriter, r *http.Request, status int, code string) int {
	io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>as the test's script says</Message></Error>", code)
	return status
}
