package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/pipeline"
)

// stuckAfter is how long a stream's controller may leave every question unanswered. It answers between any two events and never
// waits for a store, a broker or a sink: silence of that length is a fault of the program, and only a new process ends it.
const stuckAfter = 2 * time.Minute

// patience is how long a view waits for one stream. A second question to one that does not answer waits no longer.
const patience = 300 * time.Millisecond

// idle is since when a stream's controller has not answered.
type idle struct {
	mu    sync.Mutex
	since time.Time
}

func (i *idle) answered(ok bool, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case ok:
		i.since = time.Time{}
	case i.since.IsZero():
		i.since = now
	}
}

func (i *idle) silent(now time.Time) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.since.IsZero() {
		return 0
	}
	return now.Sub(i.since)
}

// ask asks the stream's controller how it is.
func (s *stream) ask(r *rooms) pipeline.Status {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, ok := r.pipe.Status(ctx)
	s.idle.answered(ok, time.Now())
	return st
}

// live says why the process should be replaced: a controller that has been silent for long. A source, raw or a sink that is away
// is no reason: another process would meet the same.
func (n *node) live() error {
	var err error
	for _, s := range n.streams {
		if r, _, _, _ := s.look(); r != nil {
			s.ask(r)
		}
		if d := s.idle.silent(time.Now()); d > stuckAfter {
			err = errors.Join(err, fmt.Errorf("stream %s is stuck: its controller has not answered for %s", s.cfg.Name, d.Round(time.Second)))
		}
	}
	return err
}

// ready lists why the node does not take records yet. Streams are asked side by side.
func (n *node) ready() (reasons []string) {
	why := make([]string, len(n.streams))
	var asking sync.WaitGroup
	for i, s := range n.streams {
		asking.Go(func() { why[i] = s.notReady() })
	}
	asking.Wait()
	if n.part != nil {
		reasons = n.part.node.Ready()
	}
	for i, r := range why {
		if r != "" {
			reasons = append(reasons, n.streams[i].cfg.Name+": "+r)
		}
	}
	return reasons
}

// notReady says why the stream does not take records yet, empty when it does.
func (s *stream) notReady() string {
	r, waiting, held, ended := s.look()
	switch {
	case ended != nil:
		return "stopped: " + ended.Error()
	case held != "":
		return held
	case r == nil && waiting == "":
		return "starting"
	case r == nil:
		return waiting
	}
	st := s.ask(r)
	reason, n := holds(st)
	switch {
	case n > 0 && n == len(st.Partitions):
		return "held: " + reason
	case st.State == "running" || st.State == "paused":
		return ""
	case st.State == "starting" && s.began(time.Now()) > unassigned:
		return "" // idle: the group has more members than partitions
	}
	if st.State == "starting" {
		return "no partition is assigned yet"
	}
	return st.State + ": " + st.Reason
}

// unassigned is how long after its beginning is settled a stream without partitions counts as not ready yet. Later it is idle.
const unassigned = 10 * time.Second

// began is how long ago the source reached its brokers and the stream's beginning was settled; 0 where it has not yet.
func (s *stream) began(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled.IsZero() {
		return 0
	}
	return now.Sub(s.settled)
}

// holds counts the partitions that are held, and says why one of them is. Others of the stream are read all the same.
func holds(st pipeline.Status) (reason string, n int) {
	for _, p := range st.Partitions {
		if p.Held != "" {
			reason, n = fmt.Sprintf("%v: %s", p.Partition, p.Held), n+1
		}
	}
	return reason, n
}

// look is what the stream is made of, nil while it is not open, and what keeps it from moving.
func (s *stream) look() (r *rooms, waiting, held string, ended error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rooms, s.waiting, s.held, s.ended
}
