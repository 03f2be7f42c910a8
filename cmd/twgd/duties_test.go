package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/recovery"
)

// shares are claims and elections that several nodes of one process share, as those of a cluster are shared.
type shares struct {
	claims  recovery.Local
	offices sync.Map // name → chan struct{} of one place
}

// Elected implements recovery.Elections: one node at a time, in the order in which they ask.
func (e *shares) Elected(ctx context.Context, name string, role func(context.Context)) {
	got, _ := e.offices.LoadOrStore(name, make(chan struct{}, 1))
	office := got.(chan struct{})
	select {
	case office <- struct{}{}:
		role(ctx)
		<-office
	case <-ctx.Done():
	}
}

// fleetConfig writes a configuration of one of several nodes.
func (l *lab) fleetConfig(name string) string {
	l.Helper()
	text := fmt.Sprintf(`
node: {id: %[2]s, data_dir: %[1]s/%[2]s, http: "127.0.0.1:0", shutdown_grace: 10s}
streams:
  - name: orders
    source: {kafka: {brokers: [%[3]q], partitions: {orders: [0]}}}
    raw: {to: "file://%[1]s/raw", shared: true, flush: {age: 10ms}}
    quarantine: {to: "file://%[1]s/quarantine-%[2]s"}
    sinks: [{name: lake, parquet: {to: "file://%[1]s/lake", roll: {age: 1s}}, deadline: 3s}]
`, l.dir, name, l.broker.ListenAddrs()[0])
	file := filepath.Join(l.dir, name+".yaml")
	l.must(os.WriteFile(file, []byte(text), 0o644))
	return file
}

// join starts a node of a fleet.
func (l *lab) join(e *shares, name, mode string) (n *node, stop func()) {
	l.Helper()
	cfg, err := loadConfig(l.fleetConfig(name))
	l.must(err)
	cfg.Node.Mode = mode
	n, err = newNode(cfg, slog.New(slog.NewTextHandler(l.Output(), nil)), joining{})
	l.must(err)
	n.duties = duties{claims: &e.claims, elections: e, shared: true}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.Errorf("node %s ended with %v", name, err)
		}
	})
	l.Cleanup(stop)
	l.node = n
	return n, stop
}

// backlog is what a node shows of twg_recovery_backlog_windows; absent where it shows none.
func (l *lab) backlog(n *node) (windows float64, shown bool) {
	l.Helper()
	families, err := n.registry.Gather()
	l.must(err)
	for _, f := range families {
		if f.GetName() == "twg_recovery_backlog_windows" {
			for _, m := range f.GetMetric() {
				return m.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

// A fleet that recovers scales from nothing and back: while nobody recovers, the node that ingests shows what is behind; a node of mode
// recovery, which reads no source, fills it and what nobody reads any more; then nothing is behind.
func TestFleetScalesFromZero(t *testing.T) {
	l := newLab(t)
	e := &shares{}
	ingest, _ := l.join(e, "ingest", modeIngest)
	lake := filepath.Join(l.dir, "lake")
	l.until("the stream is open", func() bool { return l.status().State == "running" })
	l.covered(0)
	l.must(os.RemoveAll(lake))
	l.must(os.WriteFile(lake, nil, 0o644)) // the sink is away
	l.produce("a", "b", "c")
	l.until("the gap shows", func() bool { n, shown := l.backlog(ingest); return shown && n > 0 })
	l.must(os.Remove(lake))
	worker, stop := l.join(e, "worker", modeRecovery)
	l.within(time.Minute, "the gap is filled", func() bool { // no sooner than what another may still write: 13 s after it was stored
		k := l.status().Sinks[0]
		return k.Covered != nil && *k.Covered == 3 && k.BacklogWindows != nil && *k.BacklogWindows == 0
	})
	st := worker.status()
	if !slices.Equal(st.Node.Roles, []string{"recovery"}) || st.Streams[0].State != "running" || len(worker.ready()) > 0 || worker.live() != nil {
		t.Errorf("%+v, not ready: %v", st, worker.ready())
	}
	if p := st.Streams[0].Partitions; len(p) != 1 || p[0].Position != nil || p[0].Lag != nil || *p[0].RawNext != 3 {
		t.Errorf("%+v", p)
	}
	l.within(time.Minute, "nothing is behind", func() bool { n, shown := l.backlog(ingest); return shown && n == 0 })
	if n, shown := l.backlog(worker); shown {
		t.Errorf("a node that is not elected shows a backlog of %v", n)
	}
	code, _ := l.get("/ready")
	if _, body := l.get("/metrics"); code != 200 || strings.Contains(body, "twg_source_buffered_bytes{") || !strings.Contains(body, `twg_recovery_windows_total{reason="done"`) {
		t.Errorf("%d, %s", code, body)
	}
	if _, err := worker.handleRecover(t.Context(), []byte(`{"sink":"lake","from":0,"to":3}`), func(any) {}); err != nil {
		t.Errorf("a replay by a node that reads nothing: %v", err)
	}
	stop()
	l.node = ingest
	l.produce("d")
	l.until("the rest goes its way", func() bool { return *l.status().Partitions[0].RawNext == 4 })
}

// A node that only recovers is refused where raw belongs to one process.
func TestRecoveryNeedsASharedRaw(t *testing.T) {
	l := newLab(t)
	cfg, err := loadConfig(l.config("one", "", ""))
	l.must(err)
	cfg.Node.Mode = modeRecovery
	n, err := newNode(cfg, slog.New(slog.NewTextHandler(l.Output(), nil)), joining{})
	l.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := n.run(ctx); report(io.Discard, err) != exitRefused || !strings.Contains(err.Error(), "needs a raw that the other nodes see too") {
		t.Errorf("it ended with %v", err)
	}
}

// The share of the budget reaches streams that run, and those that are opened later.
func TestShareOfTheBudget(t *testing.T) {
	l := newLab(t)
	l.start(l.config("one", "", ""))
	l.node.setShare(0.5)
	l.covered(0)
	r, _, _, _ := l.node.streams[0].look()
	f := func(want int64) {
		t.Helper()
		l.until(fmt.Sprintf("the budget is %d", want), func() bool {
			st, _ := r.pipe.Status(t.Context())
			return st.Budget == want
		})
	}
	f(int64(l.node.cfg.Streams[0].Budget) / 2)
	l.node.setShare(1)
	f(int64(l.node.cfg.Streams[0].Budget))
}
