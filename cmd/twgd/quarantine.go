package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/pipeline/quarantine"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/unit"
)

func quarantineCommand() *cobra.Command {
	return group("quarantine", "See what was rejected and why", "  twgd quarantine cat -c twgd.yaml --sink db", quarantineList(), quarantineCat())
}

// rejected makes a command that looks into the quarantine of one stream.
func rejected(cmd *cobra.Command, f func(cmd *cobra.Command, b store.Bucket, files []quarantine.File) error) *cobra.Command {
	cmd.Args = usage(cobra.NoArgs)
	file, stream := configFlag(cmd), streamFlag(cmd)
	sink := cmd.Flags().String("sink", "", "this sink only")
	since := cmd.Flags().String("since", "0", "only files that were closed within this time, such as 24h or 7d")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg, err := loadConfig(*file)
		if err != nil {
			return err
		}
		s, err := one(cfg, *stream)
		if err != nil {
			return err
		}
		within, err := unit.ParseDuration(*since)
		if err != nil {
			return fail(exitUsage, fmt.Errorf("--since %s: %w", *since, err))
		}
		var begin time.Time
		if within > 0 {
			begin = time.Now().Add(-time.Duration(within))
		}
		b, files, err := openQuarantine(cmd.Context(), s, *sink, begin)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		return f(cmd, b, files)
	}
	return cmd
}

func openQuarantine(ctx context.Context, s *config.Stream, sink string, since time.Time) (store.Bucket, []quarantine.File, error) {
	if sink != "" {
		if names := sinkNames(s); !slices.Contains(names, sink) {
			return nil, nil, fail(exitUsage, fmt.Errorf("stream %s has no sink %q; it has %q", s.Name, sink, names))
		}
	}
	if err := mustExist(s.Quarantine.To, "the quarantine of stream "+s.Name); err != nil {
		return nil, nil, err
	}
	b, err := store.Open(ctx, string(s.Quarantine.To), store.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("opening the quarantine of stream %s: %w", s.Name, err)
	}
	files, err := quarantine.List(ctx, b, s.Name, sink, since)
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return b, files, nil
}

// quarantineFile is a file in `quarantine ls`.
type quarantineFile struct {
	Sink  string `json:"sink"`
	Time  string `json:"time"`
	Node  string `json:"node"`
	Bytes int64  `json:"bytes"`
	Key   string `json:"key"`
}

func quarantineList() *cobra.Command {
	return rejected(&cobra.Command{Use: "ls -c FILE", Short: "List the files of the quarantine", Example: "  twgd quarantine ls -c twgd.yaml --since 24h"},
		func(cmd *cobra.Command, _ store.Bucket, files []quarantine.File) error {
			list := []quarantineFile{}
			for _, f := range files {
				list = append(list, quarantineFile{f.Sink, f.Time.Format(time.RFC3339), f.Node, f.Size, f.Key})
			}
			return show(cmd, list, func(to io.Writer) error {
				w := tabwriter.NewWriter(to, 2, 0, 2, ' ', 0)
				fmt.Fprintln(w, "sink\ttime\tnode\tbytes\tfile")
				for _, f := range list {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", f.Sink, f.Time, f.Node, f.Bytes, f.Key)
				}
				return w.Flush()
			})
		})
}

// shownReject is a rejected record as JSON. Key and value may be cut; their sizes are those of the whole, which raw has.
type shownReject struct {
	Sink      string `json:"sink"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail"`
	At        string `json:"at"`
	KeySize   *int64 `json:"key_size"`
	ValueSize *int64 `json:"value_size"`
	shown
}

func quarantineCat() *cobra.Command {
	return rejected(&cobra.Command{
		Use: "cat -c FILE", Short: "Print rejected records, one JSON object a line",
		Long: "Prints one JSON object a rejected record, with the reason. Keys and values may be cut: their sizes are those of the whole record,\n" +
			"which `twgd raw cat` prints.",
		Example: "  twgd quarantine cat -c twgd.yaml --sink db --since 1h",
	}, func(cmd *cobra.Command, b store.Bucket, files []quarantine.File) error {
		out := bufio.NewWriter(cmd.OutOrStdout())
		lines := json.NewEncoder(out)
		for _, f := range files {
			err := quarantine.Cat(cmd.Context(), b, f.Key, func(r *quarantine.Row) error { return lines.Encode(newShownReject(r)) })
			if err != nil {
				return errors.Join(damagedExit(err), out.Flush())
			}
		}
		return out.Flush()
	})
}

func newShownReject(r *quarantine.Row) shownReject {
	out := shownReject{Sink: r.Sink, Reason: r.Reason, Detail: r.Detail, At: r.At.Format(time.RFC3339Nano), shown: newShown(r.Partition, &r.Record, r.ID)}
	out.KeySize, out.ValueSize = known(r.KeySize), known(r.ValueSize)
	return out
}
