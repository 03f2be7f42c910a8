//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/servers"
)

// TestCaseD34: the log was cut below what is stored, and has grown past it again. The files of a partition are taken away while its broker
// is down, which leaves the topic its id: what an unclean election does on a cluster of several. The broker is one of its own.
func TestCaseD34(t *testing.T) {
	suite.NeedsOurOwn(t, servers.EnvBrokers)
	t.Parallel()
	own := suite.WithKafka(t)
	topic := own.Topic(t, 1, nil)
	raw := "file://" + harness.Dir(t)
	n := own.Node(t, "a", own.Stream(topic, raw))
	p := own.Producer(t, topic)
	old := p.Send(harness.Plain(0, 100, 10)...)
	n.Start()
	n.WaitUntil("100 offsets", 30*time.Second, func(s harness.StreamStatus) bool { return s.Complete(100) })
	if code := n.Stop(); code != 0 {
		t.Errorf("the node ends with code %d", code)
	}
	harness.Must(t, own.Kafka.Stop())
	emptyLog(t, filepath.Join(filepath.Dir(own.Kafka.Log()), "data", topic.Name+"-0"))
	harness.Must(t, own.Kafka.Start(t.Context()))
	other := own.Producer(t, topic).Send(harness.Plain(0, 150, 20)...)
	if other[0].Offset != 0 {
		t.Fatalf("the log goes on at %d: it was not cut", other[0].Offset)
	}
	n.Start()
	n.WaitUntil("the partition to be held", 60*time.Second, func(s harness.StreamStatus) bool {
		return len(s.Partitions) == 1 && strings.Contains(s.Partitions[0].Held, "diverged")
	})
	time.Sleep(2 * time.Second) // what would be skipped would come now
	if st, err := n.Status(); err != nil || st.Streams[0].Raw() != 100 {
		t.Errorf("raw has moved: %v, %v", st, err)
	}
	if code := n.Stop(); code != 0 {
		t.Errorf("the node ends with code %d", code)
	}
	harness.SameRecords(t, "raw", own.RawRecords(t, raw, "s"), old)
}

// emptyLog removes a partition's records, but not the file that holds its topic's id.
func emptyLog(t *testing.T, dir string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	harness.Must(t, err)
	for _, f := range found {
		if f.Name() != "partition.metadata" {
			harness.Must(t, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
}
