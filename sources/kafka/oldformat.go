package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/record"
)

// fillOld decodes messages of the formats 0 and 1, which brokers before 4.0 may still hold. They are rare enough to leave them
// to the client library; they know no leader epoch, producer, header or transaction.
func (d *decoder) fillOld(b *record.Batch, s *slab, c *chunk) error {
	size := oldPrefix(c.raw)
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition, rp.RecordBatches = c.part.id.Number, c.raw[:size]
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: c.part.id.Topic, Partition: rp.Partition, Offset: c.at},
		&rp, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		return &fault{c.at, fp.Err}
	}
	for _, r := range fp.Records {
		s.records = append(s.records, fromClient(r))
		c.at = r.Offset + 1
	}
	c.raw = c.raw[size:]
	b.Next = c.at
	return nil
}

// oldPrefix is the number of bytes that whole messages of the old formats take at the beginning of in.
func oldPrefix(in []byte) int {
	at := 0
	for {
		if _, err := parseBatch(in[at:]); err != errOldFormat {
			return at
		}
		size, _, _ := scanOne(in[at:])
		if size == 0 {
			return at
		}
		at += size
	}
}

func fromClient(r *kgo.Record) record.Record {
	out := record.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli(), TimestampType: r.Attrs.TimestampType(),
		Offset: r.Offset, LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1}
	if out.TimestampType == record.TimestampNone || out.Timestamp == -1 {
		out.Timestamp, out.TimestampType = -1, record.TimestampNone
	}
	return out
}
