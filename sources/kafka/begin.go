package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// begin fixes where the stream begins, and takes part in the reading.
func (s *Source) begin() {
	held := ""
	for {
		err := s.fix(s.ctx)
		if s.ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		reason := ""
		if err != nil {
			reason = err.Error()
		}
		if reason != held {
			held = reason
			s.tell(sources.Held{Partition: s.whole(), Reason: reason})
		}
		s.mu.Unlock()
		if err == nil {
			break
		}
		if sleep(s.ctx, recheckEvery, nil) != nil {
			return
		}
	}
	s.takePart()
}

// takePart joins the group, or takes what the configuration pins.
func (s *Source) takePart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.o.Group != "" {
		s.member = s.join()
		return
	}
	for topic, numbers := range s.o.Partitions {
		for _, n := range numbers {
			s.adopt(key{topic, n})
		}
	}
}

// fix finds what start means for the partitions that exist, and has that made durable, or learns what was.
func (s *Source) fix(ctx context.Context) error {
	cluster, topics, err := s.firstLook(ctx)
	if err != nil {
		return err
	}
	fixed, err := s.resolve(ctx, cluster, topics)
	if err != nil {
		return fmt.Errorf("finding where the stream begins: %w", err)
	}
	if s.o.FirstStart != nil {
		if fixed, _, err = s.o.FirstStart(ctx, cluster, fixed); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = fixed
	return nil
}

// firstLook waits until watch has reached the cluster.
func (s *Source) firstLook(ctx context.Context) (string, map[string]topic, error) {
	for {
		s.mu.Lock()
		cluster, topics, changed := s.cluster, s.topics, s.changed
		s.mu.Unlock()
		if topics != nil {
			return cluster, topics, nil
		}
		if err := sleep(ctx, 0, changed); err != nil {
			return "", nil, err
		}
	}
}

// resolve is what start means now, for each partition that exists and that the stream reads.
func (s *Source) resolve(ctx context.Context, cluster string, topics map[string]topic) (map[record.Partition]int64, error) {
	from, err := parseStart(s.o.Start)
	if err != nil {
		return nil, err
	}
	present := map[string]topic{}
	for name, t := range topics {
		if t.err == nil {
			present[name] = t
		}
	}
	var known map[key]commit
	if from.committed && s.o.Group != "" {
		if known, err = s.wire.committed(ctx, s.o.Group, present); err != nil {
			return nil, fmt.Errorf("asking for the offsets of group %s: %w", s.o.Group, err)
		}
	}
	return s.resolveAll(ctx, cluster, present, from, known)
}

// found is one partition's beginning.
type found struct {
	p   record.Partition
	at  int64
	err error
}

func (s *Source) resolveAll(ctx context.Context, cluster string, topics map[string]topic, from start, known map[key]commit) (map[record.Partition]int64, error) {
	var all []*found
	var asking sync.WaitGroup
	free := make(chan struct{}, 16) // questions under way
	for name, t := range topics {
		for n, l := range t.partitions {
			if !s.o.pinned(name, n) {
				continue
			}
			f := &found{p: record.Partition{Cluster: cluster, Topic: name, TopicID: t.id, Number: n}}
			all = append(all, f)
			if c, ok := known[key{name, n}]; ok {
				f.at = c.offset
				continue
			}
			asking.Go(func() {
				free <- struct{}{}
				f.at, f.err = s.resolveOne(ctx, spot{name, n, l}, from)
				<-free
			})
		}
	}
	asking.Wait()
	fixed, err := make(map[record.Partition]int64, len(all)), error(nil)
	for _, f := range all {
		fixed[f.p], err = f.at, errors.Join(err, f.err)
	}
	return fixed, err
}

// resolveOne asks a few times: a topic that was just created has no leader for a moment.
func (s *Source) resolveOne(ctx context.Context, at spot, from start) (offset int64, err error) {
	for try := range 5 {
		if offset, err = s.wire.from(ctx, at, from.millis); err == nil {
			return offset, nil
		}
		s.look()
		if sleep(ctx, refreshAfter<<try, nil) != nil {
			break
		}
		s.mu.Lock()
		if l, ok := s.topics[at.topic].partitions[at.number]; ok {
			at.leader = l
		}
		s.mu.Unlock()
	}
	return 0, fmt.Errorf("%s/%d: %w", at.topic, at.number, err)
}

// waitDone waits for a receiver that lets go of partitions, no longer than it may.
func (s *Source) waitDone(done <-chan struct{}) {
	t := time.NewTimer(min(s.o.SessionTimeout/2, revokeBound))
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-s.ctx.Done():
	}
}
