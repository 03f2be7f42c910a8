package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/cluster"
)

func statusCommand() *cobra.Command {
	return watched(&cobra.Command{
		Use: "status -c FILE", Short: "Show what the running node does now",
		Example: "  twgd status -c twgd.yaml --watch",
	}, showStatus)
}

// watched makes a command that shows something of the running node, once or every second.
func watched(cmd *cobra.Command, show func(context.Context, *cobra.Command, *admin.Client) error) *cobra.Command {
	cmd.Args = usage(cobra.NoArgs)
	file := configFlag(cmd)
	watch := cmd.Flags().Bool("watch", false, "show it again every second until interrupted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, _, err := dial(*file)
		if err != nil {
			return err
		}
		return watching(cmd, *watch, func(ctx context.Context) error { return show(ctx, cmd, c) })
	}
	return cmd
}

// watching shows something once, or every second. Each time has a bound.
func watching(cmd *cobra.Command, again bool, show func(context.Context) error) error {
	once := func() error {
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
		defer cancel()
		return show(ctx)
	}
	for {
		if err := once(); err != nil || !again {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func showStatus(ctx context.Context, cmd *cobra.Command, c *admin.Client) error {
	_, body, err := c.Get(ctx, "/status")
	if err != nil {
		return err
	}
	var st admin.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	return show(cmd, json.RawMessage(body), func(to io.Writer) error { return writeStatus(to, &st) })
}

func writeStatus(to io.Writer, st *admin.Status) error {
	fmt.Fprintf(to, "node %s, twgd %s, up %s\n", st.Node.ID, st.Version, time.Duration(st.Node.Uptime)*time.Second)
	if len(st.Cluster) > 0 && string(st.Cluster) != "null" {
		var c cluster.Status
		if err := json.Unmarshal(st.Cluster, &c); err != nil {
			return fmt.Errorf("reading the cluster's status: %w", err)
		}
		fmt.Fprintln(to)
		writeCluster(to, &c)
	}
	for i := range st.Streams {
		s := &st.Streams[i]
		fmt.Fprintf(to, "\nstream %s: %s%s\n", s.Name, s.State, because(s.Reason))
		if err := writePartitions(to, s.Partitions); err != nil {
			return err
		}
		if err := writeSinkStates(to, s.Sinks); err != nil {
			return err
		}
		fmt.Fprintf(to, "  quarantine: %s records, %s shed\n", known64(s.Quarantine.Records), known64(s.Quarantine.Shed))
		writeDedup(to, s.Dedup)
	}
	return nil
}

// writeDedup says how many records repeat others, and what keeps it from knowing.
func writeDedup(to io.Writer, d *admin.Dedup) {
	if d == nil {
		return
	}
	fmt.Fprintf(to, "  repeated (%s): %d of %d checked", d.Mode, d.Duplicates, d.Checked)
	if d.Mode == "drop" {
		fmt.Fprintf(to, ", %d dropped", d.Dropped)
	}
	fmt.Fprintf(to, "; %s passed because nobody could tell or note it, %s without content to compare%s\n", reasons(d.Unavailable), reasons(d.Unkeyed), because(d.Reason))
	if d.Held != nil && *d.Held < d.Window {
		fmt.Fprintf(to, "  repeated: contents are known for the last %s instead of %s: older ones were let go for want of max_entries\n", seconds(*d.Held), seconds(d.Window))
	}
}

// reasons is the number of all, and where there are any, of each reason.
func reasons(by map[string]int64) string {
	var each []string
	for _, r := range slices.Sorted(maps.Keys(by)) {
		if by[r] > 0 {
			each = append(each, fmt.Sprintf("%s %d", r, by[r]))
		}
	}
	return strconv.FormatInt(total(by), 10) + because(strings.Join(each, ", "))
}

func total(byReason map[string]int64) (n int64) {
	for _, v := range byReason {
		n += v
	}
	return n
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}

// writePartitions writes a table, and below it why partitions are held: a reason is longer than a column.
func writePartitions(to io.Writer, list []admin.Partition) error {
	w := tabwriter.NewWriter(to, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  partition\traw\tcommitted\tend\tlag")
	for _, p := range list {
		fmt.Fprintf(w, "  %s/%d\t%s\t%s\t%s\t%s\n", p.Topic, p.Number, known64(p.RawNext), known64(p.Committed), known64(p.End), known64(p.Lag))
	}
	err := w.Flush()
	for _, p := range list {
		if p.Held != "" {
			fmt.Fprintf(to, "  %s/%d is held: %s\n", p.Topic, p.Number, p.Held)
		}
	}
	return err
}

// writeSinkStates writes a table, and below it what sinks complain of.
func writeSinkStates(to io.Writer, list []admin.Sink) error {
	w := tabwriter.NewWriter(to, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  sink\tstate\tcovered\tmissing\twindows")
	for _, k := range list {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", k.Name, k.State, known64(k.Covered), known64(k.GapRecords), known64(k.BacklogWindows))
	}
	err := w.Flush()
	for _, k := range list {
		if k.LastError != "" {
			fmt.Fprintf(to, "  %s: %s\n", k.Name, k.LastError)
		}
	}
	return err
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func known64(n *int64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatInt(*n, 10)
}
