package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
)

// commands are what the socket takes.
func (n *node) commands() []admin.Command {
	return append(n.part.commands(), []admin.Command{
		{Name: "windows", Handle: func(context.Context, json.RawMessage, func(any)) (any, error) { return n.windows(), nil }},
		{Name: "recover", Handle: n.handleRecover},
		{Name: "resume", Handle: n.handleResume},
		{Name: "stop", Handle: n.handleStop},
	}...)
}

// handleStop does what SIGTERM does.
func (n *node) handleStop(context.Context, json.RawMessage, func(any)) (any, error) {
	n.end()
	return struct{}{}, nil
}

// windowStatus is what recovery has left to do for one sink.
type windowStatus struct {
	Stream  string  `json:"stream"`
	Sink    string  `json:"sink"`
	Windows int64   `json:"windows"`
	Records int64   `json:"records"`
	Oldest  float64 `json:"oldest_s"`
	Working string  `json:"working"`
	Error   string  `json:"last_error"`
}

func (n *node) windows() []windowStatus {
	out := []windowStatus{}
	for _, s := range n.streams {
		r, _, _, _ := s.look()
		if r == nil {
			continue
		}
		for i, a := range r.agents {
			if !a.Found() { // it has not looked, or it is another node's to look
				continue
			}
			b := a.Backlog()
			out = append(out, windowStatus{s.cfg.Name, s.cfg.Sinks[i].Name, b.Windows, b.Records, b.Oldest.Seconds(), b.Working, b.LastError})
		}
	}
	return out
}

// moving is the open stream of that name; the only one where the name is empty.
func (n *node) moving(name string) (*stream, *rooms, error) {
	names := make([]string, len(n.streams))
	for i, s := range n.streams {
		names[i] = s.cfg.Name
	}
	i := slices.Index(names, name)
	if name == "" && len(names) == 1 {
		i = 0
	}
	if i < 0 {
		return nil, nil, &admin.Error{Exit: admin.ExitUsage, Text: fmt.Sprintf("the node runs no stream %q; it runs %q", name, names)}
	}
	r, waiting, _, _ := n.streams[i].look()
	if r == nil {
		return nil, nil, &admin.Error{Exit: admin.ExitFailed, Text: fmt.Sprintf("stream %s is not open yet: %s", names[i], waiting)}
	}
	return n.streams[i], r, nil
}

// recoverArgs ask for a replay. An empty Topic and a nil Partition stand for all that this node looks after.
type recoverArgs struct {
	Stream    string `json:"stream"`
	Sink      string `json:"sink"`
	Topic     string `json:"topic"`
	Partition *int32 `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Skip      bool   `json:"skip_quarantine"`
}

// recoverProgress is a step of a replay.
type recoverProgress struct {
	Partition string `json:"partition"`
	Done      int    `json:"done"`
	Windows   int    `json:"windows"`
}

// recoverResult is what a replay did.
type recoverResult struct {
	Partitions int `json:"partitions"`
	Windows    int `json:"windows"`
}

func (n *node) handleRecover(ctx context.Context, args json.RawMessage, progress func(any)) (any, error) {
	var a recoverArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, &admin.Error{Exit: admin.ExitUsage, Text: err.Error()}
	}
	s, r, err := n.moving(a.Stream)
	if err != nil {
		return nil, err
	}
	agent, err := s.agent(r, a.Sink)
	if err != nil {
		return nil, err
	}
	return replayRange(replaying(ctx, replay{skip: a.Skip, again: true}), r, agent, a, progress)
}

func (s *stream) agent(r *rooms, sink string) (*recovery.Agent, error) {
	var names []string
	for i, c := range s.cfg.Sinks {
		if c.Name == sink {
			return r.agents[i], nil
		}
		names = append(names, c.Name)
	}
	return nil, &admin.Error{Exit: admin.ExitUsage, Text: fmt.Sprintf("stream %s has no sink %q; it has %q", s.cfg.Name, sink, names)}
}

func replayRange(ctx context.Context, r *rooms, agent *recovery.Agent, a recoverArgs, progress func(any)) (any, error) {
	var out recoverResult
	found := false
	for _, p := range sorted(r.extents(ctx)) {
		if a.Topic != "" && p.Topic != a.Topic || a.Partition != nil && p.Number != *a.Partition {
			continue
		}
		found = true
		windows := 0
		err := agent.Force(ctx, p, checkpoint.Span{From: a.From, To: a.To}, func(done, all int) {
			windows = all
			progress(recoverProgress{p.String(), done, all})
		})
		switch {
		case errors.Is(err, recovery.ErrNothing):
			continue
		case err != nil:
			return nil, fmt.Errorf("replaying %v: %w", p, err)
		}
		out.Partitions++
		out.Windows += windows
	}
	if !found {
		return nil, &admin.Error{Exit: admin.ExitUsage, Text: "this node knows no such partition now; `twgd status` lists what it reads"}
	}
	return out, nil
}

func sorted[V any](m map[record.Partition]V) []record.Partition {
	out := make([]record.Partition, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, func(p, q record.Partition) int {
		if p.Less(q) {
			return -1
		}
		return 1
	})
	return out
}
