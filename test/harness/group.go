package harness

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Committed is what the group's coordinator keeps of a topic, by partition. A broker that was asked for no group before needs a moment.
func (s *Suite) Committed(t testing.TB, topic Topic) (got map[int32]int64) {
	t.Helper()
	Await(t, "the group's offsets", 30*time.Second, func() (string, bool) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var err error
		got, err = s.committed(ctx, topic)
		return fmt.Sprint(err), err == nil
	})
	return got
}

func (s *Suite) committed(ctx context.Context, topic Topic) (map[int32]int64, error) {
	offsets, err := kadm.NewClient(s.admin).FetchOffsets(ctx, "g-"+topic.Name)
	if err != nil {
		return nil, err
	}
	out := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic.Name && o.At >= 0 {
			out[o.Partition] = o.At
		}
	})
	return out, nil
}

// SetCommitted moves the group's offsets, as another tool would. The group must be empty.
func (s *Suite) SetCommitted(t testing.TB, topic Topic, partition int32, at int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic.Name, Partition: partition, At: at, LeaderEpoch: -1})
	answers, err := kadm.NewClient(s.admin).CommitOffsets(t.Context(), "g-"+topic.Name, offsets)
	Must(t, err)
	Must(t, answers.Error())
}

// Watch samples the group's offsets until the test ends, and fails it where one goes back.
func (s *Suite) Watch(t testing.TB, topic Topic) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		last := map[int32]int64{}
		for samples := 0; ctx.Err() == nil; samples++ {
			got, err := s.committed(ctx, topic)
			if err != nil { // the broker is stopped in some tests
				got = nil
			}
			for p, at := range got {
				if at < last[p] {
					t.Errorf("the group's offset of %s/%d went back from %d to %d", topic.Name, p, last[p], at)
				}
				last[p] = at
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
}

// NotBeyond fails where the group's offset of a partition is beyond the end of raw. Nothing may be writing raw.
func NotBeyond(t testing.TB, committed map[int32]int64, chains map[string]*Chain, topic Topic) {
	t.Helper()
	for p, at := range committed {
		next := int64(-1)
		if c := chains[topic.Path(p)]; c != nil {
			next = c.Next
		}
		if at > max(next, 0) {
			t.Errorf("the group's offset of %s/%d is %d, but raw ends at %d", topic.Name, p, at, next)
		}
	}
}
