package pipeline

import (
	"context"
	"testing"

	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
)

// TestGateAsksRawAnew: a process was stopped while another took its partition over and wrote. It gets the partition back before its
// controller has heard that it was lost, with the chain still open.
func TestGateAsksRawAnew(t *testing.T) {
	p := record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{1}}
	zero := func(context.Context) (int64, error) { return 0, nil }
	b := faultbucket.New()
	writer := func() *raw.Store {
		s, err := raw.Open(t.Context(), raw.Options{Bucket: b, Stream: "s", Codec: "null"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	ours, others := writer(), writer()
	s := New(Options{Stream: "s", Raw: ours})
	if start, err := s.gate(t.Context(), p, zero); err != nil || start.Next != 0 {
		t.Fatal(start, err)
	}
	if _, err := others.Begin(t.Context(), p, zero); err != nil {
		t.Fatal(err)
	}
	batch := (&record.Batch{Partition: p, First: 0, Next: 10, LeaderEpoch: -1}).Weigh(nil)
	if _, err := others.Append(t.Context(), p, []*record.Batch{batch}); err != nil {
		t.Fatal(err)
	}
	if start, err := s.gate(t.Context(), p, zero); err != nil || start.Next != 10 || !start.Stored {
		t.Errorf("the gate lets reading begin at %d (%v), raw ends at 10", start.Next, err)
	}
}
