package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// applied bounds the wait for a broker to apply what its controller has acknowledged.
const applied = 30 * time.Second

// CreateTopic creates a topic of one replica and returns its id once every partition has a leader: a topic is acknowledged before the
// broker has applied it.
func (k *KafkaServer) CreateTopic(ctx context.Context, topic string, partitions int32, configs map[string]string) (id [16]byte, err error) {
	values := make(map[string]*string, len(configs))
	for name, value := range configs {
		values[name] = &value
	}
	err = k.admin(func(client *kgo.Client) error {
		if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, values, topic); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
		id, err = awaitPartitions(ctx, client, topic, partitions)
		return err
	})
	return id, err
}

// AddPartitions makes a topic grow to total partitions and returns once every one has a leader.
func (k *KafkaServer) AddPartitions(ctx context.Context, topic string, total int32) error {
	return k.admin(func(client *kgo.Client) error {
		answers, err := kadm.NewClient(client).UpdatePartitions(ctx, int(total), topic)
		if err == nil {
			err = answers.Error()
		}
		if err != nil {
			return fmt.Errorf("grow topic %s to %d partitions: %w", topic, total, err)
		}
		_, err = awaitPartitions(ctx, client, topic, total)
		return err
	})
}

// DeleteTopic deletes a topic and returns once the broker no longer knows it.
func (k *KafkaServer) DeleteTopic(ctx context.Context, topic string) error {
	return k.admin(func(client *kgo.Client) error {
		answers, err := kadm.NewClient(client).DeleteTopics(ctx, topic)
		if err == nil {
			err = answers.Error()
		}
		if err != nil {
			return fmt.Errorf("delete topic %s: %w", topic, err)
		}
		return await(ctx, "the end of topic "+topic, func(ctx context.Context) error {
			_, err := describe(ctx, client, topic)
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				return nil
			}
			return errors.Join(errors.New("still there"), err)
		})
	})
}

// DeleteRecords deletes the records of a partition below offset before, as retention would, and returns the new log start.
func (k *KafkaServer) DeleteRecords(ctx context.Context, topic string, partition int32, before int64) (start int64, err error) {
	err = k.admin(func(client *kgo.Client) error {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: before, LeaderEpoch: -1})
		answers, err := kadm.NewClient(client).DeleteRecords(ctx, offsets)
		if err == nil {
			err = answers.Error()
		}
		if err != nil {
			return fmt.Errorf("delete records of %s/%d below %d: %w", topic, partition, before, err)
		}
		answer, _ := answers.Lookup(topic, partition)
		start = answer.LowWatermark
		return nil
	})
	return start, err
}

// admin lends f a client that ends with it.
func (k *KafkaServer) admin(f func(client *kgo.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		return fmt.Errorf("make an admin client: %w", err)
	}
	defer client.Close()
	return f(client)
}

func awaitPartitions(ctx context.Context, client *kgo.Client, topic string, partitions int32) (id [16]byte, err error) {
	err = await(ctx, fmt.Sprintf("%d partitions of topic %s", partitions, topic), func(ctx context.Context) error {
		t, err := describe(ctx, client, topic)
		if err != nil {
			return err
		}
		id = t.TopicID
		return led(t, partitions)
	})
	return id, err
}

func led(t kmsg.MetadataResponseTopic, partitions int32) error {
	if len(t.Partitions) != int(partitions) {
		return fmt.Errorf("%d of %d partitions", len(t.Partitions), partitions)
	}
	for _, p := range t.Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil || p.Leader < 0 {
			return errors.Join(fmt.Errorf("partition %d has no leader", p.Partition), err)
		}
	}
	return nil
}

// describe asks the broker itself: what kadm lists comes from the client's cache, where a topic that was deleted and created again keeps
// its old id for seconds.
func describe(ctx context.Context, client *kgo.Client, topic string) (kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	if len(resp.Topics) != 1 {
		return kmsg.MetadataResponseTopic{}, fmt.Errorf("asked for one topic, got %d", len(resp.Topics))
	}
	return resp.Topics[0], kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

func await(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, applied)
	defer cancel()
	if err := poll(ctx, 20*time.Millisecond, try); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
