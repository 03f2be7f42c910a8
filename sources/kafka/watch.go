package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// watch looks at the cluster every few seconds, and at once when somebody has reason to think that it has changed.
func (s *Source) watch() {
	for {
		began := time.Now()
		seen, err := s.wire.topology(s.ctx, s.o.names())
		if s.ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		if err != nil {
			s.unreachable(s.dialed.behind(err, began))
		} else {
			s.see(seen)
		}
		wait := refreshEvery
		if s.brokers.failures > 0 {
			wait = min(time.Second<<min(s.brokers.failures-1, 3), refreshEvery)
		}
		s.mu.Unlock()
		if !s.rest(wait) {
			return
		}
	}
}

// rest waits until it is time to look again; false ends.
func (s *Source) rest(wait time.Duration) bool {
	if sleep(s.ctx, refreshAfter, nil) != nil {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-s.ctx.Done():
		return false
	case <-s.nudge:
	case <-t.C:
	}
	return true
}

// look makes watch look soon.
func (s *Source) look() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

func (s *Source) unreachable(err error) {
	if s.brokers.failed() {
		s.tell(sources.Notice{Kind: "source_down", Text: fmt.Sprintf("the brokers cannot be reached: %v", err), Partition: s.whole()})
	}
}

// whole stands for all partitions of the stream.
func (s *Source) whole() record.Partition { return record.Partition{Cluster: s.cluster} }

// see takes in what the cluster looks like now.
func (s *Source) see(seen topology) {
	defer s.notify()
	if s.brokers.reached() {
		s.tell(sources.Notice{Kind: "source_up", Text: "the brokers answer again", Partition: s.whole()})
	}
	if !s.sameCluster(seen.cluster) {
		return
	}
	wanted := s.o.wanted()
	maps.DeleteFunc(seen.topics, func(name string, _ topic) bool { return !wanted(name) })
	s.topics = seen.topics
	s.seeMissing()
	for _, p := range slices.Clone(s.order) {
		s.seePart(p)
	}
}

// sameCluster notices that the addresses belong to another cluster than before. Its partitions are others, whatever their names.
func (s *Source) sameCluster(id string) bool {
	if s.o.ClusterID != "" {
		id = s.o.ClusterID
	}
	if s.topics == nil {
		s.cluster = id
		return true
	}
	same := id == s.cluster
	if same == s.foreign {
		held := sources.Held{Partition: s.whole()}
		if !same {
			held.Reason = fmt.Sprintf("the brokers belong to cluster %q now, the stream reads %q", id, s.cluster)
		}
		s.foreign = !same
		s.tell(held)
	}
	return same
}

// seeMissing tells once when a topic that is named is not there, or is no longer there.
func (s *Source) seeMissing() {
	for _, name := range s.o.names() {
		t, ok := s.topics[name]
		if ok && !errors.Is(t.err, kerr.UnknownTopicOrPartition) {
			delete(s.missing, name)
			continue
		}
		if s.missing[name]++; s.missing[name] == 2 {
			s.tell(sources.Notice{Kind: "topic_missing", Text: fmt.Sprintf("the topic %s does not exist", name),
				Partition: record.Partition{Cluster: s.cluster, Topic: name}})
		}
	}
}

// seePart compares a part with what the cluster says of its topic.
func (s *Source) seePart(p *part) {
	t, ok := s.topics[p.topic]
	switch {
	case p.state == starting && !p.identified(), p.leaving:
	case ok && t.err == nil && t.id != p.id.TopicID:
		s.recreated(p, t)
	case !ok || t.err != nil: // gone, or not to be seen: the check says so when it lasts
		if p.state == reading && (!ok || errors.Is(t.err, kerr.UnknownTopicOrPartition)) {
			s.doubt(p)
		}
	case p.state == reading && s.leaderOf(p) != p.led:
		s.doubt(p)
	}
}

func (p *part) identified() bool { return p.id.Topic != "" }

// recreated ends a part whose topic was deleted and created again: its log is gone, another one has its name. The new one
// begins at its start, as every topic that appears later.
func (s *Source) recreated(p *part, t topic) {
	if p.assigned {
		s.tell(sources.Revoked{Partitions: []record.Partition{p.id}, Lost: true, Done: func() {}})
	}
	now := p.id
	now.TopicID = t.id
	s.tell(sources.Notice{Kind: "topic_recreated", Partition: now,
		Text: fmt.Sprintf("the topic %s was deleted and created again: its id was %x and is %x", p.topic, p.id.TopicID, t.id)})
	s.adopt(p.key)
}
