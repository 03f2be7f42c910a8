package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/config"
)

// offsets checks the range that --from and --to name.
func offsets(from, to int64) error {
	switch {
	case from < 0 || to < 0:
		return fail(exitUsage, fmt.Errorf("--from %d --to %d: offsets are never negative", from, to))
	case to <= from:
		return fail(exitUsage, fmt.Errorf("--to %d does not lie above --from %d: the range begins at --from and ends in front of --to", to, from))
	}
	return nil
}

// asJSON reports whether the output is for machines.
func asJSON(cmd *cobra.Command) bool {
	o, _ := cmd.Flags().GetString("output")
	return o == "json"
}

// show writes a result as one JSON document, or by text for people.
func show(cmd *cobra.Command, v any, text func(io.Writer) error) error {
	if !asJSON(cmd) {
		return text(cmd.OutOrStdout())
	}
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", "", "the configuration file")
}

func streamFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("stream", "", "the stream; may be left out where the configuration has one only")
}

// chosen are the streams that a command is about: the one that is named, or all.
func chosen(cfg *config.Config, name string) ([]*config.Stream, error) {
	var out []*config.Stream
	var names []string
	for i := range cfg.Streams {
		names = append(names, cfg.Streams[i].Name)
		if name == "" || name == cfg.Streams[i].Name {
			out = append(out, &cfg.Streams[i])
		}
	}
	if len(out) == 0 {
		return nil, fail(exitUsage, fmt.Errorf("the configuration has no stream %q; it has %q", name, names))
	}
	return out, nil
}

// one is the stream that a command is about, which has to be named where there are several.
func one(cfg *config.Config, name string) (*config.Stream, error) {
	all, err := chosen(cfg, name)
	if err == nil && len(all) > 1 {
		err = fail(exitUsage, fmt.Errorf("the configuration has %d streams: name one with --stream", len(all)))
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// progress tells of long work on standard error: on a terminal in one line that is written over, elsewhere a line every few
// seconds.
type progress struct {
	to       io.Writer
	terminal bool
	mu       sync.Mutex
	begun    time.Time
	told     time.Time
	width    int
}

// everyLine is how often a line is written where lines cannot be written over.
const everyLine = 5 * time.Second

func newProgress(cmd *cobra.Command) *progress {
	p := &progress{to: cmd.ErrOrStderr(), begun: time.Now(), told: time.Now()}
	if f, ok := p.to.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// tell shows what is being done.
func (p *progress) tell(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.terminal {
		fmt.Fprintf(p.to, "\r%-*s", p.width, what)
		p.width = len(what)
		return
	}
	if now.Sub(p.told) >= everyLine {
		p.told = now
		fmt.Fprintf(p.to, "%s (%s)\n", what, now.Sub(p.begun).Round(time.Second))
	}
}

// done takes the line away.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.width > 0 {
		fmt.Fprintf(p.to, "\r%-*s\r", p.width, "")
	}
}

// dial finds the node that runs with a configuration.
func dial(file string) (*admin.Client, *config.Config, error) {
	cfg, err := loadConfig(file)
	if err != nil {
		return nil, nil, err
	}
	c, err := admin.Dial(cfg.Node.DataDir)
	if errors.Is(err, admin.ErrNoNode) {
		return nil, nil, fmt.Errorf("%w; start one: `twgd run -c %s`", err, file)
	}
	if err != nil {
		return nil, nil, err
	}
	return c, cfg, nil
}
