//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

// suite is the program and the servers that all cases share.
var suite *harness.Suite

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &suite)) }

// long makes outages as long as the cases name them; otherwise they are shortened to what a check on every change can afford.
var long = os.Getenv("TWGD_E2E_LONG") != ""

// lasting is how long an outage lasts.
func lasting(whole, short time.Duration) time.Duration {
	if long {
		return whole
	}
	return short
}

// bed is what most cases need: a topic, a stream over it, one node, a producer.
type bed struct {
	*testing.T
	topic  harness.Topic
	raw    string
	stream harness.Stream
	node   *harness.Node
	*harness.Producer
}

// lay prepares a bed over a local raw. shape changes the stream before the node is made.
func lay(t *testing.T, partitions int32, shape func(*harness.Stream)) *bed {
	t.Helper()
	return layOn(t, suite.Topic(t, partitions, nil), shape)
}

func layOn(t *testing.T, topic harness.Topic, shape func(*harness.Stream)) *bed {
	t.Helper()
	b := &bed{T: t, topic: topic, raw: "file://" + harness.Dir(t)}
	b.stream = suite.Stream(topic, b.raw)
	if shape != nil {
		shape(&b.stream)
		b.raw = b.stream.Raw.To
	}
	b.node = suite.Node(t, "a", b.stream)
	b.Producer = suite.Producer(t, topic)
	return b
}

// complete waits until raw and every sink have n offsets.
func (b *bed) complete(n int64) {
	b.Helper()
	b.node.WaitUntil(fmt.Sprintf("%d offsets everywhere", n), 60*time.Second, func(s harness.StreamStatus) bool { return s.Complete(n) })
}

// stop ends the node, which must go without complaint.
func (b *bed) stop() {
	b.Helper()
	if code := b.node.Stop(); code != 0 {
		b.Errorf("node %s ends with code %d", b.node.ID, code)
	}
}

// records are what raw holds.
func (b *bed) records() []harness.Record {
	b.Helper()
	return suite.RawRecords(b, b.raw, "s")
}

// chain is what raw holds of one partition.
func (b *bed) chain(topic harness.Topic, partition int32) *harness.Chain {
	b.Helper()
	c := suite.Raw(b, b.raw, "s")[topic.Path(partition)]
	if c == nil {
		b.Fatalf("raw has no chain %s", topic.Path(partition))
	}
	return c
}

// stored waits until raw has n offsets.
func (b *bed) stored(n int64) {
	b.Helper()
	b.node.WaitUntil(fmt.Sprintf("%d offsets in raw", n), 30*time.Second, func(s harness.StreamStatus) bool { return s.Raw() == n })
}

// ready waits until the node reads all partitions.
func (b *bed) ready() {
	b.Helper()
	b.node.WaitUntil("its partitions", 30*time.Second, func(s harness.StreamStatus) bool { return len(s.Partitions) == int(b.topic.Partitions) })
}

// taken waits until the node has taken n offsets from the broker, stored or not.
func (b *bed) taken(n int64) {
	b.Helper()
	b.node.WaitUntil(fmt.Sprintf("%d offsets read", n), 30*time.Second, func(s harness.StreamStatus) bool {
		sum := int64(0)
		for _, p := range s.Partitions {
			if p.Position != nil {
				sum += *p.Position
			}
		}
		return sum == n
	})
}

// metric sums the samples of a metric.
func (b *bed) metric(name string) float64 {
	b.Helper()
	return b.node.Metric(name)
}
