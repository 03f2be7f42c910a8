package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/admin"
)

func recoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover -c FILE [--stream S --sink K --from A --to B]",
		Short: "Show what recovery has left to do, or replay a range out of raw into a sink",
		Long: "Without --sink it shows what the sinks miss and recovery is about to fill. With --sink it replays the offsets [from, to) now, whatever\n" +
			"is noted as covered: rows that are missing are written, rows that are there stay.",
		Example: "  twgd recover -c twgd.yaml\n  twgd recover -c twgd.yaml --stream orders --sink lake --topic orders --partition 0 --from 1000 --to 2000",
		Args:    usage(cobra.NoArgs),
	}
	file, stream := configFlag(cmd), streamFlag(cmd)
	var a recoverArgs
	f := cmd.Flags()
	f.StringVar(&a.Sink, "sink", "", "the sink to fill")
	f.StringVar(&a.Topic, "topic", "", "this topic only")
	partition := f.Int32("partition", -1, "this partition only")
	f.Int64Var(&a.From, "from", 0, "the first offset")
	f.Int64Var(&a.To, "to", 0, "the offset behind the last one")
	f.BoolVar(&a.Skip, "skip-quarantine", false, "keep rejects of this replay out of the quarantine; the trail has them in any case")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a.Stream = *stream
		if *partition >= 0 {
			a.Partition = partition
		}
		if a.Sink == "" {
			for _, name := range []string{"from", "to", "topic", "partition", "skip-quarantine"} {
				if f.Changed(name) {
					return fail(exitUsage, fmt.Errorf("--%s goes with --sink, which says what to fill; see `%s --help`", name, cmd.CommandPath()))
				}
			}
		} else if !f.Changed("from") || !f.Changed("to") {
			return fail(exitUsage, errors.New("--sink goes with --from, the first offset to replay, and --to, the offset behind the last one"))
		} else if err := offsets(a.From, a.To); err != nil {
			return err
		}
		c, _, err := dial(*file)
		if err != nil {
			return err
		}
		if a.Sink == "" {
			return showWindows(cmd, c, a.Stream)
		}
		return replayNow(cmd, c, a)
	}
	return cmd
}

func showWindows(cmd *cobra.Command, c *admin.Client, stream string) error {
	body, err := c.Call(cmd.Context(), "windows", struct{}{}, nil)
	if err != nil {
		return err
	}
	var all, rows []windowStatus
	if err := json.Unmarshal(body, &all); err != nil {
		return err
	}
	rows = []windowStatus{}
	for _, w := range all {
		if stream == "" || stream == w.Stream {
			rows = append(rows, w)
		}
	}
	return show(cmd, rows, func(to io.Writer) error {
		w := tabwriter.NewWriter(to, 2, 0, 2, ' ', 0)
		fmt.Fprintln(w, "stream\tsink\twindows\toffsets\toldest\tworking on\tlast error")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", r.Stream, r.Sink, r.Windows, r.Records,
				time.Duration(r.Oldest*float64(time.Second)).Round(time.Second), dash(r.Working), dash(r.Error))
		}
		return w.Flush()
	})
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func replayNow(cmd *cobra.Command, c *admin.Client, a recoverArgs) error {
	p := newProgress(cmd)
	body, err := call(cmd.Context(), c, "recover", a, func(step recoverProgress) {
		p.tell(fmt.Sprintf("replaying %s: %d of %d windows", step.Partition, step.Done, step.Windows))
	})
	p.done()
	if err != nil {
		return err
	}
	var r recoverResult
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	return show(cmd, r, func(to io.Writer) error {
		if r.Windows == 0 {
			_, err := fmt.Fprintln(to, "nothing to replay: nothing is missing there, or raw has nothing in this range")
			return err
		}
		_, err := fmt.Fprintf(to, "replayed %s of %s\n", counted(r.Windows, "window"), counted(r.Partitions, "partition"))
		return err
	})
}

// counted is a number of things in words.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// call is Client.Call with the type of its steps.
func call[T any](ctx context.Context, c *admin.Client, name string, args any, step func(T)) (json.RawMessage, error) {
	return c.Call(ctx, name, args, func(body json.RawMessage) {
		var v T
		if json.Unmarshal(body, &v) == nil {
			step(v)
		}
	})
}
