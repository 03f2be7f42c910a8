package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/parquet"
	"github.com/stream-arrow/twgd/sinks/postgres"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/sources/kafka"
	"github.com/stream-arrow/twgd/store"
)

// parts is the one table that says which kinds of sources and sinks exist. A new kind is its room and a line here.
var parts = config.Parts{
	Sources: []config.SourceKind{
		{Name: "kafka", Doc: "Topics of Apache Kafka, and of what speaks its protocol.", New: func() config.SourceOptions { return new(kafka.Config) }},
	},
	Sinks: []config.SinkKind{
		{Name: "parquet", Doc: "Parquet files in a directory or a bucket.", New: func() config.SinkOptions { return new(parquet.Config) }},
		{Name: "postgres", Doc: "A table of PostgreSQL.", New: func() config.SinkOptions { return new(postgres.Config) }},
	},
	Location:  store.Check,
	Recipient: backup.CheckRecipient,
}

// loadConfig reads and checks a configuration file.
func loadConfig(path string) (*config.Config, error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(data, path, os.LookupEnv, parts)
	return cfg, fail(exitUsage, err)
}

// loadJoining reads the configuration of a node that joins the cluster of j.
func loadJoining(path string, j config.Joining) (*config.Config, error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadJoining(data, path, os.LookupEnv, parts, j)
	return cfg, fail(exitUsage, err)
}

func readConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, fail(exitUsage, fmt.Errorf("no configuration file: give one with -c FILE, or print one with `twgd config example`"))
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fail(exitUsage, fmt.Errorf("reading the configuration: %w; `twgd config example` prints one", err))
	}
	if err != nil {
		return nil, fail(exitUsage, fmt.Errorf("reading the configuration: %w", err))
	}
	return data, nil
}

// sourceDeps is what a source needs besides its options.
type sourceDeps struct {
	client string // <node id>~<instance>
	alone  bool   // raw is a directory of this process
	log    *slog.Logger
	found  func(ctx context.Context, cluster string, starts map[record.Partition]int64) (map[record.Partition]int64, error)
}

func newSource(options config.SourceOptions, d sourceDeps) (sources.Source, error) {
	switch c := options.(type) {
	case *kafka.Config:
		return kafka.New(kafkaOptions(c, d))
	}
	return nil, fmt.Errorf("no room makes a source of %T", options)
}

func kafkaOptions(c *kafka.Config, d sourceDeps) kafka.Options {
	o := kafka.Options{
		Client: d.client, Logger: d.log, Alone: d.alone, ClusterID: c.ClusterID, Topics: c.Topics, TopicsRegex: c.TopicsRegex,
		Group: c.Group, Partitions: c.Partitions, Start: c.Start, Isolation: c.Isolation, OnGap: c.OnGap,
		SessionTimeout: time.Duration(c.SessionTimeout),
		Fetch:          kafka.FetchOptions{MaxBytes: int64(c.Fetch.MaxBytes), MaxWait: time.Duration(c.Fetch.MaxWait)},
		TLS:            kafka.TLSOptions{Enabled: c.TLS.Enabled, CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, ServerName: c.TLS.ServerName},
		SASL:           kafka.SASLOptions{Mechanism: c.SASL.Mechanism, Username: c.SASL.Username, Password: c.SASL.Password},
	}
	if len(c.Partitions) > 0 {
		o.Topics = nil // the partitions name them
	}
	for _, b := range c.Brokers {
		o.Brokers = append(o.Brokers, string(b))
	}
	if d.found != nil {
		o.FirstStart = func(ctx context.Context, cluster string, starts map[record.Partition]int64) (map[record.Partition]int64, bool, error) {
			stored, err := d.found(ctx, cluster, starts)
			return stored, false, err
		}
	}
	return o
}

// sinkDeps is what a sink needs besides its options.
type sinkDeps struct {
	stream, name string
	spool        string // a directory for files on their way to object storage
	queue        int64  // bytes of memory that the lane may hold
	log          *slog.Logger
	reading      bool // only to look: no table is created
}

// builtSink is a sink with what the lane needs to know of it.
type builtSink struct {
	sinks.Sink
	roll pipeline.Roll
}

func newSink(ctx context.Context, options config.SinkOptions, d sinkDeps) (builtSink, error) {
	switch c := options.(type) {
	case *parquet.Config:
		return newParquet(ctx, c, d)
	case *postgres.Config:
		return newPostgres(c, d)
	}
	return builtSink{}, fmt.Errorf("no room makes a sink of %T", options)
}

func newParquet(ctx context.Context, c *parquet.Config, d sinkDeps) (builtSink, error) {
	bucket, err := store.Open(ctx, string(c.To), store.Options{SpoolDir: d.spool})
	if err != nil {
		return builtSink{}, err
	}
	s, err := parquet.New(parquet.Options{Bucket: bucket, Stream: d.stream, Compression: c.Compression, Target: string(c.To), RowGroup: rowGroup(d.queue)})
	return builtSink{s, pipeline.Roll{Rows: int64(c.Roll.Rows), Bytes: int64(c.Roll.Bytes), Age: time.Duration(c.Roll.Age)}}, err
}

// rowGroup is the memory after which a file's rows are written to its stage: a share of the queue, so that several partitions have a
// file open without the lane having to close them early.
func rowGroup(queue int64) int64 { return min(max(queue/8, 1<<20), parquet.DefaultRowGroup) }

// mostCopied bounds one COPY, so that large rows do not gather by the thousand.
const mostCopied = 8 << 20

func newPostgres(c *postgres.Config, d sinkDeps) (builtSink, error) {
	s, err := postgres.New(postgres.Options{DSN: string(c.DSN), Table: c.Table, Create: c.Create && !d.reading, ValueAs: postgres.ValueAs(c.ValueAs),
		Stream: d.stream, Sink: d.name, Log: d.log})
	return builtSink{s, pipeline.Roll{Rows: int64(c.Batch.Rows), Bytes: mostCopied, Age: time.Duration(c.Batch.Age)}}, err
}

// spoolDir is where files for object storage are collected before they are uploaded.
func spoolDir(cfg *config.Config) (string, error) {
	dir := filepath.Join(cfg.Node.DataDir, "spool")
	return dir, os.MkdirAll(dir, 0o755)
}
