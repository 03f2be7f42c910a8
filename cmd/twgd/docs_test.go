package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stream-arrow/twgd/config"
)

//go:generate go test -run ^(TestReferenceIsCurrent|TestMetricsAreDocumented)$ -update .

var update = flag.Bool("update", false, "write the generated documents instead of comparing them")

// current holds a generated document.
func current(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not current: go generate ./cmd/twgd", file)
	}
}

// TestReferenceIsCurrent holds docs/configuration.md against the kinds that this program has.
func TestReferenceIsCurrent(t *testing.T) {
	current(t, "../../docs/configuration.md", config.Reference(parts))
}

const metricsPreface = `# Metrics

<!-- Made from a running node's registry by go generate ./cmd/twgd; do not edit. -->

` + "`/metrics`" + ` serves these, and Go's and the process's own (` + "`go_…`, `process_…`" + `). What to alert on is in
[production](guide/production.md#alerts). Counters whose labels include a reason, and gauges of a partition, appear with their first event at the latest; all others are there
from the start. What was dropped as a duplicate is dropped from all sinks, and has no name in the label sink. In an expression that must not be empty before, write ` + "`sum(rate(twg_drops_total[5m])) or vector(0)`" + `.

| metric | type | labels | meaning |
|---|---|---|---|
`

// TestMetricsAreDocumented holds docs/metrics.md against the registry of a node.
func TestMetricsAreDocumented(t *testing.T) {
	l := newLab(t)
	l.start(l.clustered(l.deduped(l.config("one", "", ""), "    dedup: {mode: measure}\n")))
	l.until("the stream is open", func() bool { r, _, _, _ := l.node.streams[0].look(); return r != nil })
	families, err := l.node.registry.Gather()
	l.must(err)
	kinds := map[string]string{}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	shape := regexp.MustCompile(`^Desc\{fqName: "(twg_\w+)", help: "(.*?)", (?:unit: ".*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	var lines []string
	for d := range everyDesc(l.node.registry) {
		m := shape.FindStringSubmatch(d.String())
		if m == nil {
			continue
		}
		kind := cmp.Or(kinds[m[1]], "gauge")
		if strings.HasSuffix(m[1], "_total") {
			kind = "counter"
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |\n", m[1], kind, labels(m[3], m[4]), m[2]))
	}
	if slices.Sort(lines); len(lines) < 30 {
		t.Fatalf("%d metrics", len(lines))
	}
	current(t, "../../docs/metrics.md", []byte(metricsPreface+strings.Join(lines, "")))
}

func everyDesc(r *prometheus.Registry) <-chan *prometheus.Desc {
	all := make(chan *prometheus.Desc)
	go func() { r.Describe(all); close(all) }()
	return all
}

// labels are the names of both kinds.
func labels(constant, variable string) string {
	var out []string
	for _, m := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(constant, -1) {
		out = append(out, m[1])
	}
	if variable != "" {
		out = append(out, strings.Split(variable, ",")...)
	}
	return strings.Join(out, ", ")
}
