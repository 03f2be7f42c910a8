package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stream-arrow/twgd/test/servers"
)

// perSecond is the rate at which records are produced while the delay is measured.
const perSecond = 1000

// measureDelay is the time from a record's timestamp to its row being seen in Postgres, with raw in a local directory and on S3.
func measureDelay(ctx context.Context, b *bench) error {
	if err := b.needPostgres(ctx); err != nil {
		return err
	}
	local := func(dir string) (string, []string, error) { return "file://" + dir + "/raw", nil, nil }
	if err := b.delay(ctx, "local", local, aim{AtMost: 300}); err != nil {
		return err
	}
	s3, err := servers.S3(ctx)
	if err != nil {
		return err
	}
	defer s3.Close()
	remote := func(string) (string, []string, error) {
		bucket, err := s3.NewBucket(ctx)
		env := []string{}
		for k, v := range s3.Env() {
			env = append(env, k+"="+v)
		}
		return s3.URL(bucket, "raw"), env, err
	}
	return b.delay(ctx, "s3", remote)
}

// delay measures once with raw where place says.
func (b *bench) delay(ctx context.Context, name string, place func(dir string) (url string, env []string, err error), aims ...aim) (err error) {
	topic := "delay_" + name
	if _, err := b.kafka.CreateTopic(ctx, topic, int32(b.partitions), nil); err != nil {
		return err
	}
	dir, err := b.scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	url, env, err := place(dir)
	if err != nil {
		return err
	}
	stream := b.stream(topic, url, fmt.Sprintf("{name: %s, postgres: {dsn: %q, table: %s, create: true, value_as: bytea}}", topic, b.dsn, topic))
	n, err := startNode(ctx, b.twgd, dir, stream, env)
	if err != nil {
		return err
	}
	delays, err := b.watch(ctx, topic)
	_, stopErr := n.stop()
	if err := errors.Join(err, stopErr); err != nil {
		return err
	}
	b.report.add("produced at 1,000/s, raw "+name+", delay to a row in Postgres, median", "ms", []float64{percentile(delays, 50)}, aims...)
	b.report.add("produced at 1,000/s, raw "+name+", delay to a row in Postgres, p99", "ms", []float64{percentile(delays, 99)})
	return nil
}

// watch produces for a while and looks at the table until it has everything. It returns the delays in milliseconds, less those of
// the first second, while connections are made.
func (b *bench) watch(ctx context.Context, topic string) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(b.seconds)*time.Second+2*time.Minute)
	defer cancel()
	if err := b.awaitTable(ctx, topic); err != nil {
		return nil, err
	}
	if _, err := b.db.Exec(ctx, "CREATE INDEX ON "+topic+" (__kafka_partition, __kafka_offset)"); err != nil {
		return nil, err
	}
	s := &sent{at: make([][]time.Time, b.partitions)}
	produced := make(chan error, 1)
	go func() { produced <- b.trickle(ctx, topic, s) }()
	delays, err := b.look(ctx, topic, s, (b.seconds+1)*perSecond)
	cancel()
	return delays[min(perSecond, len(delays)):], errors.Join(err, ignoreEnd(<-produced))
}

// ignoreEnd leaves out the end of the context, which ends the producer where the table was given up.
func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (b *bench) awaitTable(ctx context.Context, table string) error {
	for {
		var oid *uint32
		if err := b.db.QueryRow(ctx, "SELECT to_regclass($1)::oid", table).Scan(&oid); err != nil || oid != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// sent is when records were made, by partition and offset.
type sent struct {
	mu sync.Mutex
	at [][]time.Time
}

func (s *sent) note(partition int32, offset int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for int64(len(s.at[partition])) <= offset {
		s.at[partition] = append(s.at[partition], time.Time{})
	}
	s.at[partition][offset] = at
}

func (s *sent) when(partition int32, offset int64) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[partition][offset]
}

// trickle produces perSecond records a second, ten at a time.
func (b *bench) trickle(ctx context.Context, topic string, s *sent) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.Brokers()...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer client.Close()
	value := make([]byte, b.valueSize)
	var first firstError
	next := time.NewTicker(10 * time.Second / perSecond)
	defer next.Stop()
	for i := 0; i < (b.seconds+1)*perSecond; i += 10 {
		<-next.C
		for k := range 10 {
			p := int32((i + k) % b.partitions)
			at := time.Now()
			client.Produce(ctx, &kgo.Record{Partition: p, Value: value, Timestamp: at}, func(r *kgo.Record, err error) {
				first.note(err)
				if err == nil {
					s.note(p, r.Offset, at)
				}
			})
		}
	}
	return errors.Join(client.Flush(ctx), first.get())
}

// look asks for the last offset of each partition again and again, and notes the delay of every record that it sees for the first
// time. Rows of a partition become visible in the order of their offsets.
func (b *bench) look(ctx context.Context, table string, s *sent, total int) (delays []float64, err error) {
	seen := make([]int64, b.partitions)
	query := "SELECT p, (SELECT max(__kafka_offset) FROM " + table + " WHERE __kafka_partition = p) FROM generate_series(0, $1) p"
	for len(delays) < total {
		rows, err := b.db.Query(ctx, query, b.partitions-1)
		if err != nil {
			return delays, err
		}
		now := time.Now()
		var p int32
		var last *int64
		_, err = pgx.ForEachRow(rows, []any{&p, &last}, func() error {
			for ; last != nil && seen[p] <= *last; seen[p]++ {
				delays = append(delays, float64(now.Sub(s.when(p, seen[p])).Microseconds())/1000)
			}
			return nil
		})
		if err != nil {
			return delays, err
		}
		time.Sleep(4 * time.Millisecond)
	}
	return delays, nil
}
