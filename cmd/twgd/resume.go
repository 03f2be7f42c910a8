package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources/kafka"
)

// resumeArgs ask for a gap that an operator decides on.
type resumeArgs struct {
	Stream    string `json:"stream"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	SkipTo    int64  `json:"skip_to"`
	Force     bool   `json:"force"` // give up what could still be read, or what is not yet written
}

// resumeResult is the gap that was written, and what came of it within resumePatience.
type resumeResult struct {
	Partition string          `json:"partition"`
	Gap       checkpoint.Span `json:"gap"`
	Reason    string          `json:"reason"`
	State     string          `json:"state"` // reading, held, unknown: nothing was heard of it in time
	Held      string          `json:"held"`  // why it is held again
}

// handleResume writes the gap and lets the source begin behind it. Only a partition that is held is let go on that way: anything
// else would give up records that could be read.
func (n *node) handleResume(ctx context.Context, args json.RawMessage, _ func(any)) (any, error) {
	var a resumeArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, &admin.Error{Exit: admin.ExitUsage, Text: err.Error()}
	}
	s, r, err := n.moving(a.Stream)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, _ := r.pipe.Status(asking)
	for _, p := range st.Partitions {
		if p.Partition.Topic != a.Topic || p.Partition.Number != a.Partition {
			continue
		}
		if p.Held == "" {
			return nil, &admin.Error{Exit: admin.ExitRefused, Text: fmt.Sprintf("%v is not held: skipping would give up records that can be read", p.Partition)}
		}
		return s.skip(ctx, r, p.Partition, p.Held, a)
	}
	return nil, &admin.Error{Exit: admin.ExitUsage, Text: fmt.Sprintf("this node does not read %s/%d now; `twgd status` lists what it reads", a.Topic, a.Partition)}
}

// refuseSkip says why a skip to an offset would give up more than it must. The log is what the source has now; next is raw's head.
func refuseSkip(p record.Partition, next, to int64, log checkpoint.Span) string {
	switch {
	case to <= next:
		return fmt.Sprintf("raw has %v up to %d, and never goes back: the offset to go on at lies above", p, next)
	case log.From > next && to > log.From:
		return fmt.Sprintf("%v can be read from %d; --skip-to %d loses nothing more, and --force gives up [%d, %d) too", p, log.From, log.From, log.From, to)
	case to > log.To:
		return fmt.Sprintf("the log of %v ends at %d: --skip-to %d would give up records that are still to come; --force insists", p, log.To, to)
	}
	return ""
}

// guard refuses a skip that would give up more than what is lost. Where the source does not say what it has, nobody can tell.
func (s *stream) guard(ctx context.Context, p record.Partition, next int64, a resumeArgs) error {
	if a.Force && a.SkipTo > next {
		return nil
	}
	all, err := brokers{s.cfg}.Ranges(ctx)
	log, known := all[p]
	text := refuseSkip(p, next, a.SkipTo, log)
	if !known {
		text = fmt.Sprintf("the source does not say what it has of %v, so that nobody can tell what --skip-to %d gives up (%v); --force insists", p, a.SkipTo, err)
	}
	if text == "" {
		return nil
	}
	return &admin.Error{Exit: admin.ExitRefused, Text: text}
}

func (s *stream) skip(ctx context.Context, r *rooms, p record.Partition, held string, a resumeArgs) (any, error) {
	head, err := r.raw.Head(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := s.guard(ctx, p, head.Next, a); err != nil {
		return nil, err
	}
	reason := "operator: " + kafka.Why(held)
	stored, err := r.raw.Skip(ctx, p, a.SkipTo, reason)
	if err != nil {
		return nil, err
	}
	s.log.Warn("an operator let a held partition go on behind a gap", "partition", p.String(), "from", head.Next, "to", stored.Next, "reason", held)
	r.source.Seek(p, stored.Next)
	out := resumeResult{Partition: p.String(), Gap: checkpoint.Span{From: head.Next, To: stored.Next}, Reason: reason}
	out.State, out.Held = s.resumed(ctx, r, p, stored.Next)
	return out, nil
}

// resumePatience is how long a resume waits to see what comes of it. A log that is still not the right one is held again within a
// second or two.
const resumePatience = 10 * time.Second

// resumed waits until the partition is read from next on, or held again.
func (s *stream) resumed(ctx context.Context, r *rooms, p record.Partition, next int64) (state, held string) {
	ctx, cancel := context.WithTimeout(ctx, resumePatience)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		if state, held = resumedAt(s.ask(r), p, next); state != "unknown" {
			return state, held
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return state, held
		}
	}
}

// resumedAt tells it from the status. An assignment that begins below next is the one before the skip, and says nothing.
func resumedAt(st pipeline.Status, of record.Partition, next int64) (state, held string) {
	for _, p := range st.Partitions {
		switch {
		case p.Partition != of || p.Position < next:
		case p.Held != "":
			return "held", p.Held
		case p.Position > next || p.End >= 0: // the end of a log is known once it was read
			return "reading", ""
		}
	}
	return "unknown", ""
}
