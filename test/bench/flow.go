package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// pass is one pass of twgd over a topic.
type pass struct {
	cost
	peak    int64
	commits float64 // to raw
	loads   float64 // commits of the sink
	refused float64 // batches that the lane left to recovery
	unasked float64 // records that passed without its being known whether they repeat others
}

// flow is what a pass is made of.
type flow struct {
	topic  string
	n      int
	sinks  func(dir string) string                     // YAML of the sinks, without brackets
	metric string                                      // that reaches n when all is done
	check  func(ctx context.Context, dir string) error // of what the sink holds; nil where there is none
	more   func() (string, error)                      // YAML behind the sinks; nil where there is none
}

// pass runs twgd over the topic once. Starting and ending, which idle has measured, are taken off.
func (b *bench) pass(ctx context.Context, f flow, idle used) (p pass, err error) {
	dir, err := b.scratch()
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n, err := f.start(ctx, b, f.topic, dir)
	if err != nil {
		return p, err
	}
	m, asked, err := n.await(ctx, f.metric, float64(f.n))
	if err != nil {
		return p, errors.Join(err, n.kill())
	}
	end := time.Now()
	perScrape, err := n.scrapeMallocs()
	if err != nil {
		return p, errors.Join(err, n.kill())
	}
	begin, err := n.reading()
	if err != nil {
		return p, errors.Join(err, n.kill())
	}
	u, err := n.stop()
	if err != nil {
		return p, err
	}
	p = pass{cost: cost{cpu: u.cpu - idle.cpu, wall: end.Sub(begin), mallocs: m["go_memstats_mallocs_total"] - idle.mallocs - float64(asked)*perScrape},
		peak: u.peak, commits: m["twg_gate_commit_seconds_count"], loads: m["twg_sink_write_seconds_count"], refused: m["twg_lane_refused_total"], unasked: m["twg_dedup_unavailable_total"]}
	if m["twg_gate_records_total"] != float64(f.n) {
		return p, fmt.Errorf("raw holds %v records, want %d", m["twg_gate_records_total"], f.n)
	}
	if f.check == nil {
		return p, nil
	}
	return p, f.check(ctx, dir)
}

// start runs twgd over a topic.
func (f flow) start(ctx context.Context, b *bench, topic, dir string) (*node, error) {
	config := b.stream(topic, "file://"+dir+"/raw", f.sinks(dir))
	if f.more != nil {
		more, err := f.more()
		if err != nil {
			return nil, err
		}
		config += more
	}
	return startNode(ctx, b.twgd, dir, config, nil)
}

// scrapeMallocs is what asking for the metrics allocates by itself.
func (n *node) scrapeMallocs() (float64, error) {
	const times = 10
	first, err := n.metrics()
	if err != nil {
		return 0, err
	}
	last := first
	for range times {
		if last, err = n.metrics(); err != nil {
			return 0, err
		}
	}
	const name = "go_memstats_mallocs_total"
	return (last[name] - first[name]) / times, nil
}

// idlePass measures what starting and ending cost with the same configuration over a topic without records.
func (b *bench) idlePass(ctx context.Context, f flow) (u used, err error) {
	dir, err := b.scratch()
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n, err := f.start(ctx, b, emptyTopic, dir)
	if err != nil {
		return u, err
	}
	if err := n.sleep(ctx, 500*time.Millisecond); err != nil {
		return u, errors.Join(err, n.logTail())
	}
	m, err := n.metrics()
	if err != nil {
		return u, errors.Join(err, n.kill())
	}
	u, err = n.stop()
	u.mallocs = m["go_memstats_mallocs_total"]
	return u, err
}

// costs of a part, run by run.
type costs []cost

func (c costs) perCPUSecond(n int) []float64 {
	return each(func(i int) float64 { return c[i].perCPUSecond(n) }, len(c))
}

func (c costs) perSecond(n int) []float64 {
	return each(func(i int) float64 { return c[i].perSecond(n) }, len(c))
}

// sum adds the processor times of parts, run by run, in seconds.
func sum(parts ...costs) []float64 {
	return each(func(i int) (s float64) {
		for _, p := range parts {
			s += p[i].cpu.Seconds()
		}
		return s
	}, len(parts[0]))
}

// passes of twgd, run by run.
type passes []pass

func (p passes) costs() costs {
	out := make(costs, len(p))
	for i := range p {
		out[i] = p[i].cost
	}
	return out
}

func (p passes) each(f func(pass) float64) []float64 {
	return each(func(i int) float64 { return f(p[i]) }, len(p))
}

// addPasses adds the figures that every flow has.
func (r *report) addPasses(p passes, n int) {
	r.add("twgd", "records/CPU-s", p.costs().perCPUSecond(n))
	r.add("twgd", "records/s", p.costs().perSecond(n))
	r.add("twgd, peak memory", "MiB", p.each(func(p pass) float64 { return float64(p.peak) / (1 << 20) }))
	r.add("twgd, allocations", "per record", p.each(func(p pass) float64 { return p.mallocs / float64(n) }))
	r.add("twgd, records in a commit to raw", "records", p.each(func(p pass) float64 { return float64(n) / p.commits }))
}

// ratios divides run by run.
func ratios(a, b []float64) []float64 {
	return each(func(i int) float64 { return a[i] / b[i] }, len(a))
}

// wantRows is the error where a sink holds another number of rows than it should.
func wantRows(got, want int) error {
	if got != want {
		return fmt.Errorf("the sink holds %d rows, want %d", got, want)
	}
	return nil
}
