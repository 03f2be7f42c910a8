package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	for _, c := range sourcetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			bubble(t, func(w *world) { c.Run(w.T, topicLog{w}) }, kfake.SeedTopics(1, "orders"))
		})
	}
}

// topicLog is a topic as the suite sees it.
type topicLog struct{ w *world }

func (l topicLog) New(t *testing.T) sources.Source {
	s, err := New(l.w.options())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (l topicLog) Append(t *testing.T, records ...record.Record) {
	cl := l.w.client()
	for _, r := range records {
		k := &kgo.Record{Topic: "orders", Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader(h))
		}
		if err := cl.ProduceSync(t.Context(), k).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}
