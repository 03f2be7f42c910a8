package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/cluster"
	"github.com/stream-arrow/twgd/config"
)

func joinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "join HOST:PORT -c FILE",
		Short: "Run a node that joins a cluster",
		Long: "Runs a node like `twgd run`, with HOST:PORT (cluster.listen of any member) besides cluster.join. It never founds a\n" +
			"cluster: where nobody answers there it waits, and says so. After the first time `twgd run` does as well.",
		Example: "  twgd join 10.0.0.1:7481 -c /etc/twgd/twgd.yaml --secret-file /etc/twgd/secret",
		Args:    usage(cobra.ExactArgs(1)),
	}
	file := configFlag(cmd)
	secret := cmd.Flags().String("secret-file", "", "a file with the cluster's secret, instead of cluster.secret")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		j := config.Joining{Address: args[0]}
		if *secret != "" {
			b, err := os.ReadFile(*secret)
			if err != nil {
				return fail(exitUsage, fmt.Errorf("reading the secret: %w", err))
			}
			j.Secret = strings.TrimRight(string(b), "\r\n")
		}
		cfg, err := loadJoining(*file, j)
		if err != nil {
			return err
		}
		return runNode(cmd.Context(), cfg, joining{join: true})
	}
	return cmd
}

// leaveArgs say who leaves for good.
type leaveArgs struct {
	Node string `json:"node"`
	Drop bool   `json:"drop"`
	Wait bool   `json:"wait"`
}

func leaveCommand() *cobra.Command {
	var a leaveArgs
	cmd := &cobra.Command{
		Use:   "leave -c FILE [--node N]",
		Short: "Make this node leave its cluster for good",
		Long: "The node hands over what it leads, gives up its seat, forgets the cluster's state and ends. To stop a node that will come back, and\n" +
			"to scale down, SIGTERM is enough. --node gives up the seat of a node that is dead and will not return.",
		Example: "  twgd leave -c twgd.yaml --wait\n  twgd leave -c twgd.yaml --node node-3",
		Args:    usage(cobra.NoArgs),
	}
	file := configFlag(cmd)
	cmd.Flags().StringVar(&a.Node, "node", "", "another node, which is dead")
	cmd.Flags().BoolVar(&a.Drop, "drop", false, "give up this node's founding, leases and all: where two clusters of one name have met")
	cmd.Flags().BoolVar(&a.Wait, "wait", false, "return when it is done, not when it is announced")
	cmd.MarkFlagsMutuallyExclusive("node", "drop")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, cfg, err := dial(*file)
		if errors.Is(err, admin.ErrNoNode) && a.Drop {
			return dropStopped(cmd, *file)
		}
		if err != nil {
			return err
		}
		if _, err := c.Call(cmd.Context(), "leave", a, nil); err != nil {
			return err
		}
		if a.Wait && a.Node == "" {
			if err := gone(cmd, cfg.Node.DataDir); err != nil {
				return err
			}
		}
		return show(cmd, struct {
			Node string `json:"node"`
			Done bool   `json:"done"`
		}{leaver(cfg, a), a.Wait || a.Drop}, func(to io.Writer) error {
			return left(to, leaver(cfg, a), a.Wait || a.Drop)
		})
	}
	return cmd
}

func leaver(cfg *config.Config, a leaveArgs) string {
	if a.Node != "" {
		return a.Node
	}
	return cfg.Node.ID
}

func left(to io.Writer, node string, done bool) error {
	text := "%s leaves; `twgd members` on another node shows when it has\n"
	if done {
		text = "%s has left\n"
	}
	_, err := fmt.Fprintf(to, text, node)
	return err
}

// dropStopped gives up the state of a node that does not run.
func dropStopped(cmd *cobra.Command, file string) error {
	cfg, err := loadConfig(file)
	if err != nil {
		return err
	}
	lock, err := alone(cfg)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := cluster.Drop(cfg.Node.DataDir); err != nil {
		return err
	}
	return show(cmd, map[string]any{"node": cfg.Node.ID, "done": true}, func(to io.Writer) error {
		_, err := fmt.Fprintf(to, "the cluster's state of %s is put aside; it joins anew at its next start\n", cfg.Node.ID)
		return err
	})
}

// refused gives what is unsafe its exit code.
func refused(err error) error {
	if errors.Is(err, cluster.ErrUnsafe) {
		return fail(exitRefused, err)
	}
	return err
}

func membersCommand() *cobra.Command {
	return watched(&cobra.Command{
		Use: "members -c FILE", Short: "Show the nodes of the cluster",
		Example: "  twgd members -c twgd.yaml --watch",
	}, showMembers)
}

func showMembers(ctx context.Context, cmd *cobra.Command, c *admin.Client) error {
	st, err := clusterStatus(ctx, c)
	if err != nil {
		return err
	}
	return show(cmd, st.Members, func(to io.Writer) error {
		writeCluster(to, st)
		return writeMembers(to, st)
	})
}

// clusterStatus asks the running node for its cluster.
func clusterStatus(ctx context.Context, c *admin.Client) (*cluster.Status, error) {
	body, err := c.Call(ctx, "members", nil, nil)
	if err != nil {
		return nil, err
	}
	var st cluster.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return nil, fmt.Errorf("reading the members: %w", err)
	}
	return &st, nil
}

// writeCluster says in a few lines how the cluster is, and what an operator has to do.
func writeCluster(to io.Writer, st *cluster.Status) {
	leader := st.Leader
	if leader == "" {
		leader = "none"
	}
	fmt.Fprintf(to, "cluster %s: %s, size %d, leader %s, term %d\n", st.Name, st.State, st.Size, leader, st.Term)
	if st.Tolerance != nil && st.Seats != nil {
		fmt.Fprintf(to, "  seats %d, %s\n", *st.Seats, tolerates(*st.Tolerance))
	}
	if b := st.Backup; b != nil {
		fmt.Fprintln(to, "  last backup:", lastBackup(b))
	}
	said := map[string]bool{"": true}
	for _, text := range append([]string{st.Waiting, st.Mend}, st.Alarms...) {
		if !said[text] {
			fmt.Fprintln(to, " ", text)
		}
		said[text] = true
	}
}

func tolerates(n int) string {
	switch {
	case n < 0:
		return "too few of them are in contact to decide anything"
	case n == 0:
		return "tolerates the loss of none"
	}
	return fmt.Sprintf("tolerates the loss of %d", n)
}

func lastBackup(b *cluster.BackupStatus) string {
	text := "none is known of; twgd backup ls asks the store"
	if b.Last != nil {
		text = b.Last.UTC().Format(time.RFC3339)
	}
	if b.Error != "" {
		text += "; the last attempt failed: " + b.Error
	}
	return text
}

func writeMembers(to io.Writer, st *cluster.Status) error {
	w := tabwriter.NewWriter(to, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  node\tstate\troles\tordinal\taddress")
	for _, m := range st.Members {
		number := "-"
		if m.Ordinal != nil {
			number = fmt.Sprint(*m.Ordinal)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", m.ID, m.State, strings.Join(m.Roles, ", "), number, m.Address)
	}
	return w.Flush()
}

// tuneArgs set one value; an empty key only asks.
type tuneArgs struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func tuneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tune -c FILE [KEY=VALUE]",
		Short: "Show or change what the whole cluster shares",
		Long: "Without KEY=VALUE: the settings in force. With it: sets one for all nodes, at once and for good; a node whose file says otherwise\n" +
			"warns.",
		Example: "  twgd tune -c twgd.yaml\n  twgd tune -c twgd.yaml cluster.size=3",
		Args:    usage(cobra.MaximumNArgs(1)),
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var a tuneArgs
		if len(args) == 1 {
			var ok bool
			if a.Key, a.Value, ok = strings.Cut(args[0], "="); !ok || a.Key == "" {
				return fail(exitUsage, fmt.Errorf("%q is no KEY=VALUE, such as cluster.size=3", args[0]))
			}
		}
		c, _, err := dial(*file)
		if err != nil {
			return err
		}
		body, err := c.Call(cmd.Context(), "tune", a, nil)
		if err != nil {
			return err
		}
		var settings map[string]string
		if err := json.Unmarshal(body, &settings); err != nil {
			return fmt.Errorf("reading the settings: %w", err)
		}
		return show(cmd, settings, func(to io.Writer) error { return writeSettings(to, settings) })
	}
	return cmd
}

func writeSettings(to io.Writer, settings map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if _, err := fmt.Fprintf(to, "%s=%s\n", key, settings[key]); err != nil {
			return err
		}
	}
	return nil
}
