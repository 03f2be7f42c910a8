package pipeline

import (
	"context"
	"sort"
	"time"

	"github.com/stream-arrow/twgd/record"
)

// Status is what a stream does now.
type Status struct {
	State      string // starting, running, paused, blocked, stopped
	Reason     string // why it is not running
	Held       string // why the source as a whole is not read
	Partitions []PartitionStatus
	InFlight   int64 // bytes of the budget that are taken
	Budget     int64 // bytes, as it is now
	Stalled    time.Duration
	Dedup      *DedupStatus // nil without screening
}

// PartitionStatus is how far one assigned partition is. Where a number is not known it is -1.
type PartitionStatus struct {
	Partition record.Partition
	Position  int64 // offset behind the last record taken
	Committed int64 // what the source was told last
	RawNext   int64 // where raw ends
	End       int64 // where the source's log ends
	Genesis   int64 // where raw begins
	Held      string
}

// LaneStatus is how one sink does.
type LaneStatus struct {
	Name, State, Reason string
	Backoff             time.Duration
	QueueBytes          int64
	Counts              LaneCounts
}

// Status asks the stream's controller. ok is false when it has ended or does not answer within ctx.
func (s *Stream) Status(ctx context.Context) (st Status, ok bool) {
	done := make(chan Status, 1)
	select {
	case s.ask <- func(c *controller) { done <- c.status(time.Now()) }:
		return <-done, true
	case <-s.end: // nobody else touches the controller any more
		st := s.ctl.status(time.Now())
		st.State = "stopped"
		return st, true
	case <-ctx.Done():
		return Status{State: "blocked", Reason: "the pipeline does not answer"}, false
	}
}

func (c *controller) status(now time.Time) Status {
	st := Status{State: "running", InFlight: c.budget.InFlight(), Budget: c.budget.Cap, Dedup: c.dedup()}
	for _, p := range c.parts {
		st.Partitions = append(st.Partitions, c.partition(p))
		if p.failed != "" {
			st.State, st.Reason = "blocked", p.id.String()+": "+p.failed
		}
	}
	for id, reason := range c.held {
		if c.parts[id] == nil { // the source as a whole, or a partition that is held before it is assigned
			st.State, st.Reason = "blocked", reason
		}
		if id.Topic == "" {
			st.Held = reason
		}
	}
	sort.Slice(st.Partitions, func(i, j int) bool { return st.Partitions[i].Partition.Less(st.Partitions[j].Partition) })
	if reason := c.gateFailed.any(); reason != "" {
		st.State, st.Reason = "blocked", reason
	}
	switch {
	case st.State == "blocked":
	case !c.leaving.IsZero():
		st.State = "stopped"
	case !c.parked.empty():
		st.State, st.Reason = "paused", "the byte budget is full"
		if c.stage.holding() > c.budget.Cap/2 {
			st.Reason += ", mostly of what waits to be screened for duplicates"
		}
	case len(c.parts) == 0 && c.opt.Source != nil:
		st.State = "starting"
	}
	if _, age, open := c.points.Stalled(now); open {
		st.Stalled = age
	}
	return st
}

func (c *controller) partition(p *part) PartitionStatus {
	st := PartitionStatus{Partition: p.id, Position: p.tracker.End(), RawNext: p.tracker.Position(), Committed: -1, End: -1,
		Genesis: p.head.Genesis, Held: c.held[p.id]}
	if last, ok := c.points.LastCommitted(p.id); ok {
		st.Committed = last
	}
	if end, ok := c.ends[p.id]; ok {
		st.End = max(end, st.RawNext) // ends are asked now and then: lag is never negative
	}
	return st
}

// Extent is what raw has of an assigned partition.
type Extent struct {
	Genesis int64 // where the chain begins
	Begin   int64 // where this assignment began: what lies below was stored, and offered to lanes, by an earlier owner
	Next    int64 // where the chain ends
}

// Assigned lists the partitions that the stream reads now, with what raw has of each; nil when the controller has ended.
func (s *Stream) Assigned(ctx context.Context) map[record.Partition]Extent {
	done := make(chan map[record.Partition]Extent, 1)
	ask := func(c *controller) {
		out := make(map[record.Partition]Extent, len(c.parts))
		for id, p := range c.parts {
			out[id] = Extent{p.head.Genesis, p.begin, p.tracker.Position()}
		}
		done <- out
	}
	select {
	case s.ask <- ask:
		return <-done
	case <-s.end:
	case <-ctx.Done():
	}
	return nil
}

// Status of the lane.
func (l *Lane) Status() LaneStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.mu.health
	return LaneStatus{Name: l.opt.Name, State: h.state, Reason: h.reason, Backoff: h.backoff, QueueBytes: l.mu.bytes, Counts: l.mu.counts}
}
