package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
			ctx, done := p.whileLed(ctx)
			defer done()
			info, err := p.node.Backup(ctx)
			return info, answered(ending(ctx, err))
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

// leaderWithin is how long a command waits while nobody leads: elections after a crash are over by then.
const leaderWithin = 20 * time.Second

// whileLed ends a command that waits for a leader where there is none to be had, with the reason as its cause. What a leader works at is not
// cut short.
func (p *part) whileLed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	tick := time.NewTicker(leaderWithin)
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if s := p.node.Status(); s.Leader == "" || s.Tolerance == nil {
					cancel(fmt.Errorf("not done: no leader has answered for %v: %s", leaderWithin, cmp.Or(s.Mend, s.Waiting, "none is known")))
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// ending says why a command ended, where whileLed ended it.
func ending(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (p *part) handleLeave(ctx context.Context, args json.RawMessage, _ func(any)) (any, error) {
	var a leaveArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, &admin.Error{Exit: admin.ExitUsage, Text: err.Error()}
	}
	ctx, done := p.whileLed(ctx)
	defer done()
	err := p.node.Leave(ctx, cluster.LeaveOptions{Node: a.Node, Drop: a.Drop, Wait: a.Wait})
	return struct{}{}, answered(ending(ctx, err))
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
	ctx, done := p.whileLed(ctx)
	defer done()
	if err := p.node.Tune(ctx, a.Key, a.Value); err != nil {
		return nil, answered(ending(ctx, err))
	}
	settings := p.node.Settings() // as this node last heard, which may be before the change
	settings[a.Key] = a.Value
	return settings, nil
}
