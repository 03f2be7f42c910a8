package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/stream-arrow/twgd/audit"
	"github.com/stream-arrow/twgd/config"
)

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Show it at work: a broker in memory, a generator, one node, raw and Parquet files",
		Long: "Starts a broker in memory and a generator that writes orders into it, and a node that takes them into raw and Parquet files below one\n" +
			"directory. At Ctrl-C, or after --seconds, it ends cleanly, counts, and audits itself. Nothing but loopback is used.",
		Example: "  twgd demo\n  twgd demo --seconds 20 --dir /tmp/twgd-demo",
		Args:    usage(cobra.NoArgs),
	}
	d := &demo{}
	f := cmd.Flags()
	f.IntVar(&d.seconds, "seconds", 0, "end by itself after so long; 0: at Ctrl-C")
	f.StringVar(&d.dir, "dir", "", "keep what is written in this directory, which must be new; default: a temporary one, removed at the end")
	f.IntVar(&d.rate, "rate", 1000, "records a second")
	f.IntVar(&d.repeat, "repeat", 0, "percent of the records that are sent twice; the node then runs as a cluster of one, and drops repetitions")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if d.seconds < 0 || d.rate < 1 || d.rate > 100_000 || d.repeat < 0 || d.repeat > 100 {
			return fail(exitUsage, fmt.Errorf("--seconds is not below 0, --rate between 1 and 100000, and --repeat between 0 and 100"))
		}
		d.out = cmd.ErrOrStderr()
		if !asJSON(cmd) {
			d.out = cmd.OutOrStdout()
		}
		return d.run(cmd)
	}
	return cmd
}

// demo is a broker, a generator and a node in one process.
type demo struct {
	seconds, rate, repeat int

	dir    string
	out    io.Writer // what is told on the way
	broker *kfake.Cluster
	orders *orders
	cfg    *config.Config
	node   *node
}

func (d *demo) run(cmd *cobra.Command) (err error) {
	remove, err := d.place()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if d.broker, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders")); err != nil {
		return fmt.Errorf("starting a broker in memory: %w", err)
	}
	defer d.broker.Close()
	log, err := os.Create(filepath.Join(d.dir, "twgd.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	if err := d.configure(); err != nil {
		return err
	}
	if d.node, err = newNode(d.cfg, slog.New(slog.NewTextHandler(log, nil)), joining{}); err != nil {
		return err
	}
	return d.work(cmd)
}

// place makes the directory, and says how to remove it.
func (d *demo) place() (remove func() error, err error) {
	if d.dir == "" {
		d.dir, err = os.MkdirTemp("", "twgd-demo-")
		return func() error { return os.RemoveAll(d.dir) }, err
	}
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(d.dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case len(entries) > 0:
		return nil, fail(exitRefused, fmt.Errorf("%s is not empty: the broker of a demo begins anew each time, so that what an earlier one left does not fit; name another with --dir", d.dir))
	}
	return func() error { return nil }, os.MkdirAll(d.dir, 0o755)
}

// configure writes a configuration file as a user would, and loads it.
func (d *demo) configure() error {
	text := fmt.Sprintf(`# Made by twgd demo.
node: {id: demo, data_dir: %[1]q, http: "127.0.0.1:0"}
streams:
  - name: orders
    source: {kafka: {brokers: [%[2]q], topics: [orders], group: twgd-orders}}
    raw: {to: %[3]q}
    sinks:
      - {name: lake, parquet: {to: %[4]q, roll: {age: 3s}}}
`, filepath.Join(d.dir, "node"), d.broker.ListenAddrs()[0], "file://"+filepath.Join(d.dir, "raw"), "file://"+filepath.Join(d.dir, "lake"))
	if d.repeat > 0 {
		text += "    contract: {unique: true}\n    dedup: {mode: drop, window: 1m}\ncluster: {name: demo, size: 1}\n"
	}
	if err := os.WriteFile(d.file(), []byte(text), 0o644); err != nil {
		return err
	}
	var err error
	d.cfg, err = loadConfig(d.file())
	return err
}

func (d *demo) file() string { return filepath.Join(d.dir, "twgd.yaml") }

// work runs everything until it is to end, and sums up.
func (d *demo) work(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if d.seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(d.seconds)*time.Second)
		defer cancel()
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.node.run(running) }()
	var err error
	if d.orders, err = newOrders(d.broker.ListenAddrs()[0], d.rate, d.repeat); err != nil {
		return errors.Join(err, stopped(stop, ended))
	}
	produced := make(chan error, 1)
	go func() { produced <- d.orders.run(ctx) }()
	d.introduce()
	d.watch(ctx)
	err = <-produced
	d.catchUp()
	if err = errors.Join(err, stopped(stop, ended)); err != nil {
		return err
	}
	return d.conclude(cmd)
}

func stopped(stop func(), ended <-chan error) error {
	stop()
	return <-ended
}

// introduce says where to look.
func (d *demo) introduce() {
	fmt.Fprintf(d.out, `A broker in memory, a generator of %d records a second, and a node that takes them into raw and Parquet.

status page   http://%s/
all of it     %s

Look at it from another terminal:

  twgd status -c %[4]s
  twgd raw cat -c %[4]s --limit 3
  twgd audit -c %[4]s --rows
  duckdb -c "select decode(__kafka_value)::json->>'state' as state, count(*) from '%[3]s/lake/**/*.parquet' group by 1"

Ctrl-C ends it.

`, d.rate, d.node.server.Address(), d.dir, d.file())
}

// watch tells every two seconds how far things are.
func (d *demo) watch(ctx context.Context) {
	begun := time.Now()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		taken, covered := d.progress()
		fmt.Fprintf(d.out, "%4s  produced %d, in raw %d, in Parquet %d\n", time.Since(begun).Round(time.Second), d.orders.produced.Load(), taken, covered)
	}
}

// progress is how many offsets are in raw and in the sink. Every offset of this topic holds a record.
func (d *demo) progress() (taken, covered int64) {
	for _, s := range d.node.status().Streams {
		for _, p := range s.Partitions {
			taken += *p.RawNext
		}
		for _, k := range s.Sinks {
			if k.Covered != nil {
				covered += *k.Covered
			}
		}
	}
	return taken, covered
}

// catchUp lets the node take what was produced last, for a moment.
func (d *demo) catchUp() {
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
		if taken, _ := d.progress(); taken >= d.orders.produced.Load() {
			return
		}
	}
}

// demoSummary is what came of it.
type demoSummary struct {
	Produced   int64        `json:"produced"`
	Tombstones int64        `json:"tombstones"`
	Repeated   int64        `json:"repeated"` // of those produced
	Dropped    int64        `json:"dropped"`  // repetitions that are not in Parquet
	Raw        int64        `json:"raw"`
	Rows       int64        `json:"parquet_rows"`
	Files      int          `json:"parquet_files"`
	Audit      audit.Report `json:"audit"`
	Directory  string       `json:"directory"`
}

// conclude audits what is there, rows counted.
func (d *demo) conclude(cmd *cobra.Command) error {
	report, err := auditStream(context.WithoutCancel(cmd.Context()), &d.cfg.Streams[0], audit.Options{Rows: true})
	if err != nil {
		return err
	}
	sum := demoSummary{Produced: d.orders.produced.Load(), Tombstones: d.orders.forgotten.Load(), Audit: report, Directory: d.dir}
	sum.Repeated = d.orders.repeated.Load()
	for _, p := range report.Partitions {
		if p.Raw != nil {
			sum.Raw += p.Raw.Records
		}
		for _, k := range p.Sinks {
			if k.Rows != nil {
				sum.Rows += k.Rows.Rows
			}
			sum.Dropped += k.LeftOut[reasonDuplicate]
		}
	}
	if sum.Files, err = parquetFiles(filepath.Join(d.dir, "lake")); err != nil {
		return err
	}
	if err := show(cmd, sum, sum.text); err != nil {
		return err
	}
	if report.Verdict != audit.Accounted || sum.Raw != sum.Produced {
		return fail(exitAudit, fmt.Errorf("%d records were produced, raw has %d; audit: %s", sum.Produced, sum.Raw, report.Verdict))
	}
	return nil
}

func (s demoSummary) text(to io.Writer) error {
	fmt.Fprintf(to, "\nproduced  %d records, %d of them tombstones\n", s.Produced, s.Tombstones)
	if s.Repeated > 0 {
		fmt.Fprintf(to, "repeated  %d of them, %d dropped\n", s.Repeated, s.Dropped)
	}
	fmt.Fprintf(to, "raw       %d records\nParquet   %d rows in %d files\n\n", s.Raw, s.Rows, s.Files)
	return s.Audit.WriteText(to)
}

func parquetFiles(dir string) (n int, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && filepath.Ext(path) == ".parquet" {
			n++
		}
		return err
	})
	return n, err
}
