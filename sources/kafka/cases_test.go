package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/sources/sourcetest"
)

// A compacted topic: each record keeps its own offset, and the holes are no gaps.
func TestCaseD04(t *testing.T) {
	bubble(t, func(w *world) {
		w.check(w.cluster.CreateTopic("orders", 1, map[string]string{"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}))
		cl := w.client()
		for i := range 10 { // offsets 2, 3, 5 to 8 are written over by later ones
			key := map[int]string{2: "x", 3: "x", 5: "y", 6: "y", 7: "y", 8: "y", 9: "y", 4: "x"}[i]
			w.check(cl.ProduceSync(w.ctx, &kgo.Record{Topic: "orders", Key: []byte(key + fmt.Sprint(i*(1-min(1, len(key))))), Value: fmt.Append(nil, i)}).FirstErr())
			time.Sleep(time.Second)
		}
		w.check(cl.ProduceSync(w.ctx, &kgo.Record{Topic: "orders", Key: []byte("last"), Value: []byte("10")}).FirstErr())
		time.Sleep(time.Minute)
		w.cluster.Compact()
		r := w.open()
		p := r.Only()
		r.Until("the end", func() bool { return r.Next[p] == 11 })
		if want := []int64{0, 1, 4, 9, 10}; !slices.Equal(r.Offsets(p), want) || len(r.Gaps) > 0 {
			t.Fatalf("offsets %v gaps %v, want %v", r.Offsets(p), r.Gaps, want)
		}
	})
}

func TestCaseD22(t *testing.T) {
	f := func(isolation string, want []string) {
		t.Run(isolation, func(t *testing.T) {
			bubble(t, func(w *world) {
				cl := w.client(kgo.TransactionalID("tx"))
				transact(w, cl, kgo.TryAbort, "a0", "a1", "a2")
				transact(w, cl, kgo.TryCommit, "b0", "b1")
				r := w.open(func(o *Options) { o.Isolation = isolation })
				p := r.Only()
				r.Until("lag 0", func() bool { return r.Next[p] == 7 && r.Ends[p] == 7 })
				if !slices.Equal(r.Values[p], want) || len(r.Gaps) > 0 {
					t.Fatalf("read %v gaps %v, want %v", r.Values[p], r.Gaps, want)
				}
			}, kfake.SeedTopics(1, "orders"))
		})
	}
	f(ReadCommitted, []string{"b0", "b1"})
	f(ReadUncommitted, []string{"a0", "a1", "a2", "b0", "b1"})
}

func transact(w *world, cl *kgo.Client, end kgo.TransactionEndTry, values ...string) {
	w.Helper()
	w.check(cl.BeginTransaction())
	for _, v := range values {
		w.check(cl.ProduceSync(w.ctx, &kgo.Record{Topic: "orders", Value: []byte(v)}).FirstErr())
	}
	w.check(cl.EndTransaction(w.ctx, end))
}

// While a transaction is open the position stops in front of it, and the end is the last stable offset: nothing is behind.
func TestOpenTransaction(t *testing.T) {
	bubble(t, func(w *world) {
		cl := w.client(kgo.TransactionalID("tx"))
		transact(w, cl, kgo.TryCommit, "a0")
		w.check(cl.BeginTransaction())
		w.check(cl.ProduceSync(w.ctx, &kgo.Record{Topic: "orders", Value: []byte("b0")}).FirstErr())
		w.produce("orders", 0, 7, 1)
		r := w.open()
		p := r.Only()
		r.Until("what is decided", func() bool { return r.Next[p] == 2 && r.Ends[p] == 2 })
		r.For(10 * time.Second)
		if r.Next[p] != 2 {
			t.Fatalf("the position passed the open transaction: %d", r.Next[p])
		}
		w.check(cl.EndTransaction(w.ctx, kgo.TryAbort))
		r.Until("the rest", func() bool { return r.Next[p] == 5 })
		if want := []string{"a0", "7"}; !slices.Equal(r.Values[p], want) {
			t.Fatalf("read %v, want %v", r.Values[p], want)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// Markers and compacted offsets below the log's start are no gap when the position lies behind them.
func TestCaseD23(t *testing.T) {
	bubble(t, func(w *world) {
		cl := w.client(kgo.TransactionalID("tx"))
		transact(w, cl, kgo.TryCommit, "0", "1")
		r := w.open()
		p := r.Only()
		r.Until("the marker too", func() bool { return r.Next[p] == 3 })
		r.Source.Rejoin()
		w.check(w.cluster.DeleteRecords("orders", 0, 3))
		r.Until("the new assignment", func() bool { return len(r.Log) == 3 })
		r.For(10 * time.Second)
		if len(r.Gaps) > 0 || len(r.Held) > 0 || r.Log[2] != "+orders/0@3" {
			t.Fatalf("gaps %v held %v log %v", r.Gaps, r.Held, r.Log)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestCaseD24(t *testing.T) {
	f := func(name string, change func(*Options)) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.produce("orders", 0, 0, 50)
				r := w.open(change)
				old := r.Only()
				r.Until("the old ones", func() bool { return len(r.Values[old]) == 50 })
				w.check(w.cluster.DeleteTopic("orders"))
				w.check(w.cluster.CreateTopic("orders", 1, nil))
				w.produce("orders", 0, 0, 10)
				at := time.Now()
				r.Until("the new ones", func() bool { return r.Total() == 60 })
				if took := time.Since(at); took > 15*time.Second {
					t.Fatalf("it took %v", took)
				}
				fresh := r.Only()
				if fresh.TopicID == old.TopicID || !slices.Equal(r.Values[fresh], numbers(0, 10)) || !r.Noticed("topic_recreated") {
					t.Fatalf("new %+v old %+v values %v notices %v", fresh, old, r.Values[fresh], r.Notices)
				}
				if want := []string{"+orders/0@0", "-orders/0 lost=true", "+orders/0@0"}; !slices.Equal(r.Log, want) || len(r.Gaps)+len(r.Held) > 0 {
					t.Fatalf("log %v gaps %v held %v", r.Log, r.Gaps, r.Held)
				}
			}, kfake.SeedTopics(1, "orders"))
		})
	}
	f("by name", func(*Options) {})
	f("by pattern", func(o *Options) { o.Topics, o.TopicsRegex = nil, "^ord" })
	f("pinned", func(o *Options) { o.Topics, o.Group, o.Partitions = nil, "", map[string][]int32{"orders": {0}} })
}

// The topic stays away for a while between its two lives.
func TestTopicMissing(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 5)
		r := w.open()
		p := r.Only()
		r.Until("the old ones", func() bool { return r.Total() == 5 })
		w.check(w.cluster.DeleteTopic("orders"))
		r.Until("a word", func() bool { return r.Noticed("topic_missing") && r.Held[p] != "" })
		w.check(w.cluster.CreateTopic("orders", 2, nil))
		w.produce("orders", 1, 0, 5)
		r.Until("the new ones", func() bool { return r.Total() == 10 && len(r.Assigned) == 2 })
		if len(r.Held) > 0 {
			t.Fatalf("held: %v", r.Held)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestCaseD25(t *testing.T) {
	t.Run("continue", func(t *testing.T) {
		bubble(t, func(w *world) {
			r := retained(w, GapContinue)
			p := r.Only()
			r.Until("the rest", func() bool { return r.Next[p] == 600 })
			if want := []string{"orders/0 [100, 500) retention"}; !slices.Equal(r.Gaps, want) || len(r.Values[p]) != 100 || r.Values[p][0] != "500" {
				t.Fatalf("gaps %v values %v", r.Gaps, r.Values[p])
			}
		}, kfake.SeedTopics(1, "orders"))
	})
	t.Run("stop", func(t *testing.T) {
		bubble(t, func(w *world) {
			r := retained(w, GapStop)
			p := r.Only()
			r.Until("a word", func() bool { return strings.Contains(r.Held[p], "[100, 500)") })
			r.For(time.Minute)
			if r.Next[p] != 100 || len(r.Gaps) > 0 {
				t.Fatalf("next %d gaps %v", r.Next[p], r.Gaps)
			}
			w.gate.Store(p, sources.Start{Next: 500, LeaderEpoch: -1, Stored: true}) // an operator wrote the gap
			r.Source.Seek(p, 500)
			r.Until("the rest", func() bool { return r.Next[p] == 600 })
			if len(r.Held) > 0 {
				t.Fatalf("held: %v", r.Held)
			}
		}, kfake.SeedTopics(1, "orders"))
	})
}

func retained(w *world, onGap string) *sourcetest.Reader {
	w.produce("orders", 0, 0, 600)
	w.check(w.cluster.DeleteRecords("orders", 0, 500))
	w.gate.Store(w.identity("orders", 0), sources.Start{Next: 100, LeaderEpoch: 0, Stored: true})
	return w.open(func(o *Options) { o.OnGap = onGap })
}

// identity is the partition as the source will name it.
func (w *world) identity(topic string, n int32) record.Partition {
	w.Helper()
	wire := &wire{Client: w.client()}
	seen := must(wire.topology(w.ctx, []string{topic}))
	return record.Partition{Cluster: "fake", Topic: topic, TopicID: seen.topics[topic].id, Number: n}
}

// Retention passes a partition that is being read, but whose receiver is slow: only what was not fetched is lost.
func TestRetentionUnderWay(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 10)
		r := w.open()
		p := r.Only()
		r.Until("the first", func() bool { return r.Total() == 10 })
		fetches := make(chan struct{}, 1)
		w.cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			fetches <- struct{}{}
			w.cluster.DropControl()
			w.cluster.SleepControl(func() { time.Sleep(5 * time.Second) })
			return nil, nil, false
		})
		<-fetches
		w.produce("orders", 0, 10, 20)
		w.check(w.cluster.DeleteRecords("orders", 0, 25))
		r.Until("the rest", func() bool { return r.Next[p] == 30 })
		if want := []string{"orders/0 [10, 25) retention"}; !slices.Equal(r.Gaps, want) || r.Total() != 15 {
			t.Fatalf("gaps %v values %v", r.Gaps, r.Values[p])
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestCaseD26(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 5)
		r := w.open(func(o *Options) { o.Topics, o.TopicsRegex, o.Start = nil, "^orders", StartLatest })
		r.Until("three partitions", func() bool { return len(r.Assigned) == 3 })
		w.partitions("orders", 4)
		w.check(w.cluster.CreateTopic("orders.eu", 1, nil))
		w.check(w.cluster.CreateTopic("others", 1, nil))
		w.produce("orders", 3, 0, 10)
		w.produce("orders.eu", 0, 0, 10)
		w.produce("others", 0, 0, 10)
		r.Until("both", func() bool { return r.Total() == 20 && len(r.Assigned) == 5 })
		r.For(30 * time.Second)
		if r.Total() != 20 {
			t.Fatalf("read %v", r.Values)
		}
	}, kfake.SeedTopics(3, "orders"))
}

func (w *world) partitions(topic string, n int32) {
	w.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, n
	req.Topics = append(req.Topics, rt)
	req.TimeoutMillis = 1000
	_, err := req.RequestWith(w.ctx, w.client())
	w.check(err)
}

func TestCaseD29(t *testing.T) {
	f := func(name string, offset int64, metadata string, want string) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.produce("orders", 0, 0, 210)
				if offset >= 0 {
					w.commit("orders", 0, offset, metadata)
				}
				w.gate.Store(w.identity("orders", 0), sources.Start{Next: 200, LeaderEpoch: 0, Stored: true})
				r := w.open()
				p := r.Only()
				r.Until("the rest", func() bool { return r.Next[p] == 210 })
				r.For(time.Second)
				got := ""
				for _, n := range r.Notices {
					got += n.Kind + " " + n.Span.String()
				}
				if got != want || !slices.Equal(r.Values[p], numbers(200, 210)) {
					t.Fatalf("notices %v, want %q; values %v", r.Notices, want, r.Values[p])
				}
			}, kfake.SeedTopics(1, "orders"))
		})
	}
	f("150", 150, "", "offset_ignored [150, 200)")
	f("50", 50, "elsewhere", "offset_ignored [50, 200)")
	f("900", 900, "", "offset_ignored [200, 900)")
	f("expired", -1, "", "")
	f("an older one of our own", 150, ours+"100", "")
	f("one of our own that raw has lost", 205, ours+"200", "offset_ignored [200, 205)")
	f("the head by another", 200, "", "")
}

func (w *world) commit(topic string, n int32, offset int64, metadata string) {
	w.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = "g", -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = n, offset, &metadata
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic, w.identity(topic, n).TopicID, []kmsg.OffsetCommitRequestTopicPartition{p}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(w.ctx, w.client())
	w.check(err)
	for _, err := range commitAnswers(resp) {
		w.check(err)
	}
}

func TestCaseD33(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 7)
		var fixed map[record.Partition]int64
		keep := func(o *Options) {
			o.Start = StartLatest
			o.FirstStart = func(_ context.Context, _ string, now map[record.Partition]int64) (map[record.Partition]int64, bool, error) {
				if fixed != nil {
					return fixed, false, nil
				}
				fixed = now
				return now, true, nil
			}
		}
		a := w.open(keep)
		a.Only()
		a.Close() // before it read anything
		w.gate = sourcetest.NewGate()
		w.produce("orders", 0, 7, 10)
		b := w.open(keep)
		p := b.Only()
		b.Until("all ten", func() bool { return b.Total() == 10 })
		if b.Log[0] != "+orders/0@7" || !slices.Equal(b.Values[p], numbers(7, 17)) {
			t.Fatalf("log %v values %v", b.Log, b.Values[p])
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestStart(t *testing.T) {
	f := func(name, start, want string) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				begin := time.Now()
				w.produce("orders", 0, 0, 5)
				time.Sleep(time.Hour - time.Minute - time.Since(begin)%time.Minute)
				w.produce("orders", 0, 5, 5)
				w.commit("orders", 0, 3, "")
				r := w.open(func(o *Options) {
					o.Start = strings.ReplaceAll(start, "NOW+30m", begin.Add(30*time.Minute).UTC().Format(time.RFC3339))
				})
				r.Only()
				if r.Log[0] != want {
					t.Fatalf("%v, want %v", r.Log, want)
				}
			}, kfake.SeedTopics(1, "orders"))
		})
	}
	f("earliest", StartEarliest, "+orders/0@0")
	f("latest", StartLatest, "+orders/0@10")
	f("committed", StartCommitted, "+orders/0@3")
	f("a time", "NOW+30m", "+orders/0@5")
	f("a time behind all", "2100-01-01T00:00:00Z", "+orders/0@10")
}

// The stream is held, and asks again, while its beginning cannot be made durable.
func TestFirstStartFails(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 5)
		other, none := errors.New("the stream belongs to cluster other"), error(nil)
		var fault atomic.Pointer[error]
		fault.Store(&other)
		r := w.open(func(o *Options) {
			o.FirstStart = func(_ context.Context, cluster string, now map[record.Partition]int64) (map[record.Partition]int64, bool, error) {
				if cluster != "fake" || len(now) != 1 {
					t.Fatalf("called with %s %v", cluster, now)
				}
				return now, true, *fault.Load()
			}
		})
		whole := record.Partition{Cluster: "fake"}
		r.Until("a word", func() bool { return r.Held[whole] == other.Error() })
		r.For(time.Minute)
		if len(r.Assigned) > 0 {
			t.Fatal("something was assigned")
		}
		fault.Store(&none)
		r.Until("the records", func() bool { return r.Total() == 5 && len(r.Held) == 0 })
	}, kfake.SeedTopics(1, "orders"))
}

// The commit names the last segment, and reaches no topic of the same name.
func TestCaseD03Commit(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 20)
		r := w.open()
		p := r.Only()
		r.Until("all", func() bool { return r.Total() == 20 })
		w.check(r.Source.Commit(w.ctx, []sources.Position{{Partition: p, Next: 17, First: 10, LeaderEpoch: 0}}))
		wire := &wire{Client: w.client()}
		got := must(wire.committed(w.ctx, "g", must(wire.topology(w.ctx, []string{"orders"})).topics))
		if want := (commit{17, "twgd first=10"}); got[key{"orders", 0}] != want {
			t.Fatalf("committed %v, want %v", got, want)
		}
		other := p
		other.TopicID[0]++
		for _, q := range []record.Partition{other, {Cluster: "fake", Topic: "orders", TopicID: p.TopicID, Number: 1}} {
			if err := r.Source.Commit(w.ctx, []sources.Position{{Partition: q, Next: 1}}); err == nil {
				t.Fatalf("%+v was committed", q)
			}
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestOtherCluster(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open()
		r.Only()
		var foreign atomic.Bool
		foreign.Store(true)
		w.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if !foreign.Load() {
				return nil, nil, false
			}
			resp := req.(*kmsg.MetadataRequest).ResponseKind().(*kmsg.MetadataResponse)
			b := kmsg.NewMetadataResponseBroker()
			b.Host, b.Port = "localhost", 9092
			resp.Brokers, resp.ClusterID = []kmsg.MetadataResponseBroker{b}, kmsg.StringPtr("other")
			return resp, nil, true
		})
		whole := record.Partition{Cluster: "fake"}
		r.Until("a word", func() bool { return strings.Contains(r.Held[whole], `"other"`) })
		foreign.Store(false)
		w.produce("orders", 0, 0, 5)
		r.Until("the records", func() bool { return r.Total() == 5 && len(r.Held) == 0 })
	}, kfake.SeedTopics(1, "orders"))
}
