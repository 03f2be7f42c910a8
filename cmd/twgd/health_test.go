package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
)

// contract are the metrics of the single node that users build dashboards on.
const contract = `source_records_total source_bytes_total source_position source_lag_records source_lag_seconds source_paused
gate_records_total gate_bytes_total gate_commit_seconds gate_failures_total
lane_refused_total lane_queue_bytes sink_retries_total sink_records_total sink_rows_total sink_write_seconds sink_backoff_seconds sink_state
recovery_backlog_windows recovery_backlog_records recovery_backlog_bytes recovery_backlog_oldest_seconds
quarantine_records_total
flow_budget_bytes flow_admission_wait_seconds
build_info`

// seldom have no series before what they count has happened.
const seldom = `source_gap_records_total recovery_windows_total drops_total quarantine_shed_total`

func TestMetricsOfTheContract(t *testing.T) {
	l := newLab(t)
	l.produce("1", strings.Repeat("x", 1000))
	l.start(l.config("one", "", ", max_record: 100B"))
	l.covered(2)
	l.until("the position is told, and the trail counted", func() bool {
		_, body := l.get("/metrics")
		return strings.Contains(body, "twg_source_position{") && strings.Contains(body, "twg_quarantine_records_total{")
	})
	_, body := l.get("/metrics")
	for _, name := range strings.Fields(contract) {
		if !strings.Contains(body, "\ntwg_"+name+"{") && !strings.Contains(body, "\ntwg_"+name+"_bucket{") {
			t.Errorf("/metrics has no twg_%s", name)
		}
	}
	known := descriptions()
	for _, name := range strings.Fields(seldom) {
		if !strings.Contains(known, `fqName: "twg_`+name+`"`) {
			t.Errorf("nothing would count twg_%s", name)
		}
	}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "twg_") && strings.Contains(line, "xxx") {
			t.Errorf("a label holds a value of a user: %s", line)
		}
	}
}

// noted is a registry that only notes what is registered.
type noted struct{ b strings.Builder }

func (n *noted) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() { c.Describe(ch); close(ch) }()
	for d := range ch {
		n.b.WriteString(d.String())
	}
	return nil
}

func (n *noted) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		n.Register(c)
	}
}

func (n *noted) Unregister(prometheus.Collector) bool { return false }

// descriptions are those of all that a node registers.
func descriptions() string {
	var n noted
	n.MustRegister(&gauges{})
	pipeline.NewMetrics(&n)
	recovery.NewMetrics(&n)
	return n.b.String()
}

func TestLagInSeconds(t *testing.T) {
	var l lags
	at := time.Unix(0, 0)
	p := sinkPartition{"orders", record.Partition{}}
	f := func(second int, next, end int64, want time.Duration) {
		t.Helper()
		if got := l.see(p, next, end, at.Add(time.Duration(second)*time.Second)); got != want {
			t.Errorf("at %d s: %s, want %s", second, got, want)
		}
	}
	f(0, 10, 10, 0)
	f(1, 10, 20, 0)
	f(5, 10, 30, 4*time.Second) // 20 has been seen for 4 s
	f(6, 20, 30, time.Second)   // it is passed; 30 was first seen at 5
	f(7, 20, 20, 2*time.Second) // the end is not asked as often as we are
	f(8, 30, 30, 0)
	f(100, 30, 40, 0)
	if len(l.seen[p]) != 1 {
		t.Errorf("%d sightings are kept", len(l.seen[p]))
	}
}

func TestSilence(t *testing.T) {
	var i idle
	at := time.Unix(100, 0)
	f := func(what string, ok bool, after, want time.Duration) {
		t.Helper()
		i.answered(ok, at.Add(after))
		if got := i.silent(at.Add(after)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	f("answers", true, 0, 0)
	f("is silent from now on", false, time.Second, 0)
	f("still is", false, time.Minute, 59*time.Second)
	f("answers again", true, 2*time.Minute, 0)
	f("anew", false, 3*time.Minute, 0)
}

func TestLiveFailsOnlyWhenStuck(t *testing.T) {
	l := newLab(t)
	l.start(l.config("one", "", ""))
	s := l.node.streams[0]
	s.idle.since = time.Now().Add(-time.Hour)
	l.until("it answers", func() bool { code, _ := l.get("/live"); return code == 200 })
	l.broker.Close()
	if code, body := l.get("/live"); code != 200 {
		t.Errorf("a broker that is away is no reason to replace the process: %d %s", code, body)
	}
	stuck := &node{streams: []*stream{{cfg: s.cfg, log: s.log}}}
	stuck.streams[0].idle.since = time.Now().Add(-time.Hour)
	if err := stuck.live(); err == nil || !strings.Contains(err.Error(), "stream orders is stuck") {
		t.Errorf("a controller that has been silent for an hour: %v", err)
	}
}

func TestMemoryLimit(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	unset := func(string) (string, bool) { return "", false }
	outside := int64(0)
	f := func(what string, files map[string]string, want int64) {
		t.Helper()
		root := t.TempDir()
		for name, text := range files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		debug.SetMemoryLimit(math.MaxInt64)
		if got := limitMemory(unset, root, outside); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
		if got := debug.SetMemoryLimit(-1); want > 0 && got != want {
			t.Errorf("%s: the runtime has %d", what, got)
		}
	}
	f("no cgroup", nil, 0)
	f("version 2", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n"}, 900)
	f("version 2, the group above is tighter", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "500\n"}, 450)
	f("version 2, no limit", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0)
	f("version 2, seen from inside", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2000\n"}, 1800)
	f("version 1", map[string]string{"proc/self/cgroup": "5:cpu:/x\n9:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1000\n"}, 900)
	f("version 1, no limit", map[string]string{"proc/self/cgroup": "9:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0)
	one := map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2000\n"}
	outside = 1000
	f("beside what is not the collector's", one, 900)
	outside = 1900
	f("where hardly anything is left", one, 450)
	debug.SetMemoryLimit(123456789)
	if got := limitMemory(func(string) (string, bool) { return "whatever", true }, t.TempDir(), 0); got != 123456789 {
		t.Errorf("GOMEMLIMIT is overruled by %d", got)
	}
}

func TestDemo(t *testing.T) {
	l := newLab(t)
	dir := filepath.Join(l.dir, "demo")
	sum := decode[demoSummary](l, exitDone, "demo", "--seconds", "3", "--dir", dir)
	if sum.Produced < 1000 || sum.Raw != sum.Produced || sum.Rows != sum.Produced || sum.Files < 3 || sum.Audit.Verdict != "accounted" {
		t.Errorf("%+v", fmt.Sprint(sum.Produced, sum.Raw, sum.Rows, sum.Files, sum.Audit))
	}
	l.wants(exitDone, []string{"accounted for"}, "audit", "-c", filepath.Join(dir, "twgd.yaml"), "--rows")
	l.wants(exitRefused, []string{"is not empty"}, "demo", "--seconds", "1", "--dir", dir)
}

func TestDemoWithRepetitions(t *testing.T) {
	l := newLab(t)
	sum := decode[demoSummary](l, exitDone, "demo", "--seconds", "2", "--repeat", "20", "--dir", filepath.Join(l.dir, "demo"))
	if sum.Repeated < 100 || sum.Dropped > sum.Repeated || sum.Dropped < sum.Repeated/2 || sum.Raw != sum.Produced || sum.Rows != sum.Produced-sum.Dropped {
		t.Errorf("%+v", fmt.Sprint(sum.Produced, sum.Repeated, sum.Dropped, sum.Raw, sum.Rows))
	}
}
