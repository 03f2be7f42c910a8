// Command bench measures twgd beside the parts that it is made of, in one run, on the same records, with the same client options,
// batch sizes and compression: a bare client that discards, the segment from memory, a Parquet file from memory, a bare COPY.
// Each figure is taken several times, twgd and the parts in turn, and given as a median with its spread, so that a busy machine shows.
//
// Of the cluster it measures commits beside bare commits and syncs, the gap that a leader's end leaves, and what nodes at rest cost; of deduplication
// claims of content beside bare commits of their bytes and beside Redis, and the set itself.
//
// It starts the servers it needs (package servers) and ends what it started. docs/benchmarks.md explains the figures.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options of a run.
type options struct {
	twgd       string
	records    int
	valueSize  int
	partitions int
	idle       int // partitions of the idle topic
	runs       int
	seconds    int    // that the delay is measured for
	queue      string // of the lanes, empty for the default
	only       []string
	json       bool
	profile    string // directory for profiles of the commits; empty for none
}

type section struct {
	name string
	run  func(context.Context, *bench) error
}

// sections in the order in which they run.
var sections = slices.Concat([]section{{"raw", measureRaw}, {"parquet", measureParquet}, {"postgres", measurePostgres}, {"delay", measureDelay}, {"idle", measureIdle}, {"screened", measureScreened}},
	clusterSections, dedupSections)

// dedupSections need no Kafka; they compare with Redis where that can be had.
var dedupSections = []section{{"dedup", measureDedup}}

// clusterSections need no server. -only cluster stands for all of them.
var clusterSections = []section{{"commits", measureCommits}, {"gaps", measureGaps}, {"start", measureStart}, {"rest", measureRest}}

func names(sections []section) (out []string) {
	for _, s := range sections {
		out = append(out, s.name)
	}
	return out
}

func main() {
	runtime.LockOSThread() // children are told to end when the thread that made them ends
	o, err := parseOptions(os.Args[1:])
	if err != nil {
		os.Exit(2) // flag has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := run(ctx, o)
	stop()
	if r != nil {
		print(r, o.json)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func print(r *report, asJSON bool) {
	if !asJSON {
		fmt.Print(r.table())
		return
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

func parseOptions(args []string) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.twgd, "twgd", "bin/twgd", "the program to measure")
	f.IntVar(&o.records, "records", 1_500_000, "records for raw and Parquet; half of them goes into Postgres")
	f.IntVar(&o.valueSize, "value-size", 200, "bytes of a value")
	f.IntVar(&o.partitions, "partitions", 6, "partitions of the topic")
	f.IntVar(&o.idle, "idle-partitions", 2000, "partitions of the idle topic")
	f.IntVar(&o.runs, "runs", 3, "times that each figure is taken")
	f.IntVar(&o.seconds, "seconds", 10, "seconds that the delay and the idle node are watched for")
	f.StringVar(&o.queue, "queue", "", "what a lane may hold, as in the configuration; empty for its default")
	f.StringVar(&o.profile, "profile", "", "a directory for CPU, mutex and allocation profiles of the cluster's commits")
	only := f.String("only", "", "sections, separated by commas: "+strings.Join(names(sections), ",")+"; cluster stands for commits,gaps,start,rest")
	quick := f.Bool("quick", false, "small and short: shows that the bench works, its figures mean little")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *only != "" {
		for name := range strings.SplitSeq(*only, ",") {
			if name == "cluster" {
				o.only = append(o.only, names(clusterSections)...)
			} else {
				o.only = append(o.only, name)
			}
		}
	}
	if *quick {
		o.records, o.runs, o.idle, o.seconds = min(o.records, 120_000), 1, min(o.idle, 100), 3
	}
	return o, o.check(f)
}

func (o *options) check(f *flag.FlagSet) error {
	var err error
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("%q is not an option", f.Arg(0))
	case o.records < o.partitions*100 || o.partitions < 1 || o.runs < 1 || o.idle < 1 || o.seconds < 1 || o.valueSize < 1:
		err = errors.New("a number is too small; -records must be 100 times -partitions and more")
	}
	for _, name := range o.only {
		if !slices.Contains(names(sections), name) {
			err = fmt.Errorf("-only: %q is none of %s", name, strings.Join(append(names(sections), "cluster"), ", "))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	return err
}

// wants reports whether a section is to be run.
func (o *options) wants(name string) bool { return len(o.only) == 0 || slices.Contains(o.only, name) }

// run measures. Where a section fails the report has those before it.
func run(ctx context.Context, o options) (_ *report, err error) {
	begin := time.Now()
	b, err := newBench(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, s := range sections {
		if !o.wants(s.name) {
			continue
		}
		b.say("%s", s.name)
		b.report.section = s.name
		if err := s.run(ctx, b); err != nil {
			return &b.report, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	b.report.Took = time.Since(begin).Seconds()
	return &b.report, nil
}
