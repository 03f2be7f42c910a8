package main

import (
	"context"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/recovery"
)

// status builds what /status shows. Streams are asked side by side, each within a bound: one that is stuck does not hide the others.
func (n *node) status() admin.Status {
	st := admin.Status{
		Version: version,
		Node:    admin.Node{ID: n.cfg.Node.ID, Mode: n.cfg.Node.Mode, Roles: n.roles(), Uptime: int64(time.Since(n.started).Seconds())},
		Streams: make(admin.List[admin.Stream], len(n.streams)),
	}
	var err error
	if st.Cluster, err = n.part.status(); err != nil {
		n.log.Error("the cluster's status cannot be shown", "error", err)
	}
	var asking sync.WaitGroup
	for i, s := range n.streams {
		asking.Go(func() { st.Streams[i] = s.status() })
	}
	asking.Wait()
	return st
}

// roles are what this node does now.
func (n *node) roles() admin.List[string] {
	if n.part != nil {
		return n.part.node.Roles()
	}
	roles := admin.List[string]{}
	if n.ingests() {
		roles = append(roles, "worker")
	}
	if n.recovers() {
		roles = append(roles, "recovery")
	}
	return roles
}

func (s *stream) status() admin.Stream {
	out := admin.Stream{Name: s.cfg.Name, State: "starting"}
	r, waiting, held, ended := s.look()
	switch {
	case ended != nil:
		out.State, out.Reason = "stopped", ended.Error()
	case held != "":
		out.State, out.Reason = "blocked", held
	case r == nil && waiting != "":
		out.State, out.Reason = "blocked", waiting
	}
	if r == nil {
		for _, c := range s.cfg.Sinks {
			out.Sinks = append(out.Sinks, admin.Sink{Name: c.Name, State: "live"})
		}
		return out
	}
	st := s.ask(r)
	if out.Reason == "" {
		out.State, out.Reason = st.State, st.Reason
	}
	if reason, n := holds(st); n > 0 && out.Reason == "" {
		out.State, out.Reason = "blocked", reason
	}
	if r.source == nil {
		st.Partitions = surveyed(r)
	}
	for _, p := range st.Partitions {
		out.Partitions = append(out.Partitions, partitionStatus(p))
	}
	for i, l := range r.lanes {
		if r.source == nil {
			out.Sinks = append(out.Sinks, recoveredStatus(l, r.agents[i], st.Partitions))
		} else {
			out.Sinks = append(out.Sinks, sinkStatus(l, r.agents[i], st.Partitions))
		}
	}
	out.Quarantine, out.Drops = rejectStatus(r.rejects)
	out.Dedup = r.dedup.status(s.node, s.cfg.Name, st.Dedup)
	return out
}

// rejectStatus counts by the trail, so that the numbers do not go back at a restart; nil until it has been read.
func rejectStatus(r *rejects) (q admin.Quarantine, drops map[string]int64) {
	var shed int64
	for _, n := range r.shed() {
		shed += n
	}
	q.Shed = &shed
	counts := r.counts()
	if counts == nil {
		return q, nil
	}
	records := int64(0)
	drops = map[string]int64{}
	for c, n := range counts {
		if isReject(c.Reason) {
			records += n
		} else {
			drops[c.Reason] += n
		}
	}
	q.Records = &records
	return q, drops
}

func partitionStatus(p pipeline.PartitionStatus) admin.Partition {
	out := admin.Partition{Topic: p.Partition.Topic, Number: p.Partition.Number,
		Position: known(p.Position), Committed: known(p.Committed), RawNext: &p.RawNext, End: known(p.End), Held: p.Held}
	if p.End >= 0 {
		lag := max(0, p.End-p.RawNext)
		out.Lag = &lag
	}
	return out
}

// surveyed are the chains in raw, as a node that reads nothing sees them.
func surveyed(r *rooms) (out []pipeline.PartitionStatus) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all := r.extents(ctx)
	for _, p := range sorted(all) {
		out = append(out, pipeline.PartitionStatus{Partition: p, Position: -1, Committed: -1, End: -1, Genesis: all[p].Genesis, RawNext: all[p].Next})
	}
	return out
}

// laneStatus is what a lane and its agent say of a sink as a whole.
func laneStatus(l *pipeline.Lane, a *recovery.Agent) admin.Sink {
	st := l.Status()
	out := admin.Sink{Name: st.Name, State: st.State, LastError: st.Reason, Backoff: st.Backoff.Seconds()}
	if b, found := a.Backlog(), a.Found(); found {
		out.BacklogWindows = &b.Windows
	}
	return out
}

// recoveredStatus is that of a sink in a node that reads nothing. What other nodes are about to write is no gap to it: it counts what is
// settled and missing, as its backlog does.
func recoveredStatus(l *pipeline.Lane, a *recovery.Agent, partitions []pipeline.PartitionStatus) admin.Sink {
	out := laneStatus(l, a)
	var covered int64
	for _, p := range partitions {
		set, ok := a.Coverage(p.Partition)
		if !ok {
			return out
		}
		covered += set.Within(checkpoint.Span{From: p.Genesis, To: p.RawNext}).Len()
	}
	out.Covered = &covered
	if a.Found() {
		gaps := a.Backlog().Records
		out.GapRecords = &gaps
	}
	if out.State == "live" && a.Backlog().Records > 0 {
		out.State = "lagging"
	}
	return out
}

func sinkStatus(l *pipeline.Lane, a *recovery.Agent, partitions []pipeline.PartitionStatus) admin.Sink {
	out := laneStatus(l, a)
	var covered, gaps int64
	all := true
	for _, p := range partitions {
		within := checkpoint.Span{From: p.Genesis, To: p.RawNext}
		set, ok := l.Coverage(p.Partition)
		missing, _ := l.Gaps(p.Partition, within)
		all = all && ok
		set = set.Within(within)
		covered += set.Len()
		for _, g := range missing {
			gaps += g.Len()
		}
	}
	if all {
		out.Covered, out.GapRecords = &covered, &gaps
	}
	if out.State == "live" && gaps > 0 {
		out.State = "lagging"
	}
	return out
}

// known is nil for the -1 of what is not known.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
