//go:build e2e

package kill

import (
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

func TestSmoke(t *testing.T) {
	topic := suite.Topic(t, 3, nil)
	raw := "file://" + harness.Dir(t)
	lake := "file://" + harness.Dir(t)
	dsn := suite.Database(t)
	st := suite.Stream(topic, raw)
	st.Sinks = []harness.Sink{harness.ToParquet("lake", lake), harness.ToPostgres("db", dsn)}
	n := suite.Node(t, "a", st).Start()
	p := suite.Producer(t, topic)
	suite.Watch(t, topic)
	p.Begin(1000)
	time.Sleep(3 * time.Second)
	want := p.End()
	n.WaitUntil("everything", 20*time.Second, func(s harness.StreamStatus) bool { return s.Complete(int64(len(want))) })
	if c := n.Stop(); c != 0 {
		t.Error("code", c)
	}
	harness.SameRecords(t, "raw", suite.RawRecords(t, raw, "s"), want)
	harness.SameRecords(t, "raw by fastavro", suite.RawByFastavro(t, raw, "s"), want)
	harness.SameRecords(t, "lake", suite.Lake(t, lake, "s"), want)
	harness.SameIDs(t, "lake", suite.LakeIDs(t, lake, "s"), suite.IDs(topic, want))
	harness.SameIDs(t, "db", harness.TableIDs(t, dsn, "orders"), suite.IDs(topic, want))
	harness.NotBeyond(t, suite.Committed(t, topic), suite.Raw(t, raw, "s"), topic)
}
