// Package harness runs the built program against real servers, and compares what it stored with what was produced.
//
// What it expects is computed here from the documents alone: record ids, the layout of raw, the tables. None of it uses a package of
// the program, so that a mistake there is not made here again. Other readers (fastavro, DuckDB, psql's protocol) read the results.
//
// Every wait has a bound, and says what it waited for and what it saw last. A test that fails prints the end of its nodes' logs.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stream-arrow/twgd/test/servers"
)

// Suite is what the tests of one package share: the program, built once, and the servers. It may be used by several tests at a time;
// each has topics, buckets, databases and directories of its own.
type Suite struct {
	Program  string // path of the binary
	Cluster  string // what the broker reports as its cluster id
	Kafka    *servers.KafkaServer
	Postgres *servers.PostgresServer
	S3       *servers.S3Server

	dir   string
	admin *kgo.Client
}

// Session is the session timeout that a node is given: short, so that a killed one is soon replaced, and what a broker on its defaults
// allows where the broker is not ours.
func Session() string {
	if os.Getenv(servers.EnvBrokers) != "" {
		return "6s"
	}
	return "2s"
}

// Main starts a suite, runs the tests, and ends it. Call it as os.Exit(harness.Main(m, &suite)).
func Main(m *testing.M, suite **Suite) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	s, err := start(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the servers of the tests:", errors.Join(err, s.close()))
		return 1
	}
	*suite = s
	code := m.Run()
	if err := s.close(); err != nil {
		fmt.Fprintln(os.Stderr, "ending the servers of the tests:", err)
		return 1
	}
	return code
}

// start builds the program and starts the servers, all at a time.
func start(ctx context.Context) (s *Suite, err error) {
	s = &Suite{}
	if s.dir, err = os.MkdirTemp("", "twgd-suite-"); err != nil {
		return s, fmt.Errorf("make the suite's folder: %w", err)
	}
	if err := os.Chmod(s.dir, 0o755); err != nil { // PostgreSQL's account looks in
		return s, err
	}
	var errs [4]error
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = s.build(ctx) })
	wg.Go(func() {
		s.Kafka, errs[1] = servers.Kafka(ctx, servers.KafkaOptions{Faults: true, Properties: map[string]string{
			"group.min.session.timeout.ms": "1000", "message.max.bytes": "20000000", "replica.fetch.max.bytes": "20000000",
			"unclean.leader.election.enable": "true"}})
	})
	wg.Go(func() { s.Postgres, errs[2] = servers.Postgres(ctx, servers.PostgresOptions{}) })
	wg.Go(func() { s.S3, errs[3] = servers.S3(ctx) })
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return s, err
	}
	return s, s.connect(ctx)
}

func (s *Suite) connect(ctx context.Context) (err error) {
	if s.admin, err = kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers()...)); err != nil {
		return fmt.Errorf("make an admin client: %w", err)
	}
	meta, err := kadm.NewClient(s.admin).BrokerMetadata(ctx)
	s.Cluster = meta.Cluster
	return err
}

func (s *Suite) build(ctx context.Context) (err error) {
	s.Program, err = Build(ctx, s.dir)
	return err
}

// EnvProgram names a built program to be tried instead of what the tree holds.
const EnvProgram = "TWGD_E2E_PROGRAM"

// Build makes the program as it is released, static and stripped, in a folder.
func Build(ctx context.Context, dir string) (program string, err error) {
	if program := os.Getenv(EnvProgram); program != "" {
		return filepath.Abs(program)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for the module: %w", err)
	}
	program = filepath.Join(dir, "twgd")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "./cmd/twgd")
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(root)))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return program, nil
}

func (s *Suite) close() error {
	var errs []error
	if s.admin != nil {
		s.admin.Close()
	}
	if s.Kafka != nil {
		errs = append(errs, s.Kafka.Close())
	}
	if s.Postgres != nil {
		errs = append(errs, s.Postgres.Close())
	}
	if s.S3 != nil {
		errs = append(errs, s.S3.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// NeedsOurOwn leaves a test out, by name, where one of the servers is the user's: it would stop, pause or reconfigure it.
func (s *Suite) NeedsOurOwn(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if os.Getenv(name) != "" {
			t.Skipf("left out: %s names a server that is not ours, and this case stops or reconfigures it", name)
		}
	}
}

// Dir is a directory that is removed when the test ends. Its path is short: a node's socket lies in such a one.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "twgd-t-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Must ends the test where there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Await calls look until it is content, and fails the test after bound, with what look said last.
func Await(t testing.TB, what string, bound time.Duration, look func() (seen string, ok bool)) {
	t.Helper()
	begin := time.Now()
	for {
		seen, ok := look()
		if ok {
			return
		}
		if time.Since(begin) > bound {
			t.Fatalf("waited %v for %s; last seen: %s", bound, what, seen)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// WithKafka is the suite with a broker of its own, for a test that does to it what others would not bear. It ends with the test.
func (s *Suite) WithKafka(t testing.TB) *Suite {
	t.Helper()
	k, err := servers.Kafka(t.Context(), servers.KafkaOptions{Heap: "256m", Properties: map[string]string{"group.min.session.timeout.ms": "1000"}})
	Must(t, err)
	own := *s
	own.Kafka = k
	t.Cleanup(func() { own.admin.Close(); Must(t, k.Close()) })
	Must(t, own.connect(t.Context()))
	return &own
}
