package harness

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Topic is a topic that a test has made.
type Topic struct {
	Name       string
	ID         [16]byte
	Partitions int32
	largest    int32 // bytes of a batch
}

// Topic creates a topic of a name that nothing else has, and deletes it when the test ends where the broker is not ours.
func (s *Suite) Topic(t testing.TB, partitions int32, configs map[string]string) Topic {
	t.Helper()
	name := "t-" + strings.ToLower(rand.Text()[:10])
	topic := s.TopicNamed(t, name, partitions, configs)
	if s.Kafka.PID() == 0 {
		t.Cleanup(func() { _ = s.Kafka.DeleteTopic(context.Background(), name) })
	}
	return topic
}

// TopicNamed creates a topic of that name.
func (s *Suite) TopicNamed(t testing.TB, name string, partitions int32, configs map[string]string) Topic {
	t.Helper()
	id, err := s.Kafka.CreateTopic(t.Context(), name, partitions, configs)
	Must(t, err)
	largest, err := strconv.ParseInt(cmp.Or(configs["max.message.bytes"], "1000012"), 10, 32)
	Must(t, err)
	return Topic{name, id, partitions, int32(largest)}
}

// Record is a record as it was produced or as a store gave it back. Null and empty stay different: nil and not nil.
type Record struct {
	Partition     int32
	Offset        int64
	Timestamp     int64 // milliseconds; -1 where there is none
	TimestampType int8
	Key, Value    []byte
	Headers       []Header
}

// Header is a header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Producer produces into one topic and remembers what was acknowledged.
type Producer struct {
	t      testing.TB
	client *kgo.Client
	topic  Topic

	mu    sync.Mutex
	acked []Record

	stop context.CancelFunc
	done sync.WaitGroup
}

// Producer makes one; it is closed when the test ends.
func (s *Suite) Producer(t testing.TB, topic Topic) *Producer {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic(topic.Name), kgo.ProducerBatchMaxBytes(topic.largest), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(100000))
	Must(t, err)
	p := &Producer{t: t, client: client, topic: topic, stop: func() {}}
	t.Cleanup(func() { p.stop(); p.done.Wait(); client.Close() })
	return p
}

// Send produces records, waits for their acknowledgement, and returns them with their offsets. A timestamp of 0 is now.
func (p *Producer) Send(records ...Record) []Record {
	p.t.Helper()
	out := make([]Record, len(records))
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for i, r := range records {
		wg.Add(1)
		p.client.Produce(context.Background(), wire(r), func(k *kgo.Record, err error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			out[i] = acknowledged(r, k)
			p.note(out[i])
		})
	}
	wg.Wait()
	Must(p.t, failed)
	return out
}

func wire(r Record) *kgo.Record {
	at := time.UnixMilli(r.Timestamp)
	if r.Timestamp == 0 {
		at = time.UnixMilli(time.Now().UnixMilli())
	}
	k := &kgo.Record{Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: at}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return k
}

func acknowledged(r Record, k *kgo.Record) Record {
	r.Offset, r.Timestamp = k.Offset, k.Timestamp.UnixMilli()
	return r
}

func (p *Producer) note(r Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked = append(p.acked, r)
}

// Acked is what was acknowledged so far.
func (p *Producer) Acked() []Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Record(nil), p.acked...)
}

// Count is how many records were acknowledged so far.
func (p *Producer) Count() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(len(p.acked))
}

// Begin produces about rate records a second, spread over the partitions, of every shape, until End.
func (p *Producer) Begin(rate int) {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n, due, begin := 0, 0, time.Now(); ; {
			for due = int(time.Since(begin).Seconds() * float64(rate)); n < due; n++ {
				p.begin(Numbered(n, p.topic.Partitions))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

func (p *Producer) begin(r Record) {
	p.client.Produce(context.Background(), wire(r), func(k *kgo.Record, err error) {
		if err != nil {
			p.t.Errorf("producing: %v", err)
			return
		}
		p.note(acknowledged(r, k))
	})
}

// End ends Begin and returns all that was acknowledged.
func (p *Producer) End() []Record {
	p.t.Helper()
	p.stop()
	p.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	Must(p.t, p.client.Flush(ctx))
	return p.Acked()
}

// Numbered is the nth of a row of records that differ in what stores like to lose: nulls, empty values, headers, sizes.
func Numbered(n int, partitions int32) Record {
	r := Record{Partition: int32(n) % partitions, Key: fmt.Appendf(nil, "k%d", n%1000), Value: fmt.Appendf(nil, `{"n":%d,"pad":"%s"}`, n, strings.Repeat("x", n%200))}
	switch n % 13 {
	case 3:
		r.Key = nil
	case 5:
		r.Value = nil
	case 7:
		r.Value = []byte{}
	case 9:
		r.Headers = []Header{{"a", []byte("1")}, {"a", nil}, {"b", []byte{}}}
	}
	return r
}

// Plain makes n records with values of size bytes for one partition.
func Plain(partition int32, n, size int) []Record {
	out := make([]Record, n)
	for i := range out {
		v := fmt.Appendf(nil, "%d ", i)
		out[i] = Record{Partition: partition, Key: fmt.Appendf(nil, "%d", i), Value: append(v, strings.Repeat("v", max(0, size-len(v)))...)}
	}
	return out
}

// Path is where a partition of the topic lies in every store: T/P, for names that need no escape.
func (t Topic) Path(partition int32) string {
	return fmt.Sprintf("%s~%x/%d", t.Name, t.ID[:4], partition)
}
