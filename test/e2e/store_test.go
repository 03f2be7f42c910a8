//go:build e2e

package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/servers"
)

// faulty is a bed over object storage behind a proxy that plays a script of faults.
func faulty(t *testing.T) (*bed, *servers.S3Faults) {
	t.Helper()
	faults, err := servers.NewS3Faults(suite.S3)
	harness.Must(t, err)
	t.Cleanup(func() { faults.Close() })
	bucket, err := suite.S3.NewBucket(t.Context())
	harness.Must(t, err)
	b := lay(t, 1, func(s *harness.Stream) {
		s.Raw = harness.Raw{To: faults.URL(bucket, "raw"), Compression: `null`, Flush: harness.Flush{Age: "1s", Bytes: "64MiB"}}
		s.Source.Kafka.Fetch = map[string]any{"max_bytes": "32MiB", "max_wait": "100ms"}
	})
	b.raw = suite.S3.URL(bucket, "raw")
	return b, faults
}

// large makes n records of 900 KB that do not compress: from 19 on a commit of them is uploaded in parts.
func large(n int) []harness.Record {
	out := make([]harness.Record, n)
	for i := range out {
		out[i].Value = make([]byte, 900_000)
		rand.Read(out[i].Value)
	}
	return out
}

// stores waits until raw ends at n, by the store's own word, and fails where the group's offset is beyond what can be read.
func (b *bed) stores(n int64, bound time.Duration) {
	b.Helper()
	harness.Await(b, fmt.Sprintf("raw to end at %d", n), bound, func() (string, bool) {
		committed := suite.Committed(b, b.topic)
		ends := suite.RawEnds(b, b.raw, b.topic)
		harness.NotBeyondEnds(b, committed, ends)
		st, err := b.node.Status()
		return fmt.Sprint(ends, committed, st, err), ends[0] == n && committed[0] == n
	})
}

// met fails where a fault of the script was not.
func met(t *testing.T, faults *servers.S3Faults, what string) {
	t.Helper()
	if n := faults.Left(); n > 0 {
		t.Errorf("%s: %d faults of the script were not met", what, n)
	}
}

// TestCaseD08D10: an object store that is unavailable, fails late inside of a 200, or whose answers are lost or late, after which a retry
// hears "exists". What is stored is stored once, and the offset is committed when it can be read.
func TestCaseD08D10(t *testing.T) {
	t.Parallel()
	b, faults := faulty(t)
	segment := servers.S3Match{Key: ".avro"}
	complete := servers.S3Match{Key: ".avro", Op: "CompleteMultipartUpload"}
	put := servers.S3Match{Key: ".avro", Op: "PutObject"}
	b.node.Start()
	b.ready()

	faults.Add(servers.S3Fault{S3Match: segment, Times: 5, Do: servers.Unavailable()}, servers.S3Fault{S3Match: complete, Do: servers.ErrorInOK("InternalError")})
	b.Send(large(20)...)
	b.stores(20, 60*time.Second)
	if faults.Count(complete) > 0 {
		met(t, faults, "D08")
	} else {
		t.Errorf("D08: nothing was uploaded in parts: %v", faults.Requests())
	}
	faults.Clear()

	faults.Add(servers.S3Fault{S3Match: complete, Do: servers.DropAnswer()})
	b.Send(large(20)...)
	b.stores(40, 60*time.Second)
	met(t, faults, "D10 in parts")

	faults.Clear()
	faults.Add(servers.S3Fault{S3Match: put, Do: servers.DropAnswer()})
	b.Send(harness.Plain(0, 10, 100)...)
	b.stores(50, 30*time.Second)
	met(t, faults, "D10 in one")

	faults.Clear()
	faults.Add(servers.S3Fault{S3Match: put, Do: servers.DelayAnswer(2 * time.Minute)})
	b.Send(harness.Plain(0, 10, 100)...)
	b.stores(60, 100*time.Second)
	met(t, faults, "a late answer")
	b.Send(harness.Plain(0, 10, 100)...)
	b.stores(70, 30*time.Second)
	if log := b.node.Log(); strings.Contains(log, "fenced") {
		t.Error("the node took its own segment for another's")
	}
	b.stop()
	c := b.chain(b.topic, 0)
	harness.SameRecords(t, "raw", c.Records, b.Acked())
	if c.Next != 70 || len(c.Gaps) > 0 {
		t.Errorf("the chain ends at %d with gaps %v", c.Next, c.Gaps)
	}
}

// TestCaseD11: the disk of a local raw is full for a while. No position moves, the state says why, and the work goes on by itself.
func TestCaseD11(t *testing.T) {
	t.Parallel()
	disk := harness.Dir(t)
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); errors.Is(err, syscall.EPERM) {
		t.Skip("left out: only root may mount the small file system that this case fills")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { harness.Must(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	lake := "file://" + harness.Dir(t)
	b := lay(t, 1, func(s *harness.Stream) {
		s.Raw = harness.Raw{To: "file://" + filepath.Join(disk, "raw"), Compression: "null"}
		s.Sinks = []harness.Sink{harness.ToParquet("lake", lake)}
	})
	b.node.Start()
	b.Send(harness.Plain(0, 100, 1000)...)
	b.complete(100)
	full := filepath.Join(disk, "filler")
	fill(t, full)
	for range 20 {
		b.Send(harness.Plain(0, 100, 1000)...)
	}
	b.node.WaitUntil("the disk to be full", 30*time.Second, func(s harness.StreamStatus) bool { return s.State == "blocked" })
	time.Sleep(lasting(30*time.Second, 4*time.Second))
	st, err := b.node.Status()
	harness.Must(t, err)
	before := suite.Committed(t, b.topic)
	chains := suite.RawAfterKill(t, b.raw, "s")
	harness.NotBeyond(t, before, chains, b.topic)
	if n := chains[b.topic.Path(0)].Next; st.Streams[0].State != "blocked" || st.Streams[0].Raw() != n || n >= b.Count() {
		t.Errorf("with a full disk raw ends at %d and the status is %s", n, st)
	}
	if code, body, err := b.node.Get("/ready"); err != nil || code != 503 || !strings.Contains(string(body), "space") {
		t.Errorf("/ready answers %d %s (%v), want 503 and why", code, body, err)
	}
	harness.Must(t, os.Remove(full))
	b.complete(b.Count())
	b.stop()
	harness.SameRecords(t, "raw", b.records(), b.Acked())
	harness.SameIDs(t, "the lake", suite.LakeIDs(t, lake, "s"), suite.IDs(b.topic, b.Acked()))
}

// fill writes a file until its file system has no more than some 100 KB left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	harness.Must(t, err)
	defer f.Close()
	chunk, n := make([]byte, 4096), int64(0)
	for err == nil {
		_, err = f.Write(chunk)
		n += 4096
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	harness.Must(t, err)
	harness.Must(t, f.Truncate(size-100_000))
}

// TestCaseD37: a store that would let a zombie overwrite is refused, before anything is read.
func TestCaseD37(t *testing.T) {
	t.Parallel()
	b, faults := faulty(t)
	faults.Add(servers.S3Fault{Times: -1, Do: servers.IgnoreIfNoneMatch()})
	if code := b.node.Run(30 * time.Second); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
	b.node.Says(0, "If-None-Match", "unsafe")
	if n := len(suite.Committed(t, b.topic)); n > 0 {
		t.Errorf("%d offsets were committed", n)
	}
}
