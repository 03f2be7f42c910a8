package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/admin"
)

func stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop -c FILE",
		Short: "Stop the running node as SIGTERM does, and wait until it has ended",
		Long: "The node stores what is open, hands over what it leads, and ends; the command returns when it has. In a cluster its seat waits for it,\n" +
			"or is given up where too few nodes would be left: see docs/guide/cluster.md. As a preStop hook it needs no shell in the image.",
		Example: "  twgd stop -c twgd.yaml",
		Args:    usage(cobra.NoArgs),
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, cfg, err := dial(*file)
		if err != nil {
			return err
		}
		if _, err := c.Call(cmd.Context(), "stop", nil, nil); err != nil {
			return err
		}
		if err := gone(cmd, cfg.Node.DataDir); err != nil {
			return err
		}
		return show(cmd, map[string]any{"node": cfg.Node.ID, "done": true}, func(to io.Writer) error {
			_, err := fmt.Fprintf(to, "%s has stopped\n", cfg.Node.ID)
			return err
		})
	}
	return cmd
}

// gone waits until no node runs on a data directory.
func gone(cmd *cobra.Command, dataDir string) error {
	p := newProgress(cmd)
	defer p.done()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := admin.Dial(dataDir); errors.Is(err, admin.ErrNoNode) {
			return nil
		}
		p.tell("waiting for the node to end")
		select {
		case <-cmd.Context().Done():
			return fmt.Errorf("the node is still ending: %w", cmd.Context().Err())
		case <-look.C:
		}
	}
}
