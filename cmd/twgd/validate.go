package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/postgres"
	"github.com/stream-arrow/twgd/sources/kafka"
	"github.com/stream-arrow/twgd/store"
)

func validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "validate -c FILE [--connect]", Short: "List every mistake of a configuration; with --connect, try every connection",
		Example: "  twgd validate -c twgd.yaml --connect",
		Args:    usage(cobra.NoArgs),
	}
	file := configFlag(cmd)
	connect := cmd.Flags().Bool("connect", false, "try brokers and databases, and reading, writing and create-only writes in directories and buckets; leaves nothing behind, but in a database the table _twg_coverage")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(*file)
		if problems := (config.Problems)(nil); errors.As(err, &problems) {
			return invalid(cmd, err, problems)
		}
		if err != nil {
			return err
		}
		out := validation{Problems: config.Problems{}, Notes: append([]string{}, dedupNotes(cfg)...), Connections: []connection{}}
		if *connect {
			out.Connections = tryAll(cmd.Context(), cfg)
		}
		if err := show(cmd, out, func(to io.Writer) error { return out.text(to, *file) }); err != nil {
			return err
		}
		if n := out.failed(); n > 0 {
			return fail(exitFailed, fmt.Errorf("%d of %d connections failed", n, len(out.Connections)))
		}
		return nil
	}
	return cmd
}

// invalid prints the mistakes: all of them as one document for machines, or as lines.
func invalid(cmd *cobra.Command, err error, problems config.Problems) error {
	if !asJSON(cmd) {
		return err
	}
	if err := show(cmd, validation{Problems: problems, Notes: []string{}, Connections: []connection{}}, nil); err != nil {
		return err
	}
	return fail(exitUsage, fmt.Errorf("%d mistakes", len(problems)))
}

// validation is what `validate` found.
type validation struct {
	Problems    config.Problems `json:"problems"`
	Notes       []string        `json:"notes"` // what to know of a configuration without mistakes
	Connections []connection    `json:"connections"`
}

// connection is one that was tried.
type connection struct {
	Stream string `json:"stream"` // empty: it is the node's own
	What   string `json:"what"`   // source, raw, quarantine, sink NAME; backup
	Error  string `json:"error"`
}

// whose is who needs the connection.
func (c connection) whose() string { return cmp.Or(c.Stream, "cluster") }

func (v *validation) failed() (n int) {
	for _, c := range v.Connections {
		if c.Error != "" {
			n++
		}
	}
	return n
}

func (v *validation) text(to io.Writer, file string) error {
	for _, c := range v.Connections {
		state := "ok"
		if c.Error != "" {
			state = c.Error
		}
		fmt.Fprintf(to, "%s: %s: %s\n", c.whose(), c.What, state)
	}
	for _, n := range v.Notes {
		fmt.Fprintln(to, n)
	}
	_, err := fmt.Fprintf(to, "%s is a valid configuration\n", file)
	return err
}

// connectPatience bounds the try of one connection.
const connectPatience = 30 * time.Second

// tryAll tries every connection of a configuration, all at once.
func tryAll(ctx context.Context, cfg *config.Config) []connection {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	var out []connection
	var tries []func(context.Context) error
	add := func(s *config.Stream, what string, f func(context.Context) error) {
		out, tries = append(out, connection{Stream: s.Name, What: what}), append(tries, f)
	}
	if c := &cfg.Cluster; c.Size > 0 && c.Backup.To != "" {
		add(new(config.Stream), "backup", func(ctx context.Context) error { return tryBackups(ctx, c) })
	}
	for i := range cfg.Streams {
		s := &cfg.Streams[i]
		add(s, "source", func(ctx context.Context) error { return trySource(ctx, s) })
		add(s, "raw", func(ctx context.Context) error { return tryBucket(ctx, string(s.Raw.To)) })
		add(s, "quarantine", func(ctx context.Context) error { return tryBucket(ctx, string(s.Quarantine.To)) })
		for j := range s.Sinks {
			add(s, "sink "+s.Sinks[j].Name, func(ctx context.Context) error { return trySink(ctx, s, &s.Sinks[j]) })
		}
	}
	var trying sync.WaitGroup
	for i, f := range tries {
		trying.Go(func() {
			if err := f(ctx); err != nil {
				out[i].Error = inOneLine(err)
			}
		})
	}
	trying.Wait()
	return out
}

// inOneLine says what went wrong, each cause once: a sink's reason has in it what its driver says.
func inOneLine(err error) string {
	var fault *sinks.Error
	if errors.As(err, &fault) && fault.Reason != "" {
		err = errors.New(fault.Reason)
	}
	return store.Describe(err)
}

func trySource(ctx context.Context, s *config.Stream) error {
	switch c := s.Source.Options.(type) {
	case *kafka.Config:
		return kafka.Check(ctx, kafkaOptions(c, sourceDeps{client: "twgd-validate", log: slog.New(slog.DiscardHandler)}))
	}
	return fmt.Errorf("no room tries a source of %T", s.Source.Options)
}

func tryBucket(ctx context.Context, url string) error {
	b, err := store.Open(ctx, url, store.Options{})
	if err != nil {
		return err
	}
	return errors.Join(b.Probe(ctx), b.Close())
}

// trySink makes the sink ready, as a node would, but creates no table.
func trySink(ctx context.Context, s *config.Stream, c *config.Sink) error {
	sink, err := newSink(ctx, c.Options, sinkDeps{stream: s.Name, name: c.Name, log: slog.New(slog.DiscardHandler), reading: true})
	if err != nil {
		return err
	}
	err = sink.Open(ctx)
	if notMade(c, err) {
		err = nil // the node makes it
	}
	return errors.Join(err, sink.Close())
}

// notMade reports whether a sink cannot be used for a table that the node will make at its first start.
func notMade(c *config.Sink, err error) bool {
	var missing *postgres.MissingTable
	p, ok := c.Options.(*postgres.Config)
	return ok && p.Create && errors.As(err, &missing)
}
