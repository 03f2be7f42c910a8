package main

import (
	"context"
	"sync"

	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
)

// duties are what the nodes of a cluster share out among themselves.
type duties struct {
	claims    recovery.Claims
	elections recovery.Elections
	shared    bool // other nodes have the same claims: whoever has one may recover any partition
}

// allDuties are those of a node without others: it holds every office and competes with nobody.
func allDuties() duties {
	return duties{claims: new(recovery.Local), elections: recovery.Alone{}}
}

// What a node does, by its mode.
const (
	modeIngest   = "ingest"   // moves records; recovers nothing
	modeRecovery = "recovery" // recovers; reads no source
)

func (n *node) ingests() bool  { return n.cfg.Node.Mode != modeRecovery }
func (n *node) recovers() bool { return n.cfg.Node.Mode != modeIngest }

// share is the part of its byte budget that a node may use: less than all while it has other duties.
type share struct {
	mu    sync.Mutex
	value float64
}

// setShare changes the byte budgets of all streams, also of those that are opened later. A share is above 0 and at most 1.
func (n *node) setShare(value float64) {
	n.share.mu.Lock()
	n.share.value = value
	n.share.mu.Unlock()
	for _, s := range n.streams {
		if r, _, _, _ := s.look(); r != nil {
			s.applyShare(r)
		}
	}
}

func (s *stream) applyShare(r *rooms) {
	s.node.share.mu.Lock()
	defer s.node.share.mu.Unlock()
	if v := s.node.share.value; v > 0 {
		r.pipe.Budget(int64(float64(s.cfg.Budget) * v))
	}
}

// survey looks at all chains in raw where this node may recover what others read, or nobody: where claims are shared, where it reads
// nothing itself, and where it is the only process that owns raw. Else it returns nil.
func (s *stream) survey(r *rooms, exclusive, shared bool) *recovery.Survey {
	if !exclusive && !shared {
		return nil
	}
	return recovery.NewSurvey(recovery.SurveyOptions{Raw: r.raw, Assigned: r.pipe.Assigned, Log: s.log, Adopt: func(p record.Partition) {
		for _, l := range r.lanes {
			l.Adopt(p)
		}
	}})
}

// extents are the partitions that recovery looks after.
func (r *rooms) extents(ctx context.Context) map[record.Partition]pipeline.Extent {
	if r.chains == nil {
		return r.pipe.Assigned(ctx)
	}
	return r.chains.Extents(ctx)
}

// surveyed looks at the chains until ctx ends.
func (r *rooms) surveyed(ctx context.Context) {
	if r.chains != nil {
		r.chains.Run(ctx)
	}
}

func (r *rooms) whole() bool { return r.chains == nil || r.chains.Whole() }

// newAgent prepares recovery of one sink.
func (s *stream) newAgent(r *rooms, i int, exclusive, shared bool) *recovery.Agent {
	l := r.lanes[i]
	return recovery.New(recovery.Options{
		Stream: s.cfg.Name, Node: s.node.instance, Lane: l, Sink: r.sinks[i], Raw: r.raw, Assigned: r.extents, Whole: r.whole,
		Claims: s.node.duties.claims, Shared: shared, Exclusive: exclusive,
		Window: int64(s.cfg.Recovery.Window), Deadline: s.deadline(i),
		Copies: func(ctx context.Context) (coverage.Set, error) {
			return coverage.Merged(ctx, r.bucket, s.cfg.Name, l.Name())
		},
		Weigh: r.raw.Weigh, Share: s.node.part.recoveryShare, Metrics: s.node.recover, Log: s.log.With("sink", l.Name()),
	})
}

// recover runs the agents until ctx ends, where this node recovers, and while it is elected speaks for the stream.
func (s *stream) recover(ctx context.Context, r *rooms) {
	var running sync.WaitGroup
	if s.node.recovers() {
		running.Go(func() { r.surveyed(ctx) })
		for _, a := range r.agents {
			running.Go(func() { a.Run(replaying(ctx, replay{skip: r.rejects.skip})) })
		}
	}
	s.node.duties.elections.Elected(ctx, "stream/"+s.cfg.Name, func(ctx context.Context) { s.speak(ctx, r) })
	running.Wait()
}

// speak is the office of the one node that says what a stream has left to recover, and merges the copies of coverage. Where this node
// recovers nothing itself it only looks, so that a fleet which was scaled to nothing is called back.
func (s *stream) speak(ctx context.Context, r *rooms) {
	var speaking sync.WaitGroup
	for _, a := range r.agents {
		speaking.Go(func() { a.Speak(ctx) })
		if !s.node.recovers() {
			speaking.Go(func() { a.Watch(ctx) })
		}
	}
	if !s.node.recovers() {
		speaking.Go(func() { r.surveyed(ctx) })
	}
	speaking.Go(func() {
		coverage.Merger{Bucket: r.bucket, Stream: s.cfg.Name, Sinks: sinkNames(s.cfg), Log: s.log}.Run(ctx)
	})
	speaking.Wait()
}
