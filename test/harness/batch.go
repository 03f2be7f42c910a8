package harness

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SendAsIs produces one record in a batch made by hand, with a timestamp that no client library would send: it goes to the broker as it
// is, -1 and beyond the year 50,000 included.
func (s *Suite) SendAsIs(t testing.TB, topic Topic, r Record) Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	listed, err := kadm.NewClient(s.admin).ListTopics(ctx, topic.Name)
	Must(t, err)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10000
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = r.Partition, batchOf(r)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic.Name, topic.ID, append(rt.Partitions, part)
	req.Topics = append(req.Topics, rt)
	resp, err := s.admin.Broker(int(listed[topic.Name].Partitions[r.Partition].Leader)).Request(ctx, req)
	Must(t, err)
	got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	Must(t, kerr.ErrorForCode(got.ErrorCode))
	r.Offset = got.BaseOffset
	return r
}

// batchOf encodes a batch of message format 2 with one record.
func batchOf(r Record) []byte {
	record := kmsg.Record{Key: r.Key, Value: r.Value}
	if r.Key == nil {
		record.Key = nil
	}
	body := record.AppendTo(nil)[1:] // without the length of nothing
	record.Length = int32(len(body))
	b := kmsg.RecordBatch{Magic: 2, PartitionLeaderEpoch: -1, FirstTimestamp: r.Timestamp, MaxTimestamp: r.Timestamp, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: record.AppendTo(nil)}
	raw := b.AppendTo(nil)
	const lengthAt, crcAt, attributesAt = 8, 17, 21
	binary.BigEndian.PutUint32(raw[lengthAt:], uint32(len(raw)-lengthAt-4))
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// Transaction produces records in one transaction and commits or aborts it. What was committed counts as acknowledged.
func (s *Suite) Transaction(t testing.TB, topic Topic, id string, commit bool, records ...Record) []Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic(topic.Name), kgo.TransactionalID(id))
	Must(t, err)
	defer client.Close()
	Must(t, client.BeginTransaction())
	out := make([]Record, len(records))
	for i, r := range records {
		k, err := client.ProduceSync(ctx, wire(r)).First()
		Must(t, err)
		out[i] = acknowledged(r, k)
	}
	Must(t, client.EndTransaction(ctx, kgo.TransactionEndTry(commit)))
	return out
}

// DeleteGroup removes a group with all its offsets, as their expiry would. It must be empty.
func (s *Suite) DeleteGroup(t testing.TB, topic Topic) {
	t.Helper()
	_, err := kadm.NewClient(s.admin).DeleteGroup(t.Context(), "g-"+topic.Name)
	Must(t, err)
}
