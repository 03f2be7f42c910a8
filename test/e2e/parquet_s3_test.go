//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/parquet"
	"github.com/stream-arrow/twgd/sinks/sinktest"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/test/servers"
)

// TestParquetOnS3 runs the suite of all sinks on a real S3 server, and the faults that only one has.
func TestParquetOnS3(t *testing.T) {
	s, err := servers.S3(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for name, value := range s.Env() {
		t.Setenv(name, value)
	}
	f, err := servers.NewS3Faults(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	bucket, err := s.NewBucket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fixtures := 0
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		fixtures++
		url := f.URL(bucket, fmt.Sprintf("suite-%d", fixtures))
		return sinktest.Fixture{
			Topic: "orders",
			Sink:  func(t *testing.T) sinks.Sink { return openS3(t, url) },
			Read:  func(t *testing.T, p record.Partition) []sinktest.Row { return readS3(t, openS3(t, url), p) },
			Break: func(*testing.T) func() {
				f.Add(servers.S3Fault{S3Match: servers.S3Match{Method: http.MethodPut}, Times: -1, Do: servers.Unavailable()})
				return f.Clear
			},
			Spoil: func(r *record.Record) { r.Headers = []record.Header{{Key: "\xff"}} },
		}
	})
	for _, c := range []struct {
		op   string
		rows int
	}{{"PutObject", 10}, {"CompleteMultipartUpload", 20_000}} {
		t.Run("D10 lost reply to "+c.op, func(t *testing.T) { lostReply(t, f, f.URL(bucket, "lost-"+c.op), c.op, c.rows) })
	}
	t.Run("D37 no create-only", func(t *testing.T) {
		f.Add(servers.S3Fault{Times: -1, Do: servers.IgnoreIfNoneMatch()})
		defer f.Clear()
		err := openS3(t, f.URL(bucket, "unsafe")).Open(t.Context())
		if sinks.KindOf(err) != sinks.Blocked || !strings.Contains(err.Error(), "create-only") {
			t.Errorf("a store without create-only gives %v", err)
		}
	})
}

func openS3(t *testing.T, url string) *parquet.Sink {
	t.Helper()
	b, err := store.Open(t.Context(), url, store.Options{SpoolDir: t.TempDir(), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s, err := parquet.New(parquet.Options{Bucket: b, Stream: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func readS3(t *testing.T, s *parquet.Sink, p record.Partition) (rows []sinktest.Row) {
	t.Helper()
	files, err := s.Files(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range files {
		if _, err := s.ReadFile(t.Context(), e, func(id record.ID, r *record.Record) error {
			rows = append(rows, sinktest.Row{ID: id, Record: *r})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// lostReply: the server stores the file and its answer is lost. Whether the client library's repetition or the next Commit meets
// the file, it is recognised, and there is one.
func lostReply(t *testing.T, f *servers.S3Faults, url, op string, rows int) {
	s := openS3(t, url)
	rng := rand.New(rand.NewPCG(1, 1))
	b := &row.Batch{Partition: parquetPartition}
	b.Span.To = int64(rows)
	for o := range int64(rows) {
		value := make([]byte, 1000) // noise, so that the larger file is above the limit for one request
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		b.Records = append(b.Records, record.Record{Offset: o, Value: value})
	}
	b.IDs = record.NewHasher(b.Partition).IDs(nil, b.Records)
	l, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Discard()
	if err := l.Add(b); err != nil {
		t.Fatal(err)
	}
	f.Add(servers.S3Fault{S3Match: servers.S3Match{Op: op}, Do: servers.DropAnswer()})
	_, err = l.Commit(t.Context(), nil)
	if err != nil {
		t.Logf("the first commit: %v", err)
		if sinks.KindOf(err) != sinks.Retry {
			t.Fatalf("a lost reply gives %v", err)
		}
		if _, err = l.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if f.Left() != 0 {
		t.Error("no reply was lost")
	}
	if files, err := s.Files(t.Context(), b.Partition); err != nil || len(files) != 1 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if n, err := s.Count(t.Context(), b.Partition, []checkpoint.Span{b.Span, {From: 1, To: 5}}); err != nil || n[0] != int64(rows) || n[1] != 4 {
		t.Errorf("count %v, %v", n, err)
	}
}
