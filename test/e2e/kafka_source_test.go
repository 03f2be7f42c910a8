//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/sources/kafka"
	"github.com/stream-arrow/twgd/sources/sourcetest"
	"github.com/stream-arrow/twgd/test/servers"
)

// kafkaTopic is one topic of a real broker, and the source that reads it.
type kafkaTopic struct {
	*servers.KafkaServer
	t    *testing.T
	name string
	opt  kafka.Options
}

// TestKafkaSource is the Kafka source against a real broker: what a broker in memory cannot vouch for.
func TestKafkaSource(t *testing.T) {
	data := t.TempDir()
	k, err := servers.Kafka(t.Context(), servers.KafkaOptions{Faults: true, Properties: map[string]string{"log.dirs": data}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	f := func(name string, run func(t *kafkaTopic), change ...func(*kafka.Options)) {
		t.Run(name, func(t *testing.T) {
			topic := &kafkaTopic{KafkaServer: k, t: t, name: "source-" + fmt.Sprintf("%x", time.Now().UnixNano())}
			topic.opt = kafka.Options{Brokers: k.Brokers(), Topics: []string{topic.name}, Group: topic.name, SessionTimeout: 10 * time.Second,
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
			for _, c := range change {
				c(&topic.opt)
			}
			run(topic)
		})
	}
	for _, c := range sourcetest.Cases() {
		f("conformance/"+c.Name, func(k *kafkaTopic) {
			k.create(1, nil)
			c.Run(k.t, k)
		})
	}
	f("D04 compaction", kafkaCompaction)
	f("D21 timestamps", kafkaTimestamps)
	f("D22 transactions", kafkaTransactions)
	f("D24 recreated", kafkaRecreated)
	f("D24 recreated, by pattern", kafkaRecreated, func(o *kafka.Options) { o.TopicsRegex, o.Topics = "^"+o.Topics[0]+"$", nil })
	f("D25 retention", kafkaRetention)
	f("D26 new partition and topic", kafkaGrows)
	f("two members", kafkaTwoMembers)
	f("codecs", kafkaCodecs)
	if os.Getenv(servers.EnvBrokers) == "" {
		f("TLS and SASL", kafkaSecured)
		f("broker away", kafkaAway)
		f("D34 the log is cut and grows again", func(k *kafkaTopic) { kafkaCut(k, data) })
	}
}

func (k *kafkaTopic) check(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *kafkaTopic) create(partitions int32, configs map[string]string) {
	k.t.Helper()
	_, err := k.CreateTopic(k.t.Context(), k.name, partitions, configs)
	k.check(err)
}

// New makes the source; it is part of sourcetest.Log.
func (k *kafkaTopic) New(t *testing.T) sources.Source {
	s, err := kafka.New(k.opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Append produces; it is part of sourcetest.Log.
func (k *kafkaTopic) Append(_ *testing.T, records ...record.Record) {
	k.t.Helper()
	var out []*kgo.Record
	for _, r := range records {
		p := &kgo.Record{Topic: k.name, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			p.Headers = append(p.Headers, kgo.RecordHeader(h))
		}
		out = append(out, p)
	}
	k.produce(out...)
}

func (k *kafkaTopic) client(opts ...kgo.Opt) *kgo.Client {
	k.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	k.check(err)
	return cl
}

func (k *kafkaTopic) produce(records ...*kgo.Record) {
	k.t.Helper()
	cl := k.client()
	defer cl.Close()
	k.check(cl.ProduceSync(k.t.Context(), records...).FirstErr())
}

// numbers produces records whose values are from, from+1, …
func (k *kafkaTopic) numbers(topic string, partition int32, from, to int) {
	k.t.Helper()
	var out []*kgo.Record
	for i := from; i < to; i++ {
		out = append(out, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Append(nil, i)})
	}
	k.produce(out...)
}

func (k *kafkaTopic) read(g *sourcetest.Gate) *sourcetest.Reader {
	k.t.Helper()
	r := sourcetest.Read(k.t, k.New(k.t), g)
	k.t.Cleanup(r.Close)
	return r
}

// identity asks a source which partition it reads.
func (k *kafkaTopic) identity() record.Partition {
	r := sourcetest.Read(k.t, k.New(k.t), sourcetest.NewGate())
	defer r.Close()
	return r.Only()
}

func kafkaCompaction(k *kafkaTopic) {
	k.create(1, map[string]string{"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"})
	for i, key := range []string{"a", "b", "x", "x", "x", "y", "y", "y", "y", "y"} { // 0, 1, 4, 9 stay
		k.produce(&kgo.Record{Topic: k.name, Key: []byte(key), Value: fmt.Append(nil, i)})
	}
	want := []int64{0, 1, 4, 9}
	for try := 0; ; try++ { // the cleaner works when it likes: roll the segment, and read until it has
		time.Sleep(time.Second)
		k.produce(&kgo.Record{Topic: k.name, Key: []byte("roll"), Value: []byte("r")})
		r := sourcetest.Read(k.t, k.New(k.t), sourcetest.NewGate())
		p := r.Only()
		r.Until("the end", func() bool { return r.Ends[p] > 10 && r.Next[p] == r.Ends[p] })
		got := r.Offsets(p)
		gaps := len(r.Gaps)
		r.Close()
		if gaps > 0 {
			k.t.Fatalf("gaps: %v", r.Gaps)
		}
		if len(got) >= 4 && slices.Equal(got[:4], want) {
			return
		}
		if try == 30 {
			k.t.Fatalf("read %v, want %v and the later", got, want)
		}
	}
}

func kafkaTimestamps(k *kafkaTopic) {
	k.create(1, map[string]string{"message.timestamp.after.max.ms": fmt.Sprint(int64(1) << 62), "message.timestamp.before.max.ms": fmt.Sprint(int64(1) << 62)})
	r := k.read(sourcetest.NewGate())
	p := r.Only()
	micros := time.Now().UnixMilli() * 1000
	k.produceAt(p, -1)
	k.produceAt(p, micros)
	r.Until("both", func() bool { return r.Total() == 2 })
	a, b := r.Records[p][0], r.Records[p][1]
	if a.Timestamp != -1 || a.TimestampType != record.TimestampNone || b.Timestamp != micros || b.TimestampType != record.TimestampCreate {
		k.t.Fatalf("%+v %+v", a, b)
	}
}

// produceAt writes one record with a timestamp that the client library's producer would wrap: it sends a batch made by hand.
func (k *kafkaTopic) produceAt(p record.Partition, millis int64) {
	k.t.Helper()
	body := []byte{0, 0, 0, 1, 2, 'v', 0} // attributes, deltas, no key, one byte, no headers
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: millis, MaxTimestamp: millis, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: append([]byte{byte(len(body) * 2)}, body...)}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = raw
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = p.Topic, p.TopicID, []kmsg.ProduceRequestTopicPartition{part}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 5000, []kmsg.ProduceRequestTopic{topic}
	cl := k.client()
	defer cl.Close()
	resp, err := req.RequestWith(k.t.Context(), cl)
	k.check(err)
	k.check(kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

func kafkaTransactions(k *kafkaTopic) {
	k.create(1, nil)
	cl := k.client(kgo.TransactionalID(k.name))
	defer cl.Close()
	transact := func(end kgo.TransactionEndTry, values ...string) {
		k.check(cl.BeginTransaction())
		for _, v := range values {
			k.check(cl.ProduceSync(k.t.Context(), &kgo.Record{Topic: k.name, Value: []byte(v)}).FirstErr())
		}
		k.check(cl.EndTransaction(k.t.Context(), end))
	}
	transact(kgo.TryAbort, "a0", "a1", "a2")
	transact(kgo.TryCommit, "b0", "b1")
	see := func(isolation string, want ...string) {
		k.opt.Isolation, k.opt.Group = isolation, k.name+isolation
		r := k.read(sourcetest.NewGate())
		p := r.Only()
		r.Until("lag 0", func() bool { return r.Next[p] == 7 && r.Ends[p] == 7 })
		if !slices.Equal(r.Values[p], want) || len(r.Gaps) > 0 || !r.Records[p][0].Transactional {
			k.t.Fatalf("%s read %v gaps %v", isolation, r.Values[p], r.Gaps)
		}
	}
	see(kafka.ReadCommitted, "b0", "b1")
	see(kafka.ReadUncommitted, "a0", "a1", "a2", "b0", "b1")
}

func kafkaRecreated(k *kafkaTopic) {
	k.create(1, nil)
	k.numbers(k.name, 0, 0, 50)
	r := k.read(sourcetest.NewGate())
	old := r.Only()
	r.Until("the old ones", func() bool { return r.Total() == 50 })
	k.check(k.DeleteTopic(k.t.Context(), k.name))
	k.create(1, nil)
	k.numbers(k.name, 0, 0, 10)
	at := time.Now()
	r.Until("the new ones", func() bool { return r.Total() == 60 })
	k.t.Logf("the new topic was read after %v", time.Since(at).Round(time.Millisecond))
	fresh := r.Only()
	if fresh.TopicID == old.TopicID || len(r.Values[fresh]) != 10 || !r.Noticed("topic_recreated") || len(r.Gaps)+len(r.Held) > 0 {
		k.t.Fatalf("log %v notices %v gaps %v held %v", r.Log, r.Notices, r.Gaps, r.Held)
	}
	k.check(r.Source.Commit(k.t.Context(), []sources.Position{{Partition: fresh, Next: 10}}))
	if err := r.Source.Commit(k.t.Context(), []sources.Position{{Partition: old, Next: 50}}); err == nil {
		k.t.Fatal("the old topic's position was committed")
	}
}

func kafkaRetention(k *kafkaTopic) {
	k.create(1, nil)
	k.numbers(k.name, 0, 0, 600)
	g := sourcetest.NewGate()
	g.Store(k.identity(), sources.Start{Next: 100, LeaderEpoch: 0, Stored: true})
	_, err := k.DeleteRecords(k.t.Context(), k.name, 0, 500)
	k.check(err)
	r := k.read(g)
	p := r.Only()
	r.Until("the rest", func() bool { return r.Next[p] == 600 })
	if want := []string{p.String() + " [100, 500) retention"}; !slices.Equal(r.Gaps, want) || len(r.Values[p]) != 100 {
		k.t.Fatalf("gaps %v, %d records", r.Gaps, len(r.Values[p]))
	}
}

func kafkaGrows(k *kafkaTopic) {
	k.create(1, nil)
	k.opt.Topics, k.opt.TopicsRegex, k.opt.Start = nil, "^"+k.name, kafka.StartLatest
	r := k.read(sourcetest.NewGate())
	r.Only()
	k.check(k.AddPartitions(k.t.Context(), k.name, 2))
	_, err := k.CreateTopic(k.t.Context(), k.name+".eu", 1, nil)
	k.check(err)
	k.numbers(k.name, 1, 0, 10)
	k.numbers(k.name+".eu", 0, 0, 10)
	at := time.Now()
	r.Until("both", func() bool { return r.Total() == 20 && len(r.Assigned) == 3 })
	k.t.Logf("found after %v", time.Since(at).Round(time.Millisecond))
	r.For(2 * time.Second)
	if r.Total() != 20 {
		k.t.Fatalf("%d records", r.Total())
	}
}

func kafkaTwoMembers(k *kafkaTopic) {
	k.create(6, nil)
	fill := func(from, to int) {
		for n := range int32(6) {
			k.numbers(k.name, n, from, to)
		}
	}
	fill(0, 200)
	g := sourcetest.NewGate()
	a := k.read(g)
	a.Until("all", func() bool { return a.Total() == 1200 })
	k.opt.Client = "node~2"
	b := k.read(g)
	for len(b.Assigned) != 3 || len(a.Assigned) != 3 {
		a.Step(100 * time.Millisecond)
		b.Step(100 * time.Millisecond)
	}
	fill(200, 300)
	for a.Total()+b.Total() < 1800 {
		a.Step(100 * time.Millisecond)
		b.Step(100 * time.Millisecond)
	}
	for p := range a.Values {
		if n := len(a.Values[p]) + len(b.Values[p]); n != 300 {
			k.t.Fatalf("%s was read %d times, want 300", p, n)
		}
	}
}

func kafkaCodecs(k *kafkaTopic) {
	k.create(1, nil)
	want := 0
	for _, codec := range []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(), kgo.NoCompression()} {
		cl := k.client(kgo.ProducerBatchCompression(codec))
		var out []*kgo.Record
		for range 5000 {
			out = append(out, &kgo.Record{Topic: k.name, Value: []byte(fmt.Sprintf("%d %s", want, strings.Repeat("x", 200)))})
			want++
		}
		k.check(cl.ProduceSync(k.t.Context(), out...).FirstErr())
		cl.Close()
	}
	r := k.read(sourcetest.NewGate())
	p := r.Only()
	r.Until("all", func() bool { return r.Total() == want })
	for i, v := range r.Values[p] {
		if !strings.HasPrefix(v, fmt.Sprint(i)+" ") {
			k.t.Fatalf("record %d is %.20q", i, v)
		}
	}
}

func kafkaSecured(k *kafkaTopic) {
	k.create(1, nil)
	k.numbers(k.name, 0, 0, 5)
	try := func(name, want string, change func(*kafka.Options)) {
		k.t.Run(name, func(t *testing.T) {
			o := k.opt
			o.Group += name
			change(&o)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := kafka.Check(ctx, o); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Fatalf("Check: %v, want %q", err, want)
			}
			s, err := kafka.New(o)
			if err != nil {
				t.Fatal(err)
			}
			r := sourcetest.Read(t, s, sourcetest.NewGate())
			defer r.Close()
			if want == "" {
				r.Until("all", func() bool { return r.Total() == 5 })
				return
			}
			r.Until("a word", func() bool { return r.Noticed("source_down") })
			if text := r.Notices[0].Text; !strings.Contains(text, want) {
				t.Fatalf("it says %q, want %q", text, want)
			}
		})
	}
	sasl := func(mechanism, password string) func(*kafka.Options) {
		return func(o *kafka.Options) {
			o.Brokers, o.SASL = k.SASLBrokers(), kafka.SASLOptions{Mechanism: mechanism, Username: servers.KafkaUser, Password: password}
		}
	}
	try("PLAIN", "", sasl("PLAIN", servers.KafkaPassword))
	try("SCRAM-SHA-256", "", sasl("SCRAM-SHA-256", servers.KafkaPassword))
	try("SCRAM-SHA-512", "", sasl("SCRAM-SHA-512", servers.KafkaPassword))
	try("wrong password", "SASL_AUTHENTICATION_FAILED", sasl("SCRAM-SHA-512", "wrong"))
	secure := func(ca string) func(*kafka.Options) {
		return func(o *kafka.Options) {
			o.Brokers, o.TLS = k.TLSBrokers(), kafka.TLSOptions{Enabled: true, CAFile: ca, CertFile: k.ClientCertFile(), KeyFile: k.ClientKeyFile()}
		}
	}
	try("TLS", "", secure(k.CAFile()))
	try("unknown authority", "certificate", secure(""))
	try("TLS where there is none", "is TLS misconfigured", func(o *kafka.Options) { o.TLS.Enabled = true })
	try("nobody listens", "refused", func(o *kafka.Options) { o.Brokers = []string{"127.0.0.1:1"} })
}

// The broker is cut off, hangs and comes back: the source tells once, and heals by itself.
func kafkaAway(k *kafkaTopic) {
	k.create(1, nil)
	k.opt.Brokers = k.FaultyBrokers()
	k.numbers(k.name, 0, 0, 10)
	r := k.read(sourcetest.NewGate())
	r.Until("all", func() bool { return r.Total() == 10 })
	for i, mode := range []servers.TCPMode{servers.TCPRefuse, servers.TCPHang, servers.TCPReset} {
		r.Notices = nil
		k.check(k.Faults().Set(mode))
		r.Until("a word", func() bool { return r.Noticed("source_down") })
		k.check(k.Faults().Set(servers.TCPPass))
		k.numbers(k.name, 0, 10+i*10, 20+i*10)
		r.Until("the rest", func() bool { return r.Total() == 20+i*10 && r.Noticed("source_up") })
	}
	if len(r.Gaps)+len(r.Held) > 0 {
		k.t.Fatalf("gaps %v held %v", r.Gaps, r.Held)
	}
}

// The broker loses the end of its log in a crash, and the log grows past our position again.
func kafkaCut(k *kafkaTopic, data string) {
	k.create(1, nil)
	for i := range 20 { // batches of their own, so that the cut leaves some
		k.numbers(k.name, 0, i*5, i*5+5)
	}
	g := sourcetest.NewGate()
	r := k.read(g)
	p := r.Only()
	r.Until("all", func() bool { return r.Total() == 100 })
	k.check(k.Kill())
	logs, err := filepath.Glob(filepath.Join(data, k.name+"-0", "*.log"))
	k.check(err)
	info, err := os.Stat(logs[len(logs)-1])
	k.check(err)
	k.check(os.Truncate(logs[len(logs)-1], info.Size()/2))
	k.check(k.Start(k.t.Context()))
	k.numbers(k.name, 0, 1000, 1300)
	r.Until("a word", func() bool { return strings.Contains(r.Held[p], "diverged") })
	k.t.Log(r.Held[p])
	r.For(10 * time.Second)
	if r.Total() != 100 || len(r.Gaps) > 0 {
		k.t.Fatalf("%d records, gaps %v", r.Total(), r.Gaps)
	}
	r.Close()
	again := k.read(g) // a restart finds it, too
	again.Until("a word", func() bool { return strings.Contains(again.Held[p], "diverged") })
}
