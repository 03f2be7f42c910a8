package store_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fakeS3 is an S3 server in memory with as much of the protocol as the bucket uses. It is the transport itself, so that
// it works in fake time. Faults are asked before a request is carried out.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string][]byte
	times   map[string]time.Time
	uploads map[string]map[int][]byte
	ids     int
	log     []string // the requests: method, operation, key
	fault   func(op, key string) fault
	// racy compares first and writes later, with all racers in between.
	racy bool
}

// fault is what befalls one request.
type fault int

const (
	none          fault = iota
	busy                // 503, nothing done
	lostReply           // done, and the connection dies
	errorIn200          // not done, and the error is in the body of a 200
	hang                // nothing ever comes
	unconditional       // done as if If-None-Match had not been sent
	denied              // 403
	noBucket            // 404
	conflict            // 409
	refused             // no connection
	halfBody            // done, and the connection dies in the middle of the reply
)

func newFakeS3() *fakeS3 {
	return &fakeS3{objects: map[string][]byte{}, times: map[string]time.Time{}, uploads: map[string]map[int][]byte{}}
}

// RoundTrip is the network and the server.
func (s *fakeS3) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	key := strings.TrimPrefix(r.URL.Path, "/bucket/")
	op := operation(r)
	w := httptest.NewRecorder()
	f := s.begin(op, key)
	switch f {
	case busy:
		s3Error(w, 503, "SlowDown")
	case errorIn200:
		s3Error(w, 200, "InternalError")
	case denied:
		s3Error(w, 403, "AccessDenied")
	case noBucket:
		s3Error(w, 404, "NoSuchBucket")
	case conflict:
		s3Error(w, 409, "ConditionalRequestConflict")
	case refused:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case hang:
		<-r.Context().Done()
		return nil, r.Context().Err()
	default:
		if f == unconditional {
			r.Header.Del("If-None-Match")
		}
		s.serve(w, r, op, key, body)
	}
	resp := w.Result()
	resp.Request = r
	resp.ContentLength = int64(w.Body.Len())
	switch f {
	case lostReply:
		return nil, errors.New("connection reset by peer")
	case halfBody:
		resp.Body = io.NopCloser(io.MultiReader(io.LimitReader(w.Body, resp.ContentLength/2), lost{}))
	}
	return resp, nil
}

type lost struct{}

func (lost) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func (s *fakeS3) begin(op, key string) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, op+" "+key)
	if s.fault == nil {
		return none
	}
	return s.fault(op, key)
}

func operation(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method == "PUT" && q.Has("partNumber"):
		return "part"
	case r.Method == "POST" && q.Has("uploads"):
		return "begin"
	case r.Method == "POST":
		return "complete"
	case r.Method == "DELETE" && q.Has("uploadId"):
		return "abort"
	case r.Method == "GET" && q.Get("list-type") == "2":
		return "list"
	}
	return strings.ToLower(r.Method)
}

func s3Error(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants it</Message></Error>", code)
}

func (s *fakeS3) serve(w http.ResponseWriter, r *http.Request, op, key string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.URL.Query().Get("uploadId")
	switch op {
	case "put":
		s.store(w, r, key, body, "")
	case "get":
		s.get(w, r, key)
	case "delete":
		delete(s.objects, key)
		w.WriteHeader(204)
	case "list":
		s.list(w, r)
	case "begin":
		s.ids++
		id := strconv.Itoa(s.ids)
		s.uploads[id] = map[int][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case "part":
		n, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
		s.uploads[id][n] = body
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(id, "-", n)))
	case "abort":
		delete(s.uploads, id)
		w.WriteHeader(204)
	case "complete":
		s.complete(w, r, key, id)
	}
}

func (s *fakeS3) complete(w http.ResponseWriter, r *http.Request, key, id string) {
	parts := s.uploads[id]
	if parts == nil {
		s3Error(w, 404, "NoSuchUpload")
		return
	}
	var all []byte
	for n := 1; n <= len(parts); n++ {
		all = append(all, parts[n]...)
	}
	s.store(w, r, key, all, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
	if _, ok := s.objects[key]; ok {
		delete(s.uploads, id)
	}
}

func (s *fakeS3) store(w http.ResponseWriter, r *http.Request, key string, body []byte, reply string) {
	_, taken := s.objects[key]
	if s.racy {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	if taken && r.Header.Get("If-None-Match") == "*" {
		s3Error(w, 412, "PreconditionFailed")
		return
	}
	s.objects[key] = body
	s.times[key] = time.Now()
	io.WriteString(w, reply)
}

func (s *fakeS3) get(w http.ResponseWriter, r *http.Request, key string) {
	body, ok := s.objects[key]
	if !ok {
		s3Error(w, 404, "NoSuchKey")
		return
	}
	http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader(string(body)))
}

type listing struct {
	XMLName     xml.Name `xml:"ListBucketResult"`
	IsTruncated bool
	Next        string     `xml:"NextContinuationToken,omitempty"`
	Contents    []listed   `xml:"Contents"`
	Prefixes    []prefixed `xml:"CommonPrefixes"`
}

type listed struct {
	Key          string
	Size         int
	LastModified string
}

type prefixed struct{ Prefix string }

func (s *fakeS3) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	most, _ := strconv.Atoi(q.Get("max-keys"))
	after := max(q.Get("start-after"), q.Get("continuation-token"))
	var keys []string
	for k := range s.objects {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out listing
	for _, k := range keys {
		if k <= after || !strings.HasPrefix(k, q.Get("prefix")) {
			continue
		}
		if len(out.Contents)+len(out.Prefixes) == most {
			out.IsTruncated = true
			break
		}
		out.Next = k
		rest := strings.TrimPrefix(k, q.Get("prefix"))
		if i := strings.IndexByte(rest, '/'); q.Get("delimiter") == "/" && i >= 0 {
			out.Prefixes = append(out.Prefixes, prefixed{q.Get("prefix") + rest[:i+1]})
			out.Prefixes = slices.Compact(out.Prefixes)
			continue
		}
		out.Contents = append(out.Contents, listed{k, len(s.objects[k]), s.times[k].UTC().Format(time.RFC3339)})
	}
	if !out.IsTruncated {
		out.Next = ""
	}
	xml.NewEncoder(w).Encode(out)
}

// count is how often an operation was asked for.
func (s *fakeS3) count(op string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.log {
		if strings.HasPrefix(l, op+" ") {
			n++
		}
	}
	return n
}

// script gives the faults of one operation in their order, and none when they are used up.
func script(op string, faults ...fault) func(string, string) fault {
	return func(o, _ string) fault {
		if o != op || len(faults) == 0 {
			return none
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
}

// always gives one operation the same fault.
func always(op string, f fault) func(string, string) fault {
	return func(o, _ string) fault {
		if o == op {
			return f
		}
		return none
	}
}
