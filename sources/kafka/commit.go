package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// Commit tells the coordinator how far the gate is. With pinned partitions there is nobody to tell.
//
// The request is our own. The library's commit refuses a topic that was created again for as long as it remembers the old one, which
// for a member is until it leaves; and it cannot know which of the two an offset belongs to, while we do. What the library's commit
// does besides, to stay out of the way of a join, is had by asking once more a little later.
func (s *Source) Commit(ctx context.Context, positions []sources.Position) error {
	if s.o.Group == "" {
		return nil
	}
	failed := map[record.Partition]error{}
	for range commitTries {
		positions = s.tryCommit(ctx, positions, failed)
		if len(positions) == 0 || sleep(ctx, commitPause, nil) != nil {
			break
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("committing to group %s: %w", s.o.Group, &sources.CommitError{Failed: failed})
	}
	return nil
}

// How often, and how long after each other, a commit is tried that met a rebalance.
const (
	commitTries = 10
	commitPause = 500 * time.Millisecond
)

// tryCommit sends the positions once and notes in failed what was not taken. It returns those that met a rebalance.
func (s *Source) tryCommit(ctx context.Context, positions []sources.Position, failed map[record.Partition]error) (again []sources.Position) {
	m, mine := s.committable(positions, failed)
	if len(mine) == 0 {
		return nil
	}
	answers, err := m.commit(ctx, s.o.Group, mine)
	for _, pos := range mine {
		e := err
		if e == nil {
			e = answers.to(pos.Partition)
		}
		delete(failed, pos.Partition)
		if e != nil {
			failed[pos.Partition] = e
		}
		if errors.Is(e, kerr.RebalanceInProgress) || errors.Is(e, kerr.IllegalGeneration) {
			again = append(again, pos)
		}
	}
	return again
}

// committable is what of the positions is ours to commit; the rest goes into failed. The coordinator would take it.
func (s *Source) committable(positions []sources.Position, failed map[record.Partition]error) (*member, []sources.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var mine []sources.Position
	for _, pos := range positions {
		if err := s.checkCommit(pos); err != nil {
			failed[pos.Partition] = err
			continue
		}
		mine = append(mine, pos)
	}
	return s.member, mine
}

func (s *Source) checkCommit(pos sources.Position) error {
	p := s.parts[key{pos.Partition.Topic, pos.Partition.Number}]
	switch {
	case s.member == nil:
		return errors.New("the group is not joined")
	case p == nil || !p.assigned || p.id != pos.Partition:
		return errors.New("the partition is not assigned to us")
	case pos.Next < p.head: // of an earlier assignment: the owners in between are further
		return fmt.Errorf("position %d is behind %d, where our assignment began", pos.Next, p.head)
	}
	return nil
}

// commit asks the coordinator once.
func (m *member) commit(ctx context.Context, group string, positions []sources.Position) (answers, error) {
	id, generation := m.GroupMetadata()
	if id == "" || generation < 0 { // this would be a commit from outside the group
		return nil, errors.New("the group is not joined")
	}
	req := commitRequest(positions)
	req.Group, req.MemberID, req.Generation = group, id, generation
	resp, err := req.RequestWith(ctx, m.Client)
	if err != nil {
		return nil, err
	}
	return commitAnswers(resp), nil
}

// commitRequest names every topic by its name and by its id, as older and newer versions want it: where the id counts, a topic of
// the same name does not get our offset. The metadata names the last segment.
func commitRequest(positions []sources.Position) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	at := map[record.Partition]int{} // of topics, which have the number 0 here
	for _, pos := range positions {
		whole := pos.Partition
		whole.Number = 0
		i, ok := at[whole]
		if !ok {
			i = len(req.Topics)
			at[whole] = i
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = whole.Topic, whole.TopicID
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = pos.Partition.Number, pos.Next, pos.LeaderEpoch
		p.Metadata = kmsg.StringPtr(fmt.Sprintf("%s%d", ours, pos.First))
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	return req
}

// idless reports whether the brokers know no topic ids, as of the last look. It is called with mu held.
func (s *Source) idless() bool {
	for _, t := range s.topics {
		if t.err == nil && t.id == [16]byte{} {
			return true
		}
	}
	return false
}

// commitsByName is the newest versions of all requests, but of commits the newest that names topics. A broker may offer newer ones
// and still not tell the ids that they need.
func commitsByName() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 9)
	return v
}

// answers are the coordinator's, by the topic's name or its id, whichever the version has; the other is empty.
type answers map[subject]error

type subject struct {
	key
	id [16]byte
}

func commitAnswers(resp *kmsg.OffsetCommitResponse) answers {
	a := answers{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			a[subject{key{t.Topic, p.Partition}, t.TopicID}] = kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return a
}

func (a answers) to(p record.Partition) error {
	if err, ok := a[subject{key{p.Topic, p.Number}, [16]byte{}}]; ok {
		return err
	}
	if err, ok := a[subject{key{"", p.Number}, p.TopicID}]; ok {
		return err
	}
	return errors.New("the coordinator's answer does not hold it")
}
