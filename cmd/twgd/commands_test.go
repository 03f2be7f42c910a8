package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/stream-arrow/twgd/audit"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

func TestUsage(t *testing.T) {
	l := newLab(t)
	file := l.config("one", "", "")
	f := func(code int, text string, args ...string) { t.Helper(); l.wants(code, []string{text}, args...) }
	f(exitUsage, `did you mean audit?`, "audti")
	f(exitUsage, `no command "nonsense"`, "nonsense")
	f(exitDone, "twgd raw ls -c twgd.yaml", "raw")
	f(exitUsage, "there is no command `twgd raw dog`; there is ls, cat, verify, resume", "raw", "dog")
	f(exitDone, "twgd version dev", "--version")
	f(exitDone, "\n  \"commit\": ", "version", "-o", "json")
	f(exitUsage, "see `twgd audit --help`", "audit", "--rwos")
	f(exitUsage, "text or json", "version", "-o", "xml")
	f(exitUsage, "no configuration file", "audit")
	f(exitUsage, "no such file or directory; `twgd config example` prints one", "audit", "-c", filepath.Join(l.dir, "none.yaml"))
	f(exitUsage, `no stream "other"`, "audit", "-c", file, "--stream", "other")
	f(exitUsage, "--skip-to are needed", "raw", "resume", "-c", file, "--topic", "orders")
	f(exitUsage, "--sink goes with --from", "recover", "-c", file, "--sink", "lake", "--to", "3")
	f(exitUsage, "--to 5 does not lie above --from 10", "recover", "-c", file, "--sink", "lake", "--from", "10", "--to", "5")
	f(exitUsage, "never negative", "recover", "-c", file, "--sink", "lake", "--from", "-1", "--to", "5")
	f(exitUsage, "goes with --sink", "recover", "-c", file, "--from", "3")
	f(exitUsage, `no sink "db"; it has ["lake"]`, "quarantine", "ls", "-c", file, "--sink", "db")
	f(exitUsage, "--since 7x: ", "quarantine", "ls", "-c", file, "--since", "7x")
	f(exitFailed, "nothing was stored yet", "quarantine", "ls", "-c", file, "--since", "7d")
	f(exitFailed, "nothing was stored yet", "audit", "-c", file)
	f(exitFailed, "twgd: no node runs on "+l.dir+"/one; start one: `twgd run -c "+file+"`\n", "status", "-c", file)
	f(exitDone, "twgd audit -c twgd.yaml", "audit", "--help")
	f(exitDone, "sources: [kafka]", "version")
}

func TestEveryCommandHasAnExample(t *testing.T) {
	all := root().Commands()
	for len(all) > 0 {
		cmd := all[0]
		all = append(all[1:], cmd.Commands()...)
		if name := cmd.Name(); cmd.Example == "" && name != "help" && name != "completion" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	}
}

func TestValidate(t *testing.T) {
	l := newLab(t)
	file := l.config("one", "", "")
	l.wants(exitDone, []string{"source: ok", "raw: ok", "sink lake: ok", "valid"}, "validate", "-c", file, "--connect")
	bad := filepath.Join(l.dir, "bad.yaml")
	l.must(os.WriteFile(bad, []byte("node: {htp: 1}\nstreams: [{name: Orders}]\n"), 0o644))
	l.wants(exitUsage, []string{"bad.yaml:1:8: node.htp", "did you mean http", "streams[0].source"}, "validate", "-c", bad)
	if v := decode[validation](l, exitUsage, "validate", "-c", bad); len(v.Problems) < 3 {
		t.Errorf("%d problems", len(v.Problems))
	}
	l.broker.Close()
	v := decode[validation](l, exitFailed, "validate", "-c", file, "--connect")
	if v.failed() != 1 || !strings.Contains(v.Connections[0].Error, "refused") {
		t.Errorf("connections %+v", v.Connections)
	}
}

func TestConfigCommands(t *testing.T) {
	l := newLab(t)
	file := l.config("one", ", sasl: {mechanism: PLAIN, username: u, password: s3cret}", "")
	if out := l.wants(exitDone, []string{"shutdown_grace: 10s"}, "config", "show", "-c", file); strings.Contains(out, "s3cret") {
		t.Error("the password is shown")
	}
	decode[map[string]any](l, exitDone, "config", "show", "-c", file)
	decode[map[string]any](l, exitDone, "config", "schema")
	example := filepath.Join(l.dir, "example.yaml")
	l.must(os.WriteFile(example, []byte(l.wants(exitDone, nil, "config", "example")), 0o644))
	data, err := os.ReadFile(example)
	l.must(err)
	if _, err := config.Load(data, example, func(string) (string, bool) { return "postgres://db/x", true }, parts); err != nil {
		t.Errorf("the example does not load: %v", err)
	}
}

func TestARunningNode(t *testing.T) {
	l := newLab(t)
	file := l.config("one", "", "")
	l.produce("{}", "2", "3")
	begun := time.Now()
	stop := l.start(file)
	l.until("it is ready", func() bool { code, _ := l.get("/ready"); return code == 200 })
	t.Logf("ready after %s", time.Since(begun))
	l.covered(3)
	if code, _ := l.get("/live"); code != 200 {
		t.Error("it is not live")
	}
	l.wants(exitDone, []string{"stream orders: running", "orders/0", "lake"}, "status", "-c", file)
	l.wants(exitDone, []string{"orders  lake  0"}, "recover", "-c", file)
	l.wants(exitDone, []string{"nothing to replay"}, "recover", "-c", file, "--sink", "lake", "--from", "0", "--to", "3")
	l.wants(exitUsage, []string{`no sink "db"`}, "recover", "-c", file, "--sink", "db", "--from", "0", "--to", "3")
	l.wants(exitUsage, []string{"does not read orders/7"}, "raw", "resume", "-c", file, "--topic", "orders", "--partition", "7", "--skip-to", "9")
	l.wants(exitRefused, []string{"orders/0 is not held"}, "raw", "resume", "-c", file, "--topic", "orders", "--partition", "0", "--skip-to", "9")
	l.wants(exitDone, []string{"accounted for"}, "audit", "-c", file, "--rows")

	busy := filepath.Join(l.dir, "busy.yaml")
	text, err := os.ReadFile(l.config("three", "", ""))
	l.must(err)
	l.must(os.WriteFile(busy, bytes.Replace(text, []byte("127.0.0.1:0"), []byte(l.node.server.Address()), 1), 0o644))
	l.wants(exitFailed, []string{"address already in use; set node.http to another address"}, "run", "-c", busy)
	l.wants(exitRefused, []string{"belongs to one process", "pid"}, "run", "-c", file)
	l.wants(exitRefused, []string{"stream orders is refused", "is locked by another process"}, "run", "-c", l.config("two", "", ""))
	stop()
	l.wants(exitFailed, []string{"no node runs on "}, "status", "-c", file)
}

// A file that is gone is written again by recover, with the same rows.
func TestRecoverALostFile(t *testing.T) {
	l := newLab(t)
	file := l.config("one", "", "")
	l.produce("1", "2", "3")
	l.start(file)
	l.covered(3)
	lost := l.parquet()[0]
	was, err := os.ReadFile(lost)
	l.must(err)
	l.must(os.Remove(lost))
	l.wants(exitDone, []string{"replayed 1 window of 1 partition\n"}, "recover", "-c", file, "--sink", "lake", "--from", "0", "--to", "1")
	got, err := os.ReadFile(lost)
	l.must(err)
	if len(got) != len(was) {
		t.Errorf("the file has %d bytes, it had %d", len(got), len(was))
	}
	l.wants(exitDone, nil, "audit", "-c", file, "--rows")
}

func (l *lab) parquet() []string {
	l.Helper()
	files, err := filepath.Glob(l.dir + "/lake/orders/*/*/*.parquet")
	l.must(err)
	return files
}

// note notes a duplicate, and returns the file.
func (l *lab) note(topicID string) (path string) {
	l.Helper()
	id, err := record.ParseTopicID(topicID)
	l.must(err)
	b, err := store.Open(l.Context(), "file://"+l.dir+"/raw", store.Options{})
	l.must(err)
	defer b.Close()
	p := record.Partition{Cluster: "another", Topic: "orders", TopicID: id}
	w := duplicates.NewWriter(duplicates.Options{Bucket: b, Stream: "orders", Node: "n", Instance: "i"})
	n := duplicates.Noted{Partition: p, Span: checkpoint.Span{From: 0, To: 3}, Dropped: []duplicates.Dropped{{Offset: 1}}}
	l.must(w.Append(l.Context(), []duplicates.Noted{n}))
	return filepath.Join(l.dir, "raw", "orders", "_duplicates", filepath.FromSlash(p.Path()), record.OffsetName(0)+".avro")
}

func TestAuditFindsWhatIsMissing(t *testing.T) {
	l := newLab(t)
	file := l.config("one", "", "")
	l.produce("1", "2", "3")
	stop := l.start(file)
	l.covered(3)
	l.produce("4", "5")
	l.covered(5)
	stop()
	r := decode[[]audit.Report](l, exitDone, "audit", "-c", file, "--rows")[0]
	if p := r.Partitions[0]; p.Raw.Records != 5 || p.Sinks[0].Rows.Rows != 5 || *p.Unread != 0 {
		t.Errorf("%+v %+v", p.Raw, p.Sinks[0])
	}

	files := l.parquet()
	if len(files) < 2 {
		t.Fatalf("files: %q", files)
	}
	l.hidden(files[0], func() {
		l.wants(exitAudit, []string{"lost: sink lake no longer holds [0, 3)", "twgd recover -c " + file + " --stream orders --sink lake", "not every record"}, "audit", "-c", file)
	})
	other, err := os.ReadFile(files[1])
	l.must(err)
	l.hidden(files[0], func() { // a file with fewer rows in its place
		l.must(os.WriteFile(files[0], other, 0o644))
		l.wants(exitAudit, []string{"uncounted: ", "damaged or not one of ours"}, "audit", "-c", file, "--rows")
		l.must(os.Remove(files[0]))
	})
	segments, err := filepath.Glob(l.dir + "/raw/orders/*/0/*.avro")
	l.must(err)
	l.hidden(segments[0], func() { l.wants(exitAudit, []string{"ahead: sink lake holds [0, 5)"}, "audit", "-c", file) })
	l.flipped(segments[0], func() {
		l.wants(exitDamaged, []string{"damage: raw of orders/0 is damaged", "`twgd raw verify`"}, "audit", "-c", file, "--full")
		l.wants(exitDamaged, []string{"damaged: ", "at byte"}, "raw", "verify", "-c", file)
		l.wants(exitDamaged, nil, "raw", "cat", "-c", file)
	})
	l.flipped(l.note(r.Partitions[0].TopicID), func() {
		l.wants(exitDamaged, []string{"damaged: orders/_duplicates/"}, "raw", "verify", "-c", file)
		l.wants(exitDamaged, []string{"damage: notes of duplicates: orders/_duplicates/"}, "audit", "-c", file, "--full")
	})
	l.wants(exitDone, []string{"1 chains are whole"}, "raw", "verify", "-c", file)
	l.wants(exitDone, nil, "audit", "-c", file, "--full")
}

// hidden takes a file away while f runs.
func (l *lab) hidden(path string, f func()) {
	l.Helper()
	aside := filepath.Join(l.dir, "aside")
	l.must(os.Rename(path, aside))
	f()
	l.must(os.Rename(aside, path))
}

// flipped changes a bit of a file's first block while f runs.
func (l *lab) flipped(path string, f func()) {
	l.Helper()
	b, err := os.ReadFile(path)
	l.must(err)
	bad := append([]byte(nil), b...)
	header := bytes.Index(b, b[len(b)-16:]) + 16 // it ends with the marker that also ends each block
	bad[header+10] ^= 4
	l.must(os.WriteFile(path, bad, 0o644))
	f()
	l.must(os.WriteFile(path, b, 0o644))
}

func TestCaseD17TheQuarantineKeepsCounting(t *testing.T) {
	l := newLab(t)
	file := l.config("one", "", ", max_record: 100B")
	l.produce("small", strings.Repeat("x", 1000), "\xff\x00")
	stop := l.start(file)
	l.covered(3)
	l.until("the trail is counted", func() bool { q := l.status().Quarantine; return q.Records != nil && *q.Records == 1 })
	if code, body := l.get("/metrics"); code != 200 || !strings.Contains(body, `twg_quarantine_records_total{reason="oversize",sink="lake",stream="orders"} 1`) {
		t.Errorf("/metrics %d has no count of rejects", code)
	}
	stop()
	var row map[string]any
	l.must(json.Unmarshal([]byte(l.wants(exitDone, nil, "quarantine", "cat", "-c", file, "--sink", "lake")), &row))
	if row["reason"] != "oversize" || row["offset"] != 1.0 || row["value_size"] != 1000.0 {
		t.Errorf("%+v", row)
	}
	if list := decode[[]quarantineFile](l, exitDone, "quarantine", "ls", "-c", file); len(list) != 1 || list[0].Sink != "lake" {
		t.Errorf("%+v", list)
	}
	if r := decode[[]audit.Report](l, exitDone, "audit", "-c", file, "--rows")[0]; r.Partitions[0].Sinks[0].LeftOut["oversize"] != 1 {
		t.Errorf("%+v", r)
	}
	l.start(file)
	l.until("the trail is read again", func() bool { q := l.status().Quarantine; return q.Records != nil && *q.Records == 1 })
}

func TestRawCat(t *testing.T) {
	l := newLab(t)
	file := l.config("one", "", "")
	l.produce("one", "\xff\x00", "")
	stop := l.start(file)
	l.covered(3)
	stop()
	lines := strings.Split(strings.TrimSpace(l.wants(exitDone, nil, "raw", "cat", "-c", file)), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"value":"one"`) || !strings.Contains(lines[1], `"value_b64":"/wA="`) ||
		strings.Contains(lines[1], `"value":`) || !strings.Contains(lines[2], `"value":""`) {
		t.Errorf("%q", lines)
	}
	if one := l.wants(exitDone, nil, "raw", "cat", "-c", file, "--topic", "orders", "--partition", "0", "--from", "1", "--limit", "1"); !strings.Contains(one, `"offset":1,`) || strings.Count(one, "\n") != 1 {
		t.Errorf("%q", one)
	}
	l.wants(exitUsage, []string{"no such partition"}, "raw", "cat", "-c", file, "--partition", "4")
	if list := decode[[]chainInfo](l, exitDone, "raw", "ls", "-c", file); len(list) != 1 || list[0].Next != 3 || len(list[0].Segments) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestCaseD25HeldUntilAnOperatorDecides(t *testing.T) {
	l := newLab(t)
	file := l.config("one", ", on_gap: stop", "")
	l.produce("0", "1", "2")
	stop := l.start(file)
	l.covered(3)
	stop()
	l.produce("3", "4", "5", "6", "7")
	offsets := kadm.Offsets{}
	offsets.AddOffset("orders", 0, 6, -1)
	_, err := kadm.NewClient(l.client).DeleteRecords(l.Context(), offsets)
	l.must(err)

	l.start(file)
	l.until("the partition is held", func() bool {
		code, body := l.get("/ready")
		return code == 503 && strings.Contains(body, "retention took")
	})
	l.wants(exitAudit, []string{"gap: 3 offsets [3, 6)"}, "audit", "-c", file)
	if st := l.status(); st.State != "blocked" || !strings.Contains(st.Reason, "retention took") {
		t.Errorf("the stream is %s, %q", st.State, st.Reason)
	}
	if _, body := l.get("/metrics"); !strings.Contains(body, `twg_source_held{partition="0",stream="orders",topic="orders"} 1`) {
		t.Error("no metric says that the partition is held")
	}
	l.wants(exitDone, []string{"  orders/0 is held: retention took", "`twgd raw resume --skip-to 6` loses nothing more\n  sink "}, "status", "-c", file)
	resume := func(code int, text, to string, more ...string) {
		t.Helper()
		l.wants(code, []string{text}, append([]string{"raw", "resume", "-c", file, "--topic", "orders", "--partition", "0", "--skip-to", to}, more...)...)
	}
	resume(exitRefused, "can be read from 6; --skip-to 6 loses nothing more", "7")
	resume(exitRefused, "--force", "50000")
	resume(exitRefused, "never goes back", "3", "--force")
	l.wants(exitAudit, []string{"gap: 3 offsets [3, 6)"}, "audit", "-c", file, "--accept-gaps")
	resume(exitDone, "it is held again: retention took the offsets [4, 6)", "4")
	resume(exitDone, "orders/0 goes on at 6; the gap [4, 6) is on record\nit is read", "6")
	l.covered(8)
	l.wants(exitAudit, []string{"gap: 1 offsets [3, 4)", "gap: 2 offsets [4, 6)", "operator: retention took the offsets [4, 6) and on_gap is stop\n"}, "audit", "-c", file, "--rows")
	if _, body := l.get("/metrics"); !strings.Contains(body, `twg_source_held{partition="0",stream="orders",topic="orders"} 0`) {
		t.Error("the metric says that the partition is still held")
	}
	l.wants(exitDone, []string{"is accepted"}, "audit", "-c", file, "--rows", "--accept-gaps")
}

func TestAnotherCluster(t *testing.T) {
	l := newLab(t)
	l.produce("1")
	stop := l.start(l.config("one", "", ""))
	l.covered(1)
	stop()
	file := l.config("one", ", cluster_id: other", "")
	l.start(file)
	l.until("it says why", func() bool {
		code, body := l.get("/ready")
		return code == 503 && strings.Contains(body, "was founded on Kafka cluster")
	})
	l.wants(exitDone, []string{"stream orders: blocked (stream orders was founded on Kafka cluster"}, "status", "-c", file)
}

// What is for a node that does not run is refused beside one that does.
func TestRestoreAndDropBesideARunningNode(t *testing.T) {
	l := newLab(t)
	file := filepath.Join(l.dir, "c.yaml")
	l.must(os.WriteFile(file, fmt.Appendf(nil, `
node: {id: one, data_dir: %[1]s/one, http: "127.0.0.1:0"}
cluster: {name: test, size: 1, backup: {to: "file://%[1]s/backups"}}
streams: []
`, l.dir), 0o644))
	stop := l.start(file)
	l.until("it leads", func() bool {
		_, out, _ := l.twgd("members", "-c", file)
		return strings.Contains(out, "leader one")
	})
	for _, args := range [][]string{{"restore"}, {"restore", "--from-disk"}} {
		l.wants(exitRefused, []string{"a node runs on", "stop it first"}, append(args, "-c", file)...)
	}
	stop()
	l.wants(exitRefused, []string{"this disk has a log"}, "restore", "-c", file)
	l.wants(exitDone, []string{"put aside"}, "leave", "--drop", "-c", file)
}
