package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stream-arrow/twgd/test/servers"
)

// topic names.
const (
	fullTopic  = "bench"
	shareTopic = "bench_share" // the part of it that goes into Postgres
	emptyTopic = "bench_empty" // to measure what starting and ending take
)

// postgresShare is the divisor of the records for Postgres.
const postgresShare = 2

// bench is the servers and records of a run.
type bench struct {
	options
	report report
	kafka  *servers.KafkaServer
	work   workload
	dir    string
	groups int

	postgres *servers.PostgresServer // nil until it is needed
	db       *pgx.Conn
	dsn      string
}

func newBench(ctx context.Context, o options) (_ *bench, err error) {
	b := &bench{options: o, report: report{Records: o.records, ValueSize: o.valueSize, Partitions: o.partitions, Runs: o.runs, CPUs: runtime.GOMAXPROCS(0)}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.twgd, err = filepath.Abs(o.twgd); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "twgd-bench-"); err != nil {
		return nil, err
	}
	if !b.wantsStreams() {
		return b, nil
	}
	b.say("starting Kafka")
	b.kafka, err = servers.Kafka(ctx, servers.KafkaOptions{Heap: "1g", JVM: []string{"-XX:+UseG1GC"}})
	if err != nil {
		return nil, err
	}
	return b, b.fill(ctx)
}

// wantsStreams says whether a section is to be run that moves records.
func (b *bench) wantsStreams() bool {
	return slices.ContainsFunc(sections[:len(sections)-len(clusterSections)-len(dedupSections)], func(s section) bool { return b.wants(s.name) })
}

// fill makes the topics.
func (b *bench) fill(ctx context.Context) error {
	if _, err := b.kafka.CreateTopic(ctx, emptyTopic, int32(b.partitions), nil); err != nil {
		return err
	}
	if !b.wants("raw") && !b.wants("parquet") && !b.wants("postgres") && !b.wants("screened") {
		return nil
	}
	b.say("producing")
	b.work = newWorkload(b.records, b.valueSize, b.partitions, time.Now())
	for topic, w := range map[string]workload{fullTopic: b.work, shareTopic: b.work.share(postgresShare)} {
		if _, err := b.kafka.CreateTopic(ctx, topic, int32(b.partitions), nil); err != nil {
			return err
		}
		if err := w.produce(ctx, b.kafka.Brokers(), topic); err != nil {
			return fmt.Errorf("producing: %w", err)
		}
	}
	return nil
}

// needPostgres starts the server and makes a database, once.
func (b *bench) needPostgres(ctx context.Context) (err error) {
	if b.postgres != nil {
		return nil
	}
	if b.postgres, err = servers.Postgres(ctx, servers.PostgresOptions{Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "512MB"}}); err != nil {
		return err
	}
	if b.dsn, err = b.postgres.NewDatabase(ctx); err != nil {
		return err
	}
	b.db, err = pgx.Connect(ctx, b.dsn)
	return err
}

func (b *bench) close() error {
	var errs []error
	if b.db != nil {
		errs = append(errs, b.db.Close(context.Background()))
	}
	if b.postgres != nil {
		errs = append(errs, b.postgres.Close())
	}
	if b.kafka != nil {
		errs = append(errs, b.kafka.Close())
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// say tells on standard error what is being done.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// stream is the configuration of a stream from a topic into raw below dir, with sinks, in a group of its own.
func (b *bench) stream(topic, raw, sinks string) string {
	b.groups++
	return fmt.Sprintf("  - name: bench\n    source: {kafka: {brokers: [%q], topics: [%s], group: bench-%d}}\n    raw: {to: %q}\n    sinks: [%s]\n",
		b.kafka.Brokers()[0], topic, b.groups, raw, sinks)
}

// laneQueue is the key of a sink that says what its lane may hold.
func (b *bench) laneQueue() string {
	if b.queue == "" {
		return ""
	}
	return ", queue: " + b.queue
}

// scratch is a new folder.
func (b *bench) scratch() (string, error) { return os.MkdirTemp(b.dir, "run-") }
