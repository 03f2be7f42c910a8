package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/config"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Run a node",
		Long: "Runs a node until SIGTERM or SIGINT. Where cluster.size is above 0 it finds its cluster by itself: with what its disk holds, by\n" +
			"asking the nodes of cluster.join, or, where nothing is stored anywhere, by founding it.",
		Example: "  twgd run -c /etc/twgd/twgd.yaml",
		Args:    usage(cobra.NoArgs),
	}
	file := configFlag(cmd)
	found := cmd.Flags().Bool("found", false, "found the cluster although nodes of cluster.join are silent; they must hold no state of it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(*file)
		if err != nil {
			return err
		}
		if *found && cfg.Cluster.Size == 0 {
			return fail(exitUsage, errors.New("--found: cluster.size is 0, there is no cluster to found"))
		}
		return runNode(cmd.Context(), cfg, joining{found: *found})
	}
	return cmd
}

// runNode runs the node of a configuration until ctx ends.
func runNode(ctx context.Context, cfg *config.Config, how joining) error {
	log := newLog(cfg)
	if limit := limitMemory(os.LookupEnv, "/", remembering(cfg)); limit > 0 {
		log.Debug("the garbage collector keeps below", "bytes", limit)
	}
	n, err := newNode(cfg, log, how)
	if err != nil {
		return err
	}
	return n.run(ctx)
}

// newLog makes the log as the configuration wants it: one line an event, to standard error.
func newLog(cfg *config.Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Node.Log.Level)); err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if cfg.Node.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}
