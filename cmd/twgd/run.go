package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/config"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run -c FILE",
		Short:   "Run a node",
		Example: "  twgd run -c /etc/twgd/twgd.yaml",
		Args:    usage(cobra.NoArgs),
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(*file)
		if err != nil {
			return err
		}
		log := newLog(cfg)
		if limit := limitMemory(os.LookupEnv, "/"); limit > 0 {
			log.Debug("the garbage collector keeps below", "bytes", limit)
		}
		n, err := newNode(cfg, log)
		if err != nil {
			return err
		}
		return n.run(cmd.Context())
	}
	return cmd
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
