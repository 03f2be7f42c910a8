package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// refusing is a loader that reads nothing: a $ref could otherwise name any file of the machine.
type refusing struct{}

func (refusing) Load(url string) (any, error) { return nil, errors.New("not read: " + url) }

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema(testParts())))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(refusing{})
	if err := c.AddResource("twgd.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("twgd.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance is a YAML file as JSON has it.
func instance(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSchemaAcceptsWhatLoads(t *testing.T) {
	s := compiled(t)
	f := func(name string, text []byte) {
		t.Helper()
		if _, err := load(text, name, testExpander(), testParts()); err != nil {
			t.Errorf("%s does not load: %v", name, err)
		}
		if err := s.Validate(instance(t, text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("the example", Example(testParts()))
	f("minimal", []byte(minimal(t)))
	f("shown", Show(mustLoad(t, minimal(t))))
	f("expansions", []byte(strings.NewReplacer("n1", `"${NODE}"`, "[orders]", `["${NODE}"]`).Replace(minimal(t))))
	for _, name := range []string{"three", "whole"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		f(name, data)
	}
	f("nothing given", []byte(strings.Replace(minimal(t), "node: {id: n1}", "node:\ncluster:", 1)))
}

func TestSchemaRefusesBadFiles(t *testing.T) {
	s := compiled(t)
	for _, name := range []string{"typos", "missing", "later", "listed", "clusterkeys"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(instance(t, data)) == nil {
			t.Errorf("%s.yaml is accepted", name)
		}
	}
	f := func(old, now string) {
		t.Helper()
		text := strings.Replace(minimal(t), old, now, 1)
		if text == minimal(t) {
			t.Fatalf("%q is not in the minimal file", old)
		}
		if s.Validate(instance(t, []byte(text))) == nil {
			t.Errorf("%q is accepted in place of %q", now, old)
		}
		if _, err := load([]byte(text), "t.yaml", testExpander(), testParts()); err == nil {
			t.Errorf("%q loads in place of %q", now, old)
		}
	}
	f("id: n1", "id: a/b")
	f("id: n1", "http: 80")
	f("id: n1", "shutdown_grace: 5")
	f("id: n1", "mode: recover")
	f("id: n1", "ordinal: -1")
	f("node:", "cluster: {voter_budget: 2}\nnode:")
	f("node:", "cluster: {found_after: 15}\nnode:")
	f("id: n1", "log: {level: 1}")
	f("id: n1", "log: []")
	f("name: orders", "name: Orders")
	f("[localhost:9092]", "[]")
	f("[localhost:9092]", "localhost:9092")
	f("[localhost:9092]", "[localhost]")
	f("group: g", "group: g, tls: {enabled: 1}")
	f("group: g", "partitions: {a: 1}")
	f("file:///var/lib/twgd/raw", "/var/lib/twgd/raw")
	f("{to: ", "{flush: {records: 0}, to: ")
	f("    raw: {to: file:///var/lib/twgd/raw}", "")
	f("    raw:", "    sinks: [{name: a}]\n    raw:")
	f("    raw:", "    sinks: [{name: a, parquet: {}}]\n    raw:")
	f("    raw:", "    sinks: [{name: a, parquet: {to: 'file:///a'}, postgres: {dsn: 'a=b', table: t}}]\n    raw:")
	f("node:", "extra: 1\nnode:")
}

// TestEveryKeyIsInTheSchema compares the schema with the fields found in the structs, and with the example and the reference.
func TestEveryKeyIsInTheSchema(t *testing.T) {
	var schema any
	if err := json.Unmarshal(Schema(testParts()), &schema); err != nil {
		t.Fatal(err)
	}
	example, reference := string(Example(testParts())), string(Reference(testParts()))
	keys := 0
	var walk func(f *field, at any, path string)
	walk = func(f *field, at any, path string) {
		for f.elem != nil {
			at, f = below(at, "items", "additionalProperties"), f.elem
		}
		children := f.fields
		if f.choice != nil {
			for _, k := range f.choice.kinds {
				children = append(children[:len(children):len(children)], k.spec)
			}
		}
		for _, c := range children {
			keys++
			if c.doc == "" {
				t.Errorf("%s.%s has no doc", path, c.name)
			}
			property := below(below(at, "properties"), c.name)
			if property == nil {
				t.Errorf("%s.%s is not in the schema", path, c.name)
			}
			if !strings.Contains(example, c.name+":") || !strings.Contains(reference, "| `"+c.name+"` |") {
				t.Errorf("%s.%s is not in the example, or not in the reference", path, c.name)
			}
			walk(c, property, path+"."+c.name)
		}
	}
	walk(specOf(testParts()), schema, "")
	if keys < 70 {
		t.Errorf("only %d keys are found", keys)
	}
}

// below is the first of the keys that an object has.
func below(v any, keys ...string) any {
	m, _ := v.(map[string]any)
	for _, k := range keys {
		if m[k] != nil {
			return m[k]
		}
	}
	return nil
}

func TestExample(t *testing.T) { compare(t, "testdata/example.golden", string(Example(testParts()))) }

// TestShowLoads shows a configuration with everything in it, loads what is shown and shows it again.
func TestShowLoads(t *testing.T) {
	parts := testParts()
	cfg, err := load(Example(parts), "example.yaml", testExpander(), parts)
	if err != nil {
		t.Fatal(err)
	}
	shown := Show(cfg)
	if strings.Contains(string(shown), "postgres://") || !strings.Contains(string(shown), "dsn: (hidden)") {
		t.Errorf("the DSN is shown:\n%s", shown)
	}
	again, err := load([]byte(strings.Replace(string(shown), "(hidden)", "a=b", 1)), "shown.yaml", testExpander(), parts)
	if err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	if got := Show(again); !bytes.Equal(got, shown) {
		t.Errorf("got\n%s\nwant\n%s", got, shown)
	}
}

// TestShowHidesWhatComesFromFiles also where another value is made from it.
func TestShowHidesWhatComesFromFiles(t *testing.T) {
	cfg := mustLoad(t, `
node: {id: n1, data_dir: "/x/${file:/secret}"}
streams:
  - name: orders
    source: {kafka: {brokers: [localhost:9092], topics: ["${file:/secret}"], group: "a $${x} b"}}
    raw: {to: file:///var/lib/twgd/raw}
`)
	shown := string(Show(cfg))
	if strings.Contains(shown, canary) {
		t.Errorf("a secret is shown:\n%s", shown)
	}
	if !strings.Contains(shown, `group: a $${x} b`) {
		t.Errorf("a literal ${ does not read back:\n%s", shown)
	}
}
