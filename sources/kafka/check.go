package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Check tries whether the source could read: brokers, credentials, topics, and the right to use them. Its error is the one that
// matters, with every topic that is missing or denied.
func Check(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	w, err := newWire(&o)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(ctx, patience+coordinatorPatience)
	defer cancel()
	reach, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := w.Ping(reach); err != nil {
		return fmt.Errorf("kafka: the brokers cannot be reached: %w", err)
	}
	if err := errors.Join(checkTopics(ctx, w, &o), checkGroup(ctx, w, &o)); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}

func checkTopics(ctx context.Context, w *wire, o *Options) error {
	seen, err := w.topology(ctx, o.names())
	if err != nil {
		return fmt.Errorf("asking for the topics: %w", err)
	}
	if o.TopicsRegex != "" {
		return nil // a topic that matches may come later
	}
	for _, name := range slices.Sorted(slices.Values(o.names())) {
		t, ok := seen.topics[name]
		switch {
		case !ok || errors.Is(t.err, kerr.UnknownTopicOrPartition):
			err = errors.Join(err, fmt.Errorf("the topic %s does not exist", name))
		case t.err != nil:
			err = errors.Join(err, fmt.Errorf("the topic %s: %w", name, t.err))
		default:
			err = errors.Join(err, checkPartitions(ctx, w, o, name, t))
		}
	}
	return err
}

// checkPartitions tries to read where reading would begin: only a fetch needs the right to read.
func checkPartitions(ctx context.Context, w *wire, o *Options, name string, t topic) error {
	for _, n := range o.Partitions[name] {
		if _, ok := t.partitions[n]; !ok {
			return fmt.Errorf("the topic %s has no partition %d", name, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(t.partitions)) {
		if l := t.partitions[n]; l.broker >= 0 && o.pinned(name, n) {
			return checkRead(ctx, w, spot{name, n, l}, t.id)
		}
	}
	return nil
}

func checkRead(ctx context.Context, w *wire, at spot, id [16]byte) error {
	end, err := w.offset(ctx, at, askLatest, 0)
	if err != nil {
		return fmt.Errorf("reading %s/%d: %w", at.topic, at.number, err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes = 1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.CurrentLeaderEpoch, p.PartitionMaxBytes = at.number, end, at.epoch, 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = at.topic, id, []kmsg.FetchRequestTopicPartition{p}
	req.Topics = []kmsg.FetchRequestTopic{t}
	resp, err := w.fetch(ctx, at.broker, req)
	if err == nil && len(resp.Topics) == 1 && len(resp.Topics[0].Partitions) == 1 {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("reading %s/%d: %w", at.topic, at.number, err)
	}
	return nil
}

// readBit is READ among the operations that a broker says we may do.
const readBit = 1 << 3

// coordinatorPatience is how long a cluster may take to name the coordinator of a group. A new one makes the internal topic that
// groups are kept in when somebody asks for the first time.
const coordinatorPatience = 10 * time.Second

func checkGroup(ctx context.Context, w *wire, o *Options) error {
	if o.Group == "" {
		return nil
	}
	for begun := time.Now(); ; {
		err := askGroup(ctx, w, o)
		switch {
		case !errors.Is(err, kerr.CoordinatorNotAvailable):
			return err
		case time.Since(begun) >= coordinatorPatience:
			return fmt.Errorf("%w (the cluster has no usable topic __consumer_offsets; with fewer than three brokers it needs offsets.topic.replication.factor=1)", err)
		}
		if sleep(ctx, refreshAfter, nil) != nil {
			return err
		}
	}
}

func askGroup(ctx context.Context, w *wire, o *Options) error {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups, req.IncludeAuthorizedOperations = []string{o.Group}, true
	resp, err := req.RequestWith(ctx, w.Client)
	if err != nil {
		return fmt.Errorf("asking for group %s: %w", o.Group, err)
	}
	for _, g := range resp.Groups {
		err := kerr.ErrorForCode(g.ErrorCode)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return fmt.Errorf("the group %s: %w", o.Group, err)
		}
		if err == nil && g.AuthorizedOperations > 0 && g.AuthorizedOperations&readBit == 0 {
			return fmt.Errorf("the group %s: %w", o.Group, kerr.GroupAuthorizationFailed)
		}
	}
	return nil
}
