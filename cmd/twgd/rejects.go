package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/pipeline/quarantine"
	"github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// rejects is where the records of a stream go that a sink refuses for good: into the trail, which is the record, and then into
// the quarantine, which is the view.
type rejects struct {
	trail  *trail.Writer
	index  *trail.Index
	notes  *duplicates.Reader // of what was dropped as duplicates
	view   *quarantine.Quarantine
	bucket store.Bucket // the view's
	skip   bool         // what recovery replays does not go into the view

	mu    sync.Mutex
	shown map[sinkPartition]*checkpoint.SpanSet // handed to the view by this process
	known bool                                  // the index has read what was there at the start
	drops int64                                 // records dropped as duplicates, as the notes say
}

type sinkPartition struct {
	sink      string
	partition record.Partition
}

// replay marks a context whose rejects were carried by recovery.
type replay struct{ skip, again bool }

type replayKey struct{}

// replaying is ctx for a replay. skip keeps its rejects out of the view; again shows even what was shown before.
func replaying(ctx context.Context, r replay) context.Context {
	return context.WithValue(ctx, replayKey{}, r)
}

// report makes rejects of one sink durable in the trail and offers them to the view. A load that is tried again reports again:
// the trail is a set, and the view gets each record once from one process.
func (r *rejects) report(ctx context.Context, sink string, list []sinks.Reject) error {
	entries := make([]trail.Entry, len(list))
	now := time.Now()
	for i := range list {
		e := &list[i]
		entries[i] = trail.Entry{Partition: e.Partition, Span: checkpoint.Span{From: e.Offset, To: e.Offset + 1}, Sink: sink,
			Reason: e.Reason, Detail: e.Detail, ID: e.ID, At: now}
	}
	if err := r.trail.Append(ctx, entries); err != nil {
		return err
	}
	for i := range entries {
		r.index.Add(entries[i])
	}
	how, _ := ctx.Value(replayKey{}).(replay)
	if !how.skip {
		r.view.Offer(r.unseen(sink, list, how.again), sink)
	}
	return nil
}

// unseen leaves out what this process has shown already.
func (r *rejects) unseen(sink string, list []sinks.Reject, again bool) []sinks.Reject {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(list), func(e sinks.Reject) bool {
		at := sinkPartition{sink, e.Partition}
		if r.shown[at] == nil {
			r.shown[at] = &checkpoint.SpanSet{}
		}
		one := checkpoint.Span{From: e.Offset, To: e.Offset + 1}
		seen := r.shown[at].Covers(one)
		r.shown[at].Add(one)
		return seen && !again
	})
}

// follow keeps the index up to date with what other processes write, until ctx ends.
func (r *rejects) follow(ctx context.Context, log *slog.Logger) {
	for {
		err := r.index.Load(ctx)
		if err == nil {
			err = r.count(ctx)
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("the trail cannot be read; its numbers are not shown", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
		}
	}
}

// count adds up what the notes say was dropped. Damage is for audit to name: what can be read counts.
func (r *rejects) count(ctx context.Context) error {
	totals, err := r.notes.Totals(ctx)
	if err != nil && !errors.Is(err, avrofile.ErrDamaged) {
		return err
	}
	sum := int64(0)
	for _, n := range totals {
		sum += n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drops, r.known = max(r.drops, sum), true
	return nil
}

// noted counts what this process has dropped, before the notes are read again.
func (r *rejects) noted(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drops += n
}

// counts are what the trail and the notes know; nil until they have been read.
func (r *rejects) counts() map[trail.Count]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		return nil
	}
	counts := r.index.Counts()
	if r.drops > 0 {
		counts[trail.Count{Reason: reasonDuplicate}] += r.drops
	}
	return counts
}

// reasonDuplicate is why a record was dropped whose content another record held.
const reasonDuplicate = "duplicate"

// isReject tells the reasons that lead into quarantine from those for which a record is dropped.
func isReject(reason string) bool {
	return reason == sinks.ReasonSink || reason == sinks.ReasonOversize
}

// shed counts what the view had no room for, since the process began.
func (r *rejects) shed() map[quarantine.Key]int64 {
	out := map[quarantine.Key]int64{}
	for k, c := range r.view.Counts() {
		out[k] = c.Shed
	}
	return out
}

func (r *rejects) close() error {
	if r == nil || r.bucket == nil {
		return nil
	}
	return r.bucket.Close()
}

// openRejects opens the trail beside raw and the quarantine. Neither connects.
func (s *stream) openRejects(ctx context.Context, bucket store.Bucket, spool string) (*rejects, error) {
	view, err := store.Open(ctx, string(s.cfg.Quarantine.To), store.Options{SpoolDir: spool})
	if err != nil {
		return nil, errors.Join(errors.New("opening the quarantine"), err)
	}
	_, instance, _ := strings.Cut(s.node.instance, "~")
	return &rejects{
		bucket: view, skip: s.cfg.Recovery.Quarantine == "skip",
		trail: trail.NewWriter(trail.Options{Bucket: bucket, Stream: s.cfg.Name, Node: s.node.cfg.Node.ID, Instance: instance}),
		index: trail.NewIndex(bucket, s.cfg.Name),
		notes: duplicates.NewReader(bucket, s.cfg.Name),
		view:  quarantine.New(quarantine.Options{Bucket: view, Stream: s.cfg.Name, Node: s.node.instance, Budget: int64(s.cfg.Quarantine.Budget)}),
		shown: map[sinkPartition]*checkpoint.SpanSet{},
	}, nil
}
