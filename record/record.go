// Package record names what a transport delivered: partitions, records and the batches they travel in.
//
// It is the floor of the data house and imports no other room. Everything above speaks of records in these terms, whatever
// client library read them.
package record

import (
	"encoding/hex"
	"fmt"
	"sync/atomic"
)

// Partition identifies one ordered log. Two values are the same partition only if every field is equal: a topic that was
// deleted and created again has another TopicID, and a chain that an operator began anew has another Generation. It is
// comparable and serves as a map key.
type Partition struct {
	Cluster    string   // what the broker reports as its cluster id, or the name that the configuration gives it
	Topic      string   // the topic's name
	TopicID    [16]byte // Kafka's topic UUID; all zeros where a broker has none
	Number     int32    // the partition's number within the topic
	Generation int32    // counts the chains of one partition: 0, then one more each time an operator begins anew
}

// String prints the partition as logs and errors show it: topic/number, and the generation where it is not the first.
func (p Partition) String() string {
	if p.Generation > 0 {
		return fmt.Sprintf("%s/%d.%d", p.Topic, p.Number, p.Generation)
	}
	return fmt.Sprintf("%s/%d", p.Topic, p.Number)
}

// ShortTopicID is the first eight hex digits of the topic id, which is how names of files and objects tell two topics of one
// name apart.
func (p Partition) ShortTopicID() string { return hex.EncodeToString(p.TopicID[:4]) }

// Less orders partitions by topic, topic id, number and generation, for listings that must be stable.
func (p Partition) Less(q Partition) bool {
	if p.Topic != q.Topic {
		return p.Topic < q.Topic
	}
	if p.TopicID != q.TopicID {
		return string(p.TopicID[:]) < string(q.TopicID[:])
	}
	if p.Number != q.Number {
		return p.Number < q.Number
	}
	return p.Generation < q.Generation
}

// Timestamp types, as Kafka numbers them.
const (
	TimestampNone      int8 = -1 // the record carries no timestamp
	TimestampCreate    int8 = 0  // set by the producer
	TimestampLogAppend int8 = 1  // set by the broker
)

// Record is one data record. A nil Key, Value or header value is a null of the transport; an empty one is empty. The two
// stay different everywhere. Nobody changes a record after the source has delivered it.
type Record struct {
	Key, Value    []byte
	Headers       []Header // in the order of the transport, duplicates and empty names included
	Timestamp     int64    // milliseconds since 1970 UTC as delivered, however absurd; -1 with TimestampNone
	Offset        int64
	ProducerID    int64 // -1 where there is none
	LeaderEpoch   int32 // -1 where it is not known
	ProducerEpoch int16
	TimestampType int8
	Transactional bool
}

// Header is one header of a record. Key holds the bytes that were sent, which need not be UTF-8.
type Header struct {
	Key   string
	Value []byte
}

// overhead is what a record costs in memory besides its bytes: the struct and its share of slices.
const overhead = 144

// Size is the record's weight in memory in bytes, which budgets and queues count.
func (r *Record) Size() int64 {
	n := overhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// Payload is the size of a record as its producer sees it, in bytes: what a sink's max_record bounds.
func (r *Record) Payload() int64 {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// Batch is a run of one partition's log: everything that the transport has in [First, Next). Offsets without a record in it
// hold nothing that a consumer may see: compacted records, markers, aborted transactions. With Gap set it is the opposite,
// a range whose records are lost, and Records is empty.
//
// A batch is shared by the gate and all lanes, which only read it. Each holder calls Release once when it is done; the last
// one gives the memory back to the source that made it, after which no holder may touch a record's bytes.
type Batch struct {
	Partition   Partition
	Epoch       uint64 // the assignment that it was read under; a later assignment makes it void
	First, Next int64
	LeaderEpoch int32 // the leader epoch of the last record or marker delivered, -1 where it is not known
	Records     []Record
	Bytes       int64  // sum of Record.Size
	Gap         string // why [First, Next) is lost; empty for data

	refs atomic.Int32
	free func()
}

// Weigh sets Bytes from the records and makes free run when the last holder has released the batch. The caller is its first
// holder. free may be nil.
func (b *Batch) Weigh(free func()) *Batch {
	b.Bytes = 0
	for i := range b.Records {
		b.Bytes += b.Records[i].Size()
	}
	b.free = free
	b.refs.Store(1)
	return b
}

// Retain adds a holder.
func (b *Batch) Retain() *Batch {
	if b.refs.Add(1) <= 1 {
		panic("record: a batch is retained after its last holder released it: " + b.Partition.String())
	}
	return b
}

// Release takes a holder away. Releasing more often than retaining is a fault of the program and panics.
func (b *Batch) Release() {
	switch n := b.refs.Add(-1); {
	case n < 0:
		panic("record: a batch is released twice: " + b.Partition.String())
	case n == 0 && b.free != nil:
		b.free()
	}
}

// From is the part of the batch at and above offset, as records of the same memory: it holds the batch until it is released.
// It is the batch itself where nothing is cut, and the caller's hold passes to what is returned.
func (b *Batch) From(offset int64) *Batch {
	if offset <= b.First {
		return b
	}
	return b.Slice(offset, b.Next)
}

// Slice is the part of the batch in [first, next) as records of the same memory; the caller's hold on b passes to it.
func (b *Batch) Slice(first, next int64) *Batch {
	if first <= b.First && next >= b.Next {
		return b
	}
	first, next = max(first, b.First), min(next, b.Next)
	lo, hi := 0, len(b.Records)
	for lo < hi && b.Records[lo].Offset < first {
		lo++
	}
	for hi > lo && b.Records[hi-1].Offset >= next {
		hi--
	}
	part := &Batch{Partition: b.Partition, Epoch: b.Epoch, First: first, Next: next,
		LeaderEpoch: b.LeaderEpoch, Records: b.Records[lo:hi], Gap: b.Gap}
	return part.Weigh(b.Release)
}
