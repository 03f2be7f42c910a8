package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/cluster"
	"github.com/stream-arrow/twgd/tuning"
)

// commands are what the socket takes for the cluster. At size 0 they say that there is none.
func (p *part) commands() []admin.Command {
	list := []admin.Command{
		{Name: "members", Handle: func(context.Context, json.RawMessage, func(any)) (any, error) { return p.node.Status(), nil }},
		{Name: "leave", Handle: p.handleLeave},
		{Name: "tune", Handle: p.handleTune},
		{Name: "backup", Handle: func(ctx context.Context, _ json.RawMessage, _ func(any)) (any, error) {
			info, err := p.node.Backup(ctx)
			return info, answered(err)
		}},
	}
	if p == nil {
		for i := range list {
			list[i].Handle = noCluster
		}
	}
	return list
}

func noCluster(context.Context, json.RawMessage, func(any)) (any, error) {
	return nil, &admin.Error{Exit: admin.ExitUsage, Text: "this node runs for itself (cluster.size is 0): there is no cluster to ask"}
}

// answered gives a refusal its exit code.
func answered(err error) error {
	switch {
	case errors.Is(err, cluster.ErrUnsafe):
		return &admin.Error{Exit: admin.ExitRefused, Text: err.Error()}
	case err != nil:
		return &admin.Error{Exit: admin.ExitFailed, Text: err.Error()}
	}
	return nil
}

func (p *part) handleLeave(ctx context.Context, args json.RawMessage, _ func(any)) (any, error) {
	var a leaveArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, &admin.Error{Exit: admin.ExitUsage, Text: err.Error()}
	}
	return struct{}{}, answered(p.node.Leave(ctx, cluster.LeaveOptions{Node: a.Node, Drop: a.Drop, Wait: a.Wait}))
}

func (p *part) handleTune(ctx context.Context, args json.RawMessage, _ func(any)) (any, error) {
	var a tuneArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, &admin.Error{Exit: admin.ExitUsage, Text: err.Error()}
	}
	if a.Key == "" {
		return p.node.Settings(), nil
	}
	if err := tuning.Check(a.Key, a.Value); err != nil {
		return nil, &admin.Error{Exit: admin.ExitUsage, Text: err.Error()}
	}
	if err := p.node.Tune(ctx, a.Key, a.Value); err != nil {
		return nil, answered(err)
	}
	settings := p.node.Settings() // as this node last heard, which may be before the change
	settings[a.Key] = a.Value
	return settings, nil
}
