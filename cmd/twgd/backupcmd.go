package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/cluster"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/unit"
)

func backupCommand() *cobra.Command {
	return group("backup", "Back up what the cluster replicates, and look at backups", "  twgd backup now -c twgd.yaml\n  twgd backup ls -c twgd.yaml",
		backupNowCommand(), backupListCommand(), backupVerifyCommand())
}

func backupNowCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "now -c FILE", Short: "Make a backup now", Example: "  twgd backup now -c twgd.yaml", Args: usage(cobra.NoArgs)}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, _, err := dial(*file)
		if err != nil {
			return err
		}
		body, err := c.Call(cmd.Context(), "backup", nil, nil)
		if err != nil {
			return err
		}
		var info backup.Info
		if err := json.Unmarshal(body, &info); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		return show(cmd, info, func(to io.Writer) error {
			_, err := fmt.Fprintf(to, "%s, %s, read back and verified\n", info.Name, unit.Size(info.Size))
			return err
		})
	}
	return cmd
}

// withPlace opens the place of backups of a configuration and hands it to f.
func withPlace(cmd *cobra.Command, file string, f func(*backup.Place) error) error {
	cfg, err := loadConfig(file)
	if err != nil {
		return err
	}
	o, bucket, err := backupOptions(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if o == nil {
		return fail(exitUsage, errors.New("the configuration names no place for backups: cluster.backup.to"))
	}
	return errors.Join(f(o.Place), bucket.Close())
}

func backupListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ls -c FILE", Short: "List the backups", Example: "  twgd backup ls -c twgd.yaml", Args: usage(cobra.NoArgs)}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withPlace(cmd, *file, func(p *backup.Place) error {
			all, err := p.List(cmd.Context())
			if err != nil {
				return err
			}
			return show(cmd, all, func(to io.Writer) error { return writeBackups(to, all) })
		})
	}
	return cmd
}

func writeBackups(to io.Writer, all []backup.Info) error {
	w := tabwriter.NewWriter(to, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "backup\tincarnation\tindex\tmade\tsize")
	for _, b := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", b.Name, b.Incarnation, b.Index, b.Time.UTC().Format(time.RFC3339), unit.Size(b.Size))
	}
	return w.Flush()
}

// checked is what verify found of one backup.
type checked struct {
	Name  string `json:"name"`
	Good  bool   `json:"good"`
	Error string `json:"error"`
}

func backupVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify -c FILE [NAME...]", Short: "Read backups whole and say which of them could be restored",
		Example: "  twgd backup verify -c twgd.yaml",
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		return withPlace(cmd, *file, func(p *backup.Place) error { return verifyBackups(cmd, p, names) })
	}
	return cmd
}

func verifyBackups(cmd *cobra.Command, p *backup.Place, names []string) error {
	if len(names) == 0 {
		all, err := p.List(cmd.Context())
		if err != nil {
			return err
		}
		for _, b := range all {
			names = append(names, b.Name)
		}
	}
	out, bad := []checked{}, 0
	for _, name := range names {
		c := checked{Name: name, Good: true}
		if _, err := p.Check(cmd.Context(), name, verifySnapshot); err != nil {
			c.Good, c.Error = false, err.Error()
			bad++
		}
		out = append(out, c)
	}
	if err := show(cmd, out, func(to io.Writer) error { return writeChecked(to, out) }); err != nil {
		return err
	}
	if bad > 0 {
		return fail(exitDamaged, fmt.Errorf("%d of %d backups cannot be restored", bad, len(out)))
	}
	return nil
}

func verifySnapshot(r io.Reader) error {
	_, err := fsm.Verify(r)
	return err
}

func writeChecked(to io.Writer, list []checked) error {
	for _, c := range list {
		text := "good"
		if !c.Good {
			text = c.Error
		}
		if _, err := fmt.Fprintf(to, "%s: %s\n", c.Name, text); err != nil {
			return err
		}
	}
	return nil
}

func restoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore -c FILE [--from-disk] [--lost N,N]",
		Short: "Bring a cluster back that has lost a majority of its disks",
		Long: "For a node that does not run. Restores the newest backup that verifies, as a new incarnation of the cluster: nodes of the old one\n" +
			"stop and join it. With --from-disk it goes on from this node's own disk instead, without the seats that are named as lost. Both refuse\n" +
			"while a leader answers, or a seat that is not named as lost is silent. Where every seat has said that its disk is empty, `twgd run`\n" +
			"restores by itself.",
		Example: "  twgd restore -c twgd.yaml --lost node-2,node-3\n  twgd restore -c twgd.yaml --from-disk --lost node-2,node-3",
		Args:    usage(cobra.NoArgs),
	}
	file := configFlag(cmd)
	disk := cmd.Flags().Bool("from-disk", false, "go on from this node's disk, not from a backup")
	lost := cmd.Flags().StringSlice("lost", nil, "nodes whose disks are gone for good")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(*file)
		if err != nil {
			return err
		}
		if cfg.Cluster.Size == 0 {
			return fail(exitUsage, errors.New("cluster.size is 0: a node for itself has nothing to restore"))
		}
		lock, err := alone(cfg)
		if err != nil {
			return err
		}
		defer lock.Unlock()
		r, err := restore(cmd.Context(), cfg, *disk, *lost)
		if err != nil {
			return refused(err)
		}
		return show(cmd, r, func(to io.Writer) error { return writeRestored(to, r) })
	}
	return cmd
}

// alone takes the data directory of a node that does not run.
func alone(cfg *config.Config) (*store.FileLock, error) {
	lock, err := store.Lock(filepath.Join(cfg.Node.DataDir, "lock"))
	if errors.Is(err, store.ErrLocked) {
		return nil, fail(exitRefused, fmt.Errorf("refused: a node runs on %s: stop it first (twgd stop; where something starts it again, that as well): %w", cfg.Node.DataDir, err))
	}
	return lock, err
}

func restore(ctx context.Context, cfg *config.Config, fromDisk bool, lost []string) (r cluster.Restored, err error) {
	log := newLog(cfg)
	o := clusterOptions(cfg, log)
	b, bucket, err := backupOptions(cfg, log)
	if err != nil {
		return r, err
	}
	if bucket != nil {
		defer func() { err = errors.Join(err, bucket.Close()) }()
	}
	o.Backup = b
	if fromDisk {
		return cluster.RestoreFromDisk(ctx, o, lost)
	}
	if b == nil {
		return r, fail(exitUsage, errors.New("the configuration names no place for backups (cluster.backup.to); --from-disk goes on from this node's disk"))
	}
	return cluster.Restore(ctx, o, lost)
}

func writeRestored(to io.Writer, r cluster.Restored) error {
	_, err := fmt.Fprintf(to, "goes on from %s as %s\n%s\n", r.From, r.ServerID, r.Next)
	return err
}
