package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire asks brokers. Nothing it answers comes from a cache: every method is a request of its own, sent to the broker that knows.
type wire struct {
	*kgo.Client
	isolation int8 // 1 hides what is not committed
}

// patience bounds one question. A broker that does not answer in time is as good as away.
const patience = 10 * time.Second

// topology is what brokers say of the topics that were asked about.
type topology struct {
	cluster string
	topics  map[string]topic
}

// topic as it is now. Where err is set the rest is unknown.
type topic struct {
	id         [16]byte
	partitions map[int32]leader
	err        error
}

// leader of a partition, and the epoch it leads under.
type leader struct {
	broker int32
	epoch  int32
}

// topology asks about the topics by name; about all topics that are not internal where none are named.
func (w *wire) topology(ctx context.Context, names []string) (topology, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, w.Client)
	if err != nil {
		return topology{}, err
	}
	return readTopology(resp, len(names) == 0), kerr.ErrorForCode(resp.ErrorCode)
}

func readTopology(resp *kmsg.MetadataResponse, all bool) topology {
	out := topology{topics: map[string]topic{}}
	if resp.ClusterID != nil {
		out.cluster = *resp.ClusterID
	}
	for _, rt := range resp.Topics {
		if rt.Topic == nil || all && rt.IsInternal {
			continue
		}
		t := topic{id: rt.TopicID, err: kerr.ErrorForCode(rt.ErrorCode), partitions: map[int32]leader{}}
		for _, rp := range rt.Partitions {
			t.partitions[rp.Partition] = leader{rp.Leader, rp.LeaderEpoch}
		}
		out.topics[*rt.Topic] = t
	}
	return out
}

// spot is one partition to ask its leader about.
type spot struct {
	topic  string
	number int32
	leader
}

var errNoLeader = fmt.Errorf("the partition has no leader now: %w", kerr.LeaderNotAvailable)

// offset asks the leader for the offset of a time in milliseconds or of one of the special ones, and its leader epoch. A time
// behind the last record has the offset -1.
func (w *wire) offset(ctx context.Context, s spot, millis int64, isolation int8) (int64, error) {
	if s.broker < 0 {
		return 0, errNoLeader
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = s.number, millis, s.epoch
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = s.topic, []kmsg.ListOffsetsRequestTopicPartition{p}
	req.Topics = []kmsg.ListOffsetsRequestTopic{t}
	got, err := w.Broker(int(s.broker)).Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := got.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the broker's list of offsets does not hold what was asked for")
	}
	rp := resp.Topics[0].Partitions[0]
	return rp.Offset, kerr.ErrorForCode(rp.ErrorCode)
}

// from is the offset that a start means for a partition.
func (w *wire) from(ctx context.Context, s spot, millis int64) (int64, error) {
	at, err := w.offset(ctx, s, millis, w.isolation)
	if err == nil && at < 0 && millis >= 0 { // a time that lies behind all records
		at, err = w.offset(ctx, s, askLatest, w.isolation)
	}
	return at, err
}

// extent asks what there is of the log, and where the epoch of the place ends in it.
func (w *wire) extent(ctx context.Context, s spot, at place) (log extent, err error) {
	if log.start, err = w.offset(ctx, s, askEarliest, 0); err != nil {
		return log, fmt.Errorf("asking for the log's start: %w", err)
	}
	if log.end, err = w.offset(ctx, s, askLatest, 0); err != nil {
		return log, fmt.Errorf("asking for the log's end: %w", err)
	}
	if at.epoch < 0 || s.epoch < 0 {
		return log, nil
	}
	if log.epoch, log.epochEnd, err = w.epochEnd(ctx, s, at.epoch); err != nil {
		return log, fmt.Errorf("asking where leader epoch %d ends: %w", at.epoch, err)
	}
	log.asked = true
	return log, nil
}

func (w *wire) epochEnd(ctx context.Context, s spot, epoch int32) (int32, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = s.number, s.epoch, epoch
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic, t.Partitions = s.topic, []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}
	req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{t}
	got, err := w.Broker(int(s.broker)).Request(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	resp := got.(*kmsg.OffsetForLeaderEpochResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, 0, errors.New("the broker's answer does not hold what was asked for")
	}
	rp := resp.Topics[0].Partitions[0]
	return rp.LeaderEpoch, rp.EndOffset, kerr.ErrorForCode(rp.ErrorCode)
}

// commit is what a group's coordinator keeps of one partition.
type commit struct {
	offset   int64
	metadata string
}

// committed asks what the group has committed for all partitions of the topics. Partitions without a commit are absent.
func (w *wire) committed(ctx context.Context, group string, topics map[string]topic) (map[key]commit, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for name, t := range topics {
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		rt.Topic, rt.TopicID = name, t.id
		for n := range t.partitions {
			rt.Partitions = append(rt.Partitions, n)
		}
		g.Topics = append(g.Topics, rt)
	}
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, w.Client)
	if err != nil {
		return nil, err
	}
	return readCommits(resp, topics)
}

func readCommits(resp *kmsg.OffsetFetchResponse, topics map[string]topic) (map[key]commit, error) {
	names := map[[16]byte]string{}
	for name, t := range topics {
		names[t.id] = name
	}
	out := map[key]commit{}
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, err
		}
		for _, t := range g.Topics {
			name := t.Topic
			if name == "" {
				name = names[t.TopicID]
			}
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, err
				}
				if c := (commit{offset: p.Offset}); p.Offset >= 0 {
					if p.Metadata != nil {
						c.metadata = *p.Metadata
					}
					out[key{name, p.Partition}] = c
				}
			}
		}
	}
	return out, nil
}

// fetch is one request for records, to one broker.
func (w *wire) fetch(ctx context.Context, broker int32, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	got, err := w.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := got.(*kmsg.FetchResponse)
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}

// denied reports whether the answer means that a person must grant something first.
func denied(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) || errors.Is(err, kerr.GroupAuthorizationFailed)
}
