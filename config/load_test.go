package config

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/sinks/parquet"
	"github.com/stream-arrow/twgd/sinks/postgres"
	"github.com/stream-arrow/twgd/sources/kafka"
)

var update = flag.Bool("update", false, "write golden files")

func testParts() Parts {
	return Parts{
		Sources: []SourceKind{{"kafka", "Topics of a Kafka cluster.", func() SourceOptions { return new(kafka.Config) }}},
		Sinks: []SinkKind{
			{"parquet", "Parquet files in a directory or a bucket.", func() SinkOptions { return new(parquet.Config) }},
			{"postgres", "A table of PostgreSQL.", func() SinkOptions { return new(postgres.Config) }},
		},
		Location: func(url string) error {
			if strings.Contains(url, "acl=") {
				return errors.New("unknown setting \"acl\"")
			}
			return nil
		},
		Recipient: func(text string) error {
			if !strings.HasPrefix(text, "age1") || len(text) < 20 {
				return errors.New("this is no recipient")
			}
			return nil
		},
	}
}

// canary is in every file that an expansion reads.
const canary = "s3cr3t-canary-long-enough"

func testExpander() expander {
	env := map[string]string{"NODE": "n1", "GRACE": "", "MANY": "7x", "TRUE": "true", "PG_DSN": "postgres://db/x", "N": "12"}
	files := map[string]string{"/secret": canary + "\n", "/regex": canary + "(", "/near": "read_comitted", "/url": "gs://" + canary}
	return expander{
		env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		read: func(path string) ([]byte, error) {
			if text, ok := files[path]; ok {
				return []byte(text), nil
			}
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		},
	}
}

// TestGolden loads each file of testdata and compares what a user sees: the mistakes (.err), or the effective configuration
// (.show).
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := load(data, filepath.Base(file), testExpander(), testParts())
	kind, got := ".show", ""
	if err != nil {
		kind, got = ".err", err.Error()+"\n"
	} else {
		got = string(Show(cfg))
	}
	for _, secret := range []string{canary, "hunter2", "1234567"} {
		if strings.Contains(got, secret) {
			t.Errorf("%s is printed", secret)
		}
	}
	compare(t, strings.TrimSuffix(file, ".yaml")+kind, got)
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got\n%s\nwant\n%s", file, got, want)
	}
}

func TestDefaultsThatDependOnOtherKeys(t *testing.T) {
	cfg := mustLoad(t, `
node: {id: n1, data_dir: /d}
streams:
  - name: a
    source: {kafka: {brokers: [k:1], topics: [a], group: g}}
    raw: {to: s3://bucket/raw}
    sinks:
      - {name: lake, parquet: {to: file:///lake, roll: {age: 3m}}}
      - {name: db, postgres: {dsn: "${PG_DSN}", table: t}}
      - {name: db2, deadline: 7s, postgres: {dsn: "${PG_DSN}", table: u}}
  - name: b
    source: {kafka: {brokers: [k:1], partitions: {b: [0, 2]}}}
    raw: {to: file:///raw, flush: {records: "${N}"}}
`)
	a, b := cfg.Streams[0], cfg.Streams[1]
	f := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	f("flush.age on s3", a.Raw.Flush.Age, "5s")
	f("flush.age in a directory", b.Raw.Flush.Age, "100ms")
	f("deadline of files", a.Sinks[0].Deadline, "15m")
	f("deadline of rows", a.Sinks[1].Deadline, "1m")
	f("deadline given", a.Sinks[2].Deadline, "7s")
	f("quarantine", a.Quarantine.To, "file:///d/quarantine")
	f("records from the environment", b.Raw.Flush.Records, 12)
	f("partitions", b.Source.Options.(*kafka.Config).Partitions, map[string][]int32{"b": {0, 2}})
	f("dsn", a.Sinks[1].Options.(*postgres.Config).DSN, "postgres://db/x")
	f("roll", a.Sinks[0].Options.RollAge(), 3*time.Minute)
	f("host", cfg.Node.HTTP, "127.0.0.1:7480")
}

func mustLoad(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := load([]byte(text), "t.yaml", testExpander(), testParts())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestHostNameIsTheID(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip("this machine has no name")
	}
	cfg := mustLoad(t, strings.Replace(minimal(t), "id: n1", "", 1))
	if cfg.Node.ID != host {
		t.Errorf("got %s, want %s", cfg.Node.ID, host)
	}
}

func minimal(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestMemIsForTests(t *testing.T) {
	text := strings.Replace(minimal(t), "file:///var/lib/twgd/raw", "mem://raw", 1)
	parts := testParts()
	if _, err := load([]byte(text), "t.yaml", testExpander(), parts); err == nil || !strings.Contains(err.Error(), "mem: forgets") {
		t.Errorf("got %v", err)
	}
	parts.AllowMem = true
	if _, err := load([]byte(text), "t.yaml", testExpander(), parts); err != nil {
		t.Error(err)
	}
}

// TestAliasesThatExplode is a file of a few hundred bytes that stands for millions of sinks.
func TestAliasesThatExplode(t *testing.T) {
	text := "streams:\n  - &a {name: a, sinks: &s [" + "{name: x}" + strings.Repeat(", {name: x}", 300) + "]}\n" + strings.Repeat("  - *a\n", 5000)
	_, err := load([]byte(text), "t.yaml", testExpander(), testParts())
	if err == nil || !strings.Contains(err.Error(), "the aliases of this file stand for too much") {
		t.Error("not refused")
	}
	if n := len(err.(Problems)); n > 50000 {
		t.Errorf("%d problems", n)
	}
}

func TestAnAliasOfItself(t *testing.T) {
	if _, err := load([]byte("streams: &a [{sinks: *a, raw: {to: *a}}]\n"), "t.yaml", testExpander(), testParts()); err == nil {
		t.Error("not refused")
	}
}

func TestProblemsAreSorted(t *testing.T) {
	data, err := os.ReadFile("testdata/typos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = load(data, "t.yaml", testExpander(), testParts())
	var ps Problems
	if !errors.As(err, &ps) || len(ps) < 10 {
		t.Fatalf("got %v", err)
	}
	if !slices.IsSortedFunc(ps, func(a, b Problem) int { return a.Line - b.Line }) {
		t.Error("not in the file's order")
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte("abc\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := expander{func(string) (string, bool) { return "", false }, readFile}
	if got, secret, err := e.expand("<${file:" + file + "}>"); got != "<abc\n>" || !secret || err != nil {
		t.Errorf("got %q, %v, %v", got, secret, err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, largest+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, "/dev/zero", large, filepath.Join(dir, "none")} {
		if _, _, err := e.expand("${file:" + path + "}"); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}

func TestExpand(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got, _, err := testExpander().expand(text); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	f("plain $ {x}", "plain $ {x}")
	f("a${NODE}b${N}", "an1b12")
	f("${NOPE:-x:-y}", "x:-y")
	f("${NOPE:-}", "")
	f("${GRACE}", "")
	f("$${NODE}", "${NODE}")
	f("$$${NODE}", "$${NODE}")
	f("^a$|${N}$", "^a$|12$")
	for _, text := range []string{"${", "${}", "${NOPE}", "${a-b}", "${file:}", "${file:x}", "${1A}", "${NODE:x}"} {
		if got, _, err := testExpander().expand(text); err == nil {
			t.Errorf("%s is %q", text, got)
		}
	}
}

func TestNear(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := near(text, []string{"to", "compression", "flush", "queue", "max_record", "topics", "topics_regex"}); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	f("compresion", "compression")
	f("Compression", "compression")
	f("fluhs", "flush")
	f("topic", "topics")
	f("maxRecord", "max_record")
	f("ot", "to")
	f("retention", "")
	f("x", "")
	f(strings.Repeat("flush", 100), "")
}

func TestOverlap(t *testing.T) {
	f := func(a, b string, want bool) {
		t.Helper()
		what, got := overlap(a, b)
		if got != want {
			t.Errorf("%s and %s: got %v (%s), want %v", a, b, got, what, want)
		}
		if back, again := overlap(b, a); again != got {
			t.Errorf("%s and %s: %v (%s) the other way round", b, a, again, back)
		}
	}
	f(`^orders\.`, `\.eu$`, true)
	f(`^orders\.`, `^payments\.`, false)
	f(`orders`, `payments`, true)
	f(`^a+$`, `^(aa)+$`, true)
	f(`^a(aa)*$`, `^(aa)+$`, false)
	f(`^.{3}$`, `^.{4}$`, false)
	f(`(?i)^ABC$`, `^abc$`, true)
	f(`\borders\b`, `^x_orders$`, false)
	f(`\borders\b`, `^x-orders$`, true)
	f(`^ä$`, `.`, false)
	f(`^$`, ``, false)
	f(`a$b`, `.*`, false)
	f(`same`, `same`, true)
	f(`(`, `.*`, false)
	f(`^a.{40}$`, `^b`, false)
}

// TestHopelessFiles are refused without much work.
func TestHopelessFiles(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := load([]byte(text), "t.yaml", testExpander(), testParts())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f(strings.Repeat("a: {\n", 2000), "this is not YAML")
	f("a: \""+strings.Repeat("\n", 2000)+strings.Repeat("x", 12000), "found unexpected end of stream")
	f(strings.Repeat("a: [b, c, d]\n", 2000)+"  }\n", "t.yaml:2001:3: ")
	f("a: b\r\nc: d\re: \xff", "t.yaml:3:4: the file is not UTF-8")
	f("}\n"+strings.Repeat("a: [b, c, d]\n", 100), "t.yaml:1:1: ")
}

// TestRichPatterns are refused in one group rather than compared for ever.
func TestRichPatterns(t *testing.T) {
	what, shared := overlap(`^(a|b)*a.{12}$`, `^(a|b)*b.{12}ä$`)
	if !shared || what != cannotTell {
		t.Errorf("got %v, %s", shared, what)
	}
	long := strings.Repeat("abcdefghij", 60)
	if what, shared = overlap(long, "x"); !shared || what != cannotTell {
		t.Errorf("got %v, %s", shared, what)
	}
}
