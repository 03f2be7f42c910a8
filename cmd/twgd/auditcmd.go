package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/audit"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/cuts"
	"github.com/stream-arrow/twgd/sources/kafka"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit -c FILE", Short: "Answer whether every record is accounted for",
		Long: "Compares, for each partition, what the source has, raw's chain, what each sink covers, and what the trail says was left out. It reads\n" +
			"the stores, so that it needs no running node, and may run beside one.\n\n" +
			"Exit code 0: every offset is accounted for. 3: something is not. 4: raw is damaged.",
		Example: "  twgd audit -c twgd.yaml\n  twgd audit -c twgd.yaml --stream orders --rows -o json",
		Args:    usage(cobra.NoArgs),
	}
	file, stream := configFlag(cmd), streamFlag(cmd)
	var o audit.Options
	f := cmd.Flags()
	f.BoolVar(&o.Rows, "rows", false, "count the rows in the sinks too, and do not believe what they say they hold; reads all of raw")
	f.BoolVar(&o.Full, "full", false, "read all of raw again, also what an earlier audit has read")
	f.BoolVar(&o.AcceptGaps, "accept-gaps", false, "let recorded gaps pass")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(*file)
		if err != nil {
			return err
		}
		streams, err := chosen(cfg, *stream)
		if err != nil {
			return err
		}
		p := newProgress(cmd)
		reports := []audit.Report{}
		for _, s := range streams {
			o.File = *file
			o.Progress = func(what string) { p.tell(s.Name + ": " + what) }
			r, err := auditStream(cmd.Context(), s, o)
			if err != nil {
				p.done()
				return damagedExit(fmt.Errorf("auditing stream %s: %w", s.Name, err))
			}
			reports = append(reports, r)
		}
		p.done()
		return conclude(cmd, reports)
	}
	return cmd
}

// conclude prints the reports and gives the worst verdict its exit code.
func conclude(cmd *cobra.Command, reports []audit.Report) error {
	err := show(cmd, reports, func(to io.Writer) error {
		for i := range reports {
			if i > 0 {
				fmt.Fprintln(to)
			}
			if err := reports[i].WriteText(to); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	code := exitDone
	for _, r := range reports {
		code = max(code, map[audit.Verdict]int{audit.Unaccounted: exitAudit, audit.Damaged: exitDamaged}[r.Verdict])
	}
	switch code {
	case exitAudit:
		return fail(code, errors.New("not every record is accounted for"))
	case exitDamaged:
		return fail(code, errors.New("raw is damaged; `twgd raw verify` names every place"))
	}
	return nil
}

// auditStream opens what an audit looks at, all of it for reading only.
func auditStream(ctx context.Context, s *config.Stream, o audit.Options) (_ audit.Report, err error) {
	st, err := openStores(ctx, s)
	if err != nil {
		return audit.Report{}, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	o.Stream, o.Raw, o.Bucket, o.Window = s.Name, st.raw, st.bucket, int64(s.Recovery.Window)
	o.Broker = brokers{s}
	for i := range s.Sinks {
		c := &s.Sinks[i]
		sink, err := newSink(ctx, c.Options, sinkDeps{stream: s.Name, name: c.Name, log: slog.New(slog.DiscardHandler), reading: true})
		if err != nil {
			return audit.Report{}, fmt.Errorf("sink %s: %w", c.Name, err)
		}
		defer sink.Close()
		k := audit.Sink{Name: c.Name, Deadline: time.Duration(c.Deadline), Sink: sink}
		if sink.Traits().Cuts {
			k.Cuts = cuts.New(cuts.Options{Bucket: st.bucket, Stream: s.Name, Sink: c.Name, Cell: int64(s.Recovery.Window), Genesis: genesisOf(st.raw)})
		} else {
			k.Ready = func(ctx context.Context) error {
				err := sink.Open(ctx)
				if notMade(c, err) {
					return fmt.Errorf("%w: %w", audit.ErrNotBegun, err)
				}
				return err
			}
		}
		o.Sinks = append(o.Sinks, k)
	}
	return audit.Run(ctx, o)
}

// brokers answers what the source of a stream has now.
type brokers struct{ cfg *config.Stream }

// Ranges implements audit.Broker.
func (b brokers) Ranges(ctx context.Context) (map[record.Partition]checkpoint.Span, error) {
	switch c := b.cfg.Source.Options.(type) {
	case *kafka.Config:
		return kafka.Ranges(ctx, kafkaOptions(c, sourceDeps{client: "twgd-audit", log: slog.New(slog.DiscardHandler)}))
	}
	return nil, fmt.Errorf("no room asks a source of %T", b.cfg.Source.Options)
}
