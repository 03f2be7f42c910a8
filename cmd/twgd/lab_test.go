package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is a broker in memory and a directory for everything else. Commands run inside the process, as main runs them.
type lab struct {
	*testing.T
	broker *kfake.Cluster
	client *kgo.Client
	dir    string
	node   *node
}

func newLab(t *testing.T) *lab {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.DefaultProduceTopic("orders"), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	dir, err := os.MkdirTemp("", "twgd") // a short path: that of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &lab{T: t, broker: broker, client: client, dir: dir}
}

// config writes a configuration with one stream. source and sink are added to those of the example below.
func (l *lab) config(name, source, sink string) string {
	l.Helper()
	text := fmt.Sprintf(`
node: {id: one, data_dir: %[1]s/%[2]s, http: "127.0.0.1:0", shutdown_grace: 10s}
streams:
  - name: orders
    source: {kafka: {brokers: [%[3]q], partitions: {orders: [0]}%[4]s}}
    raw: {to: "file://%[1]s/raw", flush: {age: 10ms}}
    quarantine: {to: "file://%[1]s/quarantine"}
    sinks: [{name: lake, parquet: {to: "file://%[1]s/lake", roll: {age: 1s}}%[5]s}]
`, l.dir, name, l.broker.ListenAddrs()[0], source, sink)
	file := filepath.Join(l.dir, name+".yaml")
	l.must(os.WriteFile(file, []byte(text), 0o644))
	return file
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// produce writes records with these values, and returns when the broker has them.
func (l *lab) produce(values ...string) {
	l.Helper()
	var records []*kgo.Record
	for i, v := range values {
		records = append(records, &kgo.Record{Key: fmt.Appendf(nil, "k%d", i), Value: []byte(v)})
	}
	l.must(l.client.ProduceSync(l.Context(), records...).FirstErr())
}

// start runs a node until the function returned is called, or the test ends.
func (l *lab) start(file string) (stop func()) {
	l.Helper()
	cfg, err := loadConfig(file)
	l.must(err)
	n, err := newNode(cfg, slog.New(slog.NewTextHandler(l.Output(), nil)), joining{})
	l.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	l.node = n
	done := false
	stop = func() {
		if !done {
			done = true
			cancel()
			if err := <-ended; err != nil {
				l.Errorf("the node ended with %v", err)
			}
		}
	}
	l.Cleanup(stop)
	return stop
}

// until waits for something that comes by itself.
func (l *lab) until(what string, f func() bool) {
	l.Helper()
	l.within(20*time.Second, what, f)
}

// within is until for what takes its time.
func (l *lab) within(bound time.Duration, what string, f func() bool) {
	l.Helper()
	for end := time.Now().Add(bound); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.Fatalf("waited in vain until %s; status: %+v", what, l.status())
		}
	}
}

func (l *lab) status() admin.Stream { return l.node.status().Streams[0] }

// covered waits until the sink holds n offsets.
func (l *lab) covered(n int64) {
	l.Helper()
	l.until(fmt.Sprintf("%d offsets are covered", n), func() bool {
		k := l.status().Sinks[0]
		return k.Covered != nil && *k.Covered == n
	})
}

// get asks the node over HTTP.
func (l *lab) get(path string) (int, string) {
	l.Helper()
	resp, err := http.Get("http://" + l.node.server.Address() + path)
	l.must(err)
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(resp.Body)
	l.must(err)
	return resp.StatusCode, string(body)
}

// twgd runs a command and returns its exit code with what it printed.
func (l *lab) twgd(args ...string) (code int, stdout, stderr string) {
	l.Helper()
	var out, errs bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = report(&errs, cmd.ExecuteContext(l.Context()))
	return code, out.String(), errs.String()
}

// wants runs a command and checks its exit code and that its output, of both kinds, holds these texts.
func (l *lab) wants(code int, texts []string, args ...string) string {
	l.Helper()
	got, stdout, stderr := l.twgd(args...)
	if got != code {
		l.Errorf("twgd %q ends with %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	for _, w := range texts {
		if !bytes.Contains([]byte(stdout+stderr), []byte(w)) {
			l.Errorf("twgd %q does not say %q:\n%s%s", args, w, stdout, stderr)
		}
	}
	return stdout
}

// decode runs a command with -o json.
func decode[T any](l *lab, code int, args ...string) (v T) {
	l.Helper()
	out := l.wants(code, nil, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		l.Fatalf("twgd %q: %v:\n%s", args, err, out)
	}
	return v
}
