package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestCaseK05SizesThatWork: the odd ones up to 7, and 0 for a node for itself. Every other is refused with the reason and with those.
func TestCaseK05SizesThatWork(t *testing.T) {
	for size := -1; size <= 10; size++ {
		text := strings.Replace(minimal(t), "streams:", fmt.Sprintf("cluster: {name: prod, size: %d, secret: 0123456789abcdef}\nstreams:", size), 1)
		text = strings.Replace(text, "file:///var/lib/twgd/raw", "s3://bucket/raw", 1)
		_, err := load([]byte(text), "t.yaml", testExpander(), testParts())
		works := size == 0 || size%2 == 1 && size > 0 && size < 8
		switch {
		case works != (err == nil):
			t.Errorf("size %d: %v", size, err)
		case !works && !strings.Contains(err.Error(), "0 (a node for itself), 1, 3, 5, 7"):
			t.Errorf("size %d is refused without those that work: %v", size, err)
		case !works && (size == 2 || size == 4 || size == 6) != strings.Contains(err.Error(), "tolerates no more failures"):
			t.Errorf("size %d is refused for another reason: %v", size, err)
		}
	}
}

// TestRefusalsOfPeers takes a file that loads, changes one thing, and looks for the reason.
func TestRefusalsOfPeers(t *testing.T) {
	const good = `
node: {id: n1, mode: both}
cluster: {name: prod, size: 3, secret: 0123456789abcdef, join: ["n2:7481"]}
streams:
  - name: a
    source: {kafka: {brokers: [k:1], topics: [a], group: g}}
    raw: {to: "file:///raw", shared: true}
`
	mustLoad(t, good)
	f := func(want string, changes ...string) {
		t.Helper()
		text := strings.NewReplacer(changes...).Replace(good)
		if text == good {
			t.Fatalf("%q is not in the file", changes[0])
		}
		_, err := load([]byte(text), "t.yaml", testExpander(), testParts())
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", changes, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(err.(Problems)) != 1):
			t.Errorf("%q: %v, want %s", changes, err, want)
		}
	}
	f("cluster.secret: this key is missing", "secret: 0123456789abcdef,", "")
	f("cluster.secret: this key is missing: a node joins", "secret: 0123456789abcdef,", "", "size: 3", "size: 1")
	f("", "secret: 0123456789abcdef,", "", "size: 3", "size: 1", `["n2:7481"]`, "[]")
	f("cluster.name: this key is missing", "name: prod,", "")
	f("cluster.secret: this secret is so short", "secret: 0123456789abcdef,", "secret: short,")
	f("sinks[0].parquet.shared: in a cluster of several nodes", "  - name: a", "  - name: a\n    sinks: [{name: lake, parquet: {to: file:///lake}}]")
	f("", "  - name: a", "  - name: a\n    sinks: [{name: lake, parquet: {to: file:///lake, shared: true}}]")
	f("raw.shared: in a cluster of several nodes", ", shared: true", "")
	f("raw.shared: in a cluster of several nodes", ", shared: true", "", "size: 3", "size: 1")
	f("", ", shared: true", "", "size: 3", "size: 1", `["n2:7481"]`, "[]")
	f("", ", shared: true", "", "file:///raw", "s3://bucket/raw")
	f("", "mode: both", "mode: recovery")
	f("", "mode: both", "mode: ingest")
	f("", "mode: both", "mode: recovery", "size: 3", "size: 1", `["n2:7481"]`, "[]")
	f("node.mode: a node that only recovers shares", "mode: both", "mode: recovery", "size: 3", "size: 0", `["n2:7481"]`, "[]")
	f("raw.shared: a node that only recovers reads", "mode: both", "mode: recovery", "size: 3", "size: 1", `["n2:7481"]`, "[]", "true", "false")
	f("cluster.join: a node of size 0", "size: 3", "size: 0")
	f("cluster.secret: this key is missing: there is a secret before", "size: 3", "size: 1", `["n2:7481"]`, "[]", "secret: 0123456789abcdef", "previous_secret: 0123456789abcdef")
	f("cluster.join[0]: this is no address of a node", "n2:7481", "n2:0")
	f("cluster.advertise: nobody is reached there", "size: 3", "size: 3, advertise: 'n1:0'")
	f("", "size: 3", "size: 3, advertise: 'n1:7481'")
	f("", "size: 3", "size: 3, advertise: 'fd00::1'")
	f("", "size: 3", "size: 3, advertise: '[fd00::1]:7481'")
	f("cluster.gossip: cluster.listen listens there", "size: 3", "size: 3, gossip: '127.0.0.1:7481'")
	f("cluster.listen: node.http listens there", "size: 3", "size: 3, listen: '127.0.0.1:7480'")
	f("", "size: 3", "size: 3, listen: '127.0.0.1:0', gossip: '127.0.0.1:0'")
	f("", "size: 3", "size: 3, listen: '10.0.0.1:7480'")
}

func TestANodeWithoutStreams(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := load([]byte(text), "t.yaml", testExpander(), testParts())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	f("cluster: {name: prod, size: 1}\n", "")
	f("cluster: {name: prod, size: 1}\nstreams: []\n", "")
	f("cluster: {name: prod, size: 0}\n", "streams: this key is missing")
	f("streams: []\n", "streams: this list is empty")
}

func TestRestoreWhereNobodyCouldRead(t *testing.T) {
	f := func(backup, want string) {
		t.Helper()
		c, err := load([]byte("cluster: {name: prod, size: 1, backup: {"+backup+"}}\n"), "t.yaml", testExpander(), testParts())
		if want == "" != (err != nil) || err == nil && c.Cluster.Backup.Restore != want {
			t.Errorf("%s: %v", backup, err)
		}
	}
	const key = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	f("", "auto")
	f("restore: never", "never")
	f("encrypt_to: ["+key+"]", "never")
	f("encrypt_to: ["+key+"], identity_file: /id", "auto")
	f("encrypt_to: ["+key+"], identity_file: /id, restore: never", "never")
	f("encrypt_to: ["+key+"], restore: auto", "")
}

func TestJoining(t *testing.T) {
	env := func(string) (string, bool) { return "", false }
	f := func(text string, j Joining, want string) *Config {
		t.Helper()
		c, err := LoadJoining([]byte(text), "t.yaml", env, testParts(), j)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the secret is printed: %v", err)
		}
		return c
	}
	c := f("cluster: {name: prod, size: 3, join: [a], secret: the-old-one-of-all}\n", Joining{"b:7", "hunter2-hunter2-hunter2"}, "")
	if c == nil || strings.Join(c.Cluster.Join, " ") != "a:7481 b:7" || c.Cluster.Secret != "hunter2-hunter2-hunter2" {
		t.Errorf("%+v", c)
	}
	if shown := string(Show(c)); strings.Contains(shown, "hunter2") || !strings.Contains(shown, "b:7") {
		t.Errorf("shown as %s", shown)
	}
	f("cluster: {name: prod, size: 3, secret: 0123456789abcdef}\n", Joining{Address: "b"}, "")
	f("cluster: {name: prod, size: 1}\n", Joining{Address: "b:7"}, "cluster.secret: this key is missing: a node joins")
	f("cluster: {name: prod, size: 1}\n", Joining{Address: "b:x"}, "this is no address of a node")
	f("cluster: {name: prod, size: 1}\n", Joining{Address: "hunter2:x", Secret: "hunter2"}, "this is no address of a node")
	f("cluster: {name: prod}\n", Joining{Address: "b:7"}, "cluster.join: a node of size 0")
}

func TestOrdinals(t *testing.T) {
	f := func(text, host string, want int) {
		t.Helper()
		c := mustLoad(t, strings.Replace(minimal(t), "id: n1", "id: n1, ordinal: "+text, 1))
		if got := c.Node.Ordinal.Of(host); got != want {
			t.Errorf("%s on %s is %d, want %d", text, host, got, want)
		}
	}
	f("auto", "twgd-2", 2)
	f("auto", "twgd-0", 0)
	f("auto", "twgd-012.twgd.default.svc9", 12)
	f("auto", "node3", 3)
	f("auto", "node", -1)
	f("auto", "", -1)
	f("auto", "n99999999999", -1)
	f("auto", "10", 10)
	f("7", "twgd-2", 7)
	f("0", "twgd-2", 0)
	f(`"5"`, "twgd-2", 5)
	f(`"${N}"`, "twgd-2", 12)
}

// TestSecretsPrintAsHidden: however a configuration gets into a message.
func TestSecretsPrintAsHidden(t *testing.T) {
	c := Cluster{Name: "prod", Secret: "hunter2", PreviousSecret: "hunter2"}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "cluster", c, "secret", c.Secret)
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "cluster", c, "secret", c.Secret)
	js, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %#v %s %q %v", c, c, c, c.Secret, c.Secret, &c) + logged.String() + string(js)
	if strings.Contains(all, "hunter2") || strings.Count(all, hidden) < 10 {
		t.Error(all)
	}
	if s := Secret("").String(); s != "" {
		t.Errorf("no secret prints as %q", s)
	}
}
