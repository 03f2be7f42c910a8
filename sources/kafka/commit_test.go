package kafka

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/sources/sourcetest"
)

// positions is what a pipeline would commit that has stored all the reader has seen.
func positions(r *sourcetest.Reader) (out []sources.Position) {
	for p, next := range r.Next {
		if _, ok := r.Assigned[p]; ok {
			out = append(out, sources.Position{Partition: p, Next: next, First: 0, LeaderEpoch: 0})
		}
	}
	return out
}

// group is what the coordinator keeps.
func (w *world) group() map[key]commit {
	w.Helper()
	got := map[key]commit{}
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.OffsetFetch), 9) // the last that answers by name
	offsets := must(kadm.NewClient(w.client(kgo.MaxVersions(v))).FetchOffsets(w.ctx, "g"))
	offsets.Each(func(o kadm.OffsetResponse) { got[key{o.Topic, o.Partition}] = commit{o.At, o.Metadata} })
	return got
}

func (w *world) kept(want map[key]commit) {
	w.Helper()
	if got := w.group(); !maps.Equal(got, want) {
		w.Fatalf("the group has %v, want %v", got, want)
	}
}

// A topic that was created again is committed to like any other, and so are the others beside it, by whichever version the broker speaks.
func TestCaseD24Commits(t *testing.T) {
	f := func(name string, commits int16, change func(*Options)) {
		t.Run(name, func(t *testing.T) {
			v := kversion.Stable()
			v.SetMaxKeyVersion(int16(kmsg.OffsetCommit), commits)
			bubble(t, func(w *world) {
				w.produce("orders", 0, 0, 50)
				w.produce("bills", 0, 0, 20)
				r := w.open(change)
				r.Until("the old ones", func() bool { return r.Total() == 70 })
				w.check(r.Source.Commit(w.ctx, positions(r)))
				w.kept(map[key]commit{{"orders", 0}: {50, ours + "0"}, {"bills", 0}: {20, ours + "0"}})
				w.check(w.cluster.DeleteTopic("orders"))
				w.check(w.cluster.CreateTopic("orders", 1, nil))
				w.produce("orders", 0, 0, 10)
				w.produce("bills", 0, 20, 5)
				r.Until("the new ones", func() bool { return r.Total() == 85 && len(r.Assigned) == 2 })
				w.check(r.Source.Commit(w.ctx, positions(r)))
				w.kept(map[key]commit{{"orders", 0}: {10, ours + "0"}, {"bills", 0}: {25, ours + "0"}})
			}, kfake.SeedTopics(1, "orders", "bills"), kfake.MaxVersions(v))
		})
	}
	named := func(o *Options) { o.Topics = []string{"orders", "bills"} }
	byPattern := func(o *Options) { o.Topics, o.TopicsRegex = nil, "^(orders|bills)$" }
	f("by id", 10, named)
	f("by id, by pattern", 10, byPattern)
	f("by name", 9, named)
}

// What the coordinator refuses, and what is not ours, is told for each partition, and the rest is taken.
func TestCommitsOneByOne(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 10)
		w.produce("orders", 1, 0, 10)
		r := w.open()
		r.Until("all", func() bool { return r.Total() == 20 })
		all := positions(r)
		slices.SortFunc(all, func(a, b sources.Position) int { return int(a.Partition.Number - b.Partition.Number) })
		stranger := all[0]
		stranger.Partition.TopicID[0]++
		f := func(err error, want ...record.Partition) {
			t.Helper()
			var each *sources.CommitError
			if !errors.As(err, &each) || len(each.Failed) != len(want) {
				t.Fatalf("%v, want %v to fail", err, want)
			}
			for _, p := range want {
				if each.Failed[p] == nil {
					t.Fatalf("%v, want %v to fail", err, want)
				}
			}
		}
		f(r.Source.Commit(w.ctx, []sources.Position{stranger, all[1]}), stranger.Partition)
		w.kept(map[key]commit{{"orders", 1}: {10, ours + "0"}})

		large := kerr.OffsetMetadataTooLarge
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), answer(w, map[int32]*kerr.Error{0: nil, 1: large}))
		err := r.Source.Commit(w.ctx, all)
		f(err, all[1].Partition)
		if !errors.Is(err, large) || !strings.Contains(err.Error(), "orders/1") {
			t.Fatalf("it says %v", err)
		}

		w.cluster.ControlKey(int16(kmsg.OffsetCommit), answer(w, map[int32]*kerr.Error{1: nil}))
		f(r.Source.Commit(w.ctx, all), all[0].Partition) // no answer is no success
	}, kfake.SeedTopics(2, "orders"))
}

// answer answers the next commit in the broker's place.
func answer(w *world, codes map[int32]*kerr.Error) func(kmsg.Request) (kmsg.Response, error, bool) {
	return func(q kmsg.Request) (kmsg.Response, error, bool) {
		req := q.(*kmsg.OffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for n, e := range codes {
				p := kmsg.NewOffsetCommitResponseTopicPartition()
				p.Partition = n
				if e != nil {
					p.ErrorCode = e.Code
				}
				rt.Partitions = append(rt.Partitions, p)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	}
}

// A commit that meets a rebalance is sent once more, and for no longer than a few seconds.
func TestCommitMeetsARebalance(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 10)
		r := w.open()
		p := r.Only()
		r.Until("all", func() bool { return r.Total() == 10 })
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), answer(w, map[int32]*kerr.Error{0: kerr.RebalanceInProgress}))
		w.check(r.Source.Commit(w.ctx, positions(r)))
		w.kept(map[key]commit{{"orders", 0}: {10, ours + "0"}})

		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(q kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			return answer(w, map[int32]*kerr.Error{0: kerr.IllegalGeneration})(q)
		})
		at := time.Now()
		err := r.Source.Commit(w.ctx, positions(r))
		if took := time.Since(at); !errors.Is(err, kerr.IllegalGeneration) || took > commitTries*commitPause+time.Second {
			t.Fatalf("%v after %v for %s", err, took, p)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// Where brokers know no topic ids, the name alone must do, whatever version of commits they offer.
func TestCommitsWithoutTopicIDs(t *testing.T) {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.Metadata), 9)
	v.SetMaxKeyVersion(int16(kmsg.Fetch), 12)
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 10)
		r := w.open()
		if p := r.Only(); p.TopicID != [16]byte{} {
			t.Fatalf("the topic has an id: %v", p)
		}
		r.Until("all", func() bool { return r.Total() == 10 })
		w.check(r.Source.Commit(w.ctx, positions(r)))
		w.kept(map[key]commit{{"orders", 0}: {10, ours + "0"}})
	}, kfake.SeedTopics(1, "orders"), kfake.MaxVersions(v))
}
