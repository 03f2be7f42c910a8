//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

// TestCaseD24: a topic that is deleted and created again is another topic, whose records all land, though the first is equal to an old one.
func TestCaseD24(t *testing.T) {
	t.Parallel()
	dsn := suite.Database(t)
	b := lay(t, 1, func(s *harness.Stream) { s.Sinks = []harness.Sink{harness.ToPostgres("db", dsn)} })
	same := harness.Record{Key: []byte("k"), Value: []byte("equal"), Timestamp: 1_700_000_000_000}
	b.node.Start()
	old := b.Send(append([]harness.Record{same}, harness.Plain(0, 49, 10)...)...)
	b.complete(50)
	harness.Must(t, suite.Kafka.DeleteTopic(t.Context(), b.topic.Name))
	again := suite.TopicNamed(t, b.topic.Name, 1, nil)
	p := suite.Producer(t, again)
	fresh := p.Send(append([]harness.Record{same}, harness.Plain(0, 9, 10)...)...)
	b.node.WaitUntil("10 records of the new topic", 60*time.Second, func(s harness.StreamStatus) bool { return s.Raw() == 10 && s.Complete(10) })
	b.node.Says(10*time.Second, "topic_recreated")
	b.stop()
	harness.SameRecords(t, "the old chain", b.chain(b.topic, 0).Records, old)
	harness.SameRecords(t, "the new chain", b.chain(again, 0).Records, fresh)
	harness.SameIDs(t, "the table", harness.TableIDs(t, dsn, "orders"), append(suite.IDs(b.topic, old), suite.IDs(again, fresh)...))
	if suite.IDs(b.topic, old[:1])[0] == suite.IDs(again, fresh[:1])[0] {
		t.Error("equal records of two topics have one id")
	}
}

// TestCaseD25: retention passed the position: the loss is on record, and counted.
func TestCaseD25(t *testing.T) {
	t.Parallel()
	for name, onGap := range map[string]string{"continue": "continue", "stop": "stop"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := lay(t, 1, func(s *harness.Stream) { s.Source.Kafka.OnGap = onGap })
			b.Send(harness.Plain(0, 100, 10)...)
			b.node.Start()
			b.complete(100)
			b.stop()
			rest := b.Send(harness.Plain(0, 500, 10)...)
			_, err := suite.Kafka.DeleteRecords(t.Context(), b.topic.Name, 0, 500)
			harness.Must(t, err)
			b.node.Start()
			if onGap == "stop" {
				b.node.WaitUntil("the partition to be held", 30*time.Second, func(s harness.StreamStatus) bool {
					return len(s.Partitions) == 1 && strings.Contains(s.Partitions[0].Held, "100") && strings.Contains(s.Partitions[0].Held, "500")
				})
				if n := suite.RawAfterKill(t, b.raw, "s")[b.topic.Path(0)].Next; n != 100 {
					t.Errorf("the held chain has moved to %d", n)
				}
				b.resume(500)
				return
			}
			b.stored(600)
			metrics := b.metric("twg_source_gap_records_total")
			b.stop()
			c := b.chain(b.topic, 0)
			if len(c.Gaps) != 1 || c.Gaps[0].From != 100 || c.Gaps[0].To != 500 || c.Gaps[0].Reason == "" {
				t.Errorf("raw's gaps are %v, want [100, 500)", c.Gaps)
			}
			if metrics != 400 {
				t.Errorf("twg_source_gap_records_total is %v, want 400", metrics)
			}
			harness.SameRecords(t, "raw", c.Records, append(b.Acked()[:100:100], rest[400:]...))
		})
	}
}

// resume lets the held partition go on behind a gap, as an operator does, and compares what is stored.
func (b *bed) resume(to int64) {
	b.Helper()
	args := []string{"raw", "resume", "--stream", "s", "--topic", b.topic.Name, "--partition", "0", "--skip-to", fmt.Sprint(to)}
	if code, printed := b.node.Ask(args...); code != 0 {
		b.Fatalf("%q exits with %d: %s", args, code, printed)
	}
	b.stored(600)
	b.stop()
	c := b.chain(b.topic, 0)
	if len(c.Gaps) != 1 || c.Gaps[0].From != 100 || c.Gaps[0].To != to {
		b.Errorf("raw's gaps are %v, want [100, %d)", c.Gaps, to)
	}
	acked := b.Acked()
	harness.SameRecords(b, "raw", c.Records, append(acked[:100:100], acked[to:]...))
}

// TestCaseD26: partitions and topics that appear later are read from their beginning.
func TestCaseD26(t *testing.T) {
	t.Parallel()
	topic := suite.Topic(t, 3, nil)
	b := layOn(t, topic, func(s *harness.Stream) {
		s.Source.Kafka.Topics, s.Source.Kafka.Regex, s.Source.Kafka.Start = nil, "^"+topic.Name+"(-more)?$", "latest"
	})
	b.node.Start()
	b.ready()
	harness.Must(t, suite.Kafka.AddPartitions(t.Context(), topic.Name, 4))
	more := suite.TopicNamed(t, topic.Name+"-more", 1, nil)
	grown := suite.Producer(t, topic)
	first := grown.Send(harness.Plain(3, 10, 10)...)
	second := suite.Producer(t, more).Send(harness.Plain(0, 10, 10)...)
	b.stored(20)
	b.stop()
	harness.SameRecords(t, "the new partition", b.chain(topic, 3).Records, first)
	harness.SameRecords(t, "the new topic", b.chain(more, 0).Records, second)
}
