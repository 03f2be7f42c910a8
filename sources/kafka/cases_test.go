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
		p := r.only()
		r.until("the end", func() bool { return r.next[p] == 11 })
		if want := []int64{0, 1, 4, 9, 10}; !slices.Equal(r.offsets[p], want) || len(r.gaps) > 0 {
			t.Fatalf("offsets %v gaps %v, want %v", r.offsets[p], r.gaps, want)
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
				p := r.only()
				r.until("lag 0", func() bool { return r.next[p] == 7 && r.ends[p] == 7 })
				if !slices.Equal(r.values[p], want) || len(r.gaps) > 0 {
					t.Fatalf("read %v gaps %v, want %v", r.values[p], r.gaps, want)
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
		p := r.only()
		r.until("what is decided", func() bool { return r.next[p] == 2 && r.ends[p] == 2 })
		r.still(10 * time.Second)
		if r.next[p] != 2 {
			t.Fatalf("the position passed the open transaction: %d", r.next[p])
		}
		w.check(cl.EndTransaction(w.ctx, kgo.TryAbort))
		r.until("the rest", func() bool { return r.next[p] == 5 })
		if want := []string{"a0", "7"}; !slices.Equal(r.values[p], want) {
			t.Fatalf("read %v, want %v", r.values[p], want)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// Markers and compacted offsets below the log's start are no gap when the position lies behind them.
func TestCaseD23(t *testing.T) {
	bubble(t, func(w *world) {
		cl := w.client(kgo.TransactionalID("tx"))
		transact(w, cl, kgo.TryCommit, "0", "1")
		r := w.open()
		p := r.only()
		r.until("the marker too", func() bool { return r.next[p] == 3 })
		r.s.Rejoin()
		w.check(w.cluster.DeleteRecords("orders", 0, 3))
		r.until("the new assignment", func() bool { return len(r.log) == 3 })
		r.still(10 * time.Second)
		if len(r.gaps) > 0 || len(r.held) > 0 || r.log[2] != "+orders/0@3" {
			t.Fatalf("gaps %v held %v log %v", r.gaps, r.held, r.log)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestCaseD24(t *testing.T) {
	f := func(name string, change func(*Options)) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.produce("orders", 0, 0, 50)
				r := w.open(change)
				old := r.only()
				r.until("the old ones", func() bool { return len(r.values[old]) == 50 })
				w.check(w.cluster.DeleteTopic("orders"))
				w.check(w.cluster.CreateTopic("orders", 1, nil))
				w.produce("orders", 0, 0, 10)
				at := time.Now()
				r.until("the new ones", func() bool { return r.total() == 60 })
				if took := time.Since(at); took > 15*time.Second {
					t.Fatalf("it took %v", took)
				}
				fresh := r.only()
				if fresh.TopicID == old.TopicID || !slices.Equal(r.values[fresh], numbers(0, 10)) || !r.noticed("topic_recreated") {
					t.Fatalf("new %+v old %+v values %v notices %v", fresh, old, r.values[fresh], r.notices)
				}
				if want := []string{"+orders/0@0", "-orders/0 true", "+orders/0@0"}; !slices.Equal(r.log, want) || len(r.gaps)+len(r.held) > 0 {
					t.Fatalf("log %v gaps %v held %v", r.log, r.gaps, r.held)
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
		p := r.only()
		r.until("the old ones", func() bool { return r.total() == 5 })
		w.check(w.cluster.DeleteTopic("orders"))
		r.until("a word", func() bool { return r.noticed("topic_missing") && r.held[p] != "" })
		w.check(w.cluster.CreateTopic("orders", 2, nil))
		w.produce("orders", 1, 0, 5)
		r.until("the new ones", func() bool { return r.total() == 10 && len(r.assigned) == 2 })
		if len(r.held) > 0 {
			t.Fatalf("held: %v", r.held)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestCaseD25(t *testing.T) {
	t.Run("continue", func(t *testing.T) {
		bubble(t, func(w *world) {
			r := retained(w, GapContinue)
			p := r.only()
			r.until("the rest", func() bool { return r.next[p] == 600 })
			if want := []string{"orders/0 [100, 500) retention"}; !slices.Equal(r.gaps, want) || len(r.values[p]) != 100 || r.values[p][0] != "500" {
				t.Fatalf("gaps %v values %v", r.gaps, r.values[p])
			}
		}, kfake.SeedTopics(1, "orders"))
	})
	t.Run("stop", func(t *testing.T) {
		bubble(t, func(w *world) {
			r := retained(w, GapStop)
			p := r.only()
			r.until("a word", func() bool { return strings.Contains(r.held[p], "[100, 500)") })
			r.still(time.Minute)
			if r.next[p] != 100 || len(r.gaps) > 0 {
				t.Fatalf("next %d gaps %v", r.next[p], r.gaps)
			}
			w.store(p, sources.Start{Next: 500, LeaderEpoch: -1, Stored: true}) // an operator wrote the gap
			r.s.Seek(p, 500)
			r.until("the rest", func() bool { return r.next[p] == 600 })
			if len(r.held) > 0 {
				t.Fatalf("held: %v", r.held)
			}
		}, kfake.SeedTopics(1, "orders"))
	})
}

func retained(w *world, onGap string) *consumer {
	w.produce("orders", 0, 0, 600)
	w.check(w.cluster.DeleteRecords("orders", 0, 500))
	w.store(w.identity("orders", 0), sources.Start{Next: 100, LeaderEpoch: 0, Stored: true})
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
		p := r.only()
		r.until("the first", func() bool { return r.total() == 10 })
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
		r.until("the rest", func() bool { return r.next[p] == 30 })
		if want := []string{"orders/0 [10, 25) retention"}; !slices.Equal(r.gaps, want) || r.total() != 15 {
			t.Fatalf("gaps %v values %v", r.gaps, r.values[p])
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestCaseD26(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 5)
		r := w.open(func(o *Options) { o.Topics, o.TopicsRegex, o.Start = nil, "^orders", StartLatest })
		r.only()
		r.still(time.Second)
		w.partitions("orders", 4)
		w.check(w.cluster.CreateTopic("orders.eu", 1, nil))
		w.check(w.cluster.CreateTopic("others", 1, nil))
		w.produce("orders", 3, 0, 10)
		w.produce("orders.eu", 0, 0, 10)
		w.produce("others", 0, 0, 10)
		r.until("both", func() bool { return r.total() == 20 && len(r.assigned) == 5 })
		r.still(30 * time.Second)
		if r.total() != 20 {
			t.Fatalf("read %v", r.values)
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
				w.store(w.identity("orders", 0), sources.Start{Next: 200, LeaderEpoch: 0, Stored: true})
				r := w.open()
				p := r.only()
				r.until("the rest", func() bool { return r.next[p] == 210 })
				r.still(time.Second)
				got := ""
				for _, n := range r.notices {
					got += n.Kind + " " + n.Span.String()
				}
				if got != want || !slices.Equal(r.values[p], numbers(200, 210)) {
					t.Fatalf("notices %v, want %q; values %v", r.notices, want, r.values[p])
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
	w.check(commitError(resp, err))
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
		a.only()
		a.close() // before it read anything
		clear(w.gate)
		w.produce("orders", 0, 7, 10)
		b := w.open(keep)
		p := b.only()
		b.until("all ten", func() bool { return b.total() == 10 })
		if b.log[0] != "+orders/0@7" || !slices.Equal(b.values[p], numbers(7, 17)) {
			t.Fatalf("log %v values %v", b.log, b.values[p])
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
				r.only()
				if r.log[0] != want {
					t.Fatalf("%v, want %v", r.log, want)
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
		r.until("a word", func() bool { return r.held[whole] == other.Error() })
		r.still(time.Minute)
		if len(r.assigned) > 0 {
			t.Fatal("something was assigned")
		}
		fault.Store(&none)
		r.until("the records", func() bool { return r.total() == 5 && len(r.held) == 0 })
	}, kfake.SeedTopics(1, "orders"))
}

func TestCaseD34(t *testing.T) {
	f := func(name string, next int64, epoch int32, answer func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition), want string) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.produce("orders", 0, 0, 100)
				w.store(w.identity("orders", 0), sources.Start{Next: next, LeaderEpoch: epoch, Stored: true})
				var healed atomic.Bool
				w.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
					w.cluster.KeepControl()
					if answer == nil {
						return nil, nil, false
					}
					set := answer
					if healed.Load() {
						set = func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset = 150 }
					}
					return epochAnswer(req.(*kmsg.OffsetForLeaderEpochRequest), set), nil, true
				})
				r := w.open()
				p := r.only()
				r.until("a word", func() bool { return strings.Contains(r.held[p], want) })
				w.produce("orders", 0, 100, 50)
				r.still(time.Minute)
				if answer != nil && (r.total() > 0 || len(r.gaps) > 0) {
					t.Fatalf("read %v gaps %v", r.values, r.gaps)
				}
				healed.Store(true)
				r.until("the end of it", func() bool { return len(r.held) == 0 && r.next[p] == 150 })
			}, kfake.SeedTopics(1, "orders"))
		})
	}
	f("the epoch ends below", 80, 0, func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset = 60 }, "ends at offset 60")
	f("the epoch is not known", 80, 0, func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset, p.LeaderEpoch = -1, -1 }, "knows nothing of leader epoch")
	f("a lower epoch", 80, 3, func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset, p.LeaderEpoch = 100, 2 }, "no epoch above 2")
	f("the log ends below", 140, -1, nil, "ends at offset 100, below our position 140")
}

func epochAnswer(req *kmsg.OffsetForLeaderEpochRequest, set func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition)) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	p.LeaderEpoch = req.Topics[0].Partitions[0].LeaderEpoch
	set(&p)
	t := kmsg.NewOffsetForLeaderEpochResponseTopic()
	t.Topic, t.Partitions = req.Topics[0].Topic, []kmsg.OffsetForLeaderEpochResponseTopicPartition{p}
	resp.Topics = append(resp.Topics, t)
	return resp
}

// The leader changes while the partition is read: the log is compared before anything of the new leader's is taken.
func TestCaseD34UnderWay(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 20)
		r := w.open()
		p := r.only()
		r.until("all", func() bool { return r.total() == 20 })
		var diverged atomic.Bool
		diverged.Store(true)
		w.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			return epochAnswer(req.(*kmsg.OffsetForLeaderEpochRequest), func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset = 15 }), nil, diverged.Load()
		})
		w.check(w.cluster.MoveTopicPartition("orders", 0, 1-w.cluster.LeaderFor("orders", 0)))
		w.produce("orders", 0, 20, 20)
		r.until("a word", func() bool { return strings.Contains(r.held[p], "diverged") })
		r.still(time.Minute)
		if r.total() != 20 {
			t.Fatalf("%d records were read", r.total())
		}
		diverged.Store(false)
		r.until("the rest", func() bool { return r.total() == 40 && len(r.held) == 0 })
	}, kfake.SeedTopics(1, "orders"), kfake.NumBrokers(2), kfake.Ports(9092, 9093))
}

// A leader that moves honestly costs nothing.
func TestLeaderMoves(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open()
		p := r.only()
		for i := range 6 {
			w.produce("orders", 0, i*10, 10)
			r.until("ten more", func() bool { return r.total() == i*10+10 })
			w.check(w.cluster.MoveTopicPartition("orders", 0, 1-w.cluster.LeaderFor("orders", 0)))
		}
		if !slices.Equal(r.values[p], numbers(0, 60)) || len(r.gaps)+len(r.held)+len(r.notices) > 0 {
			t.Fatalf("values %v gaps %v held %v notices %v", r.values[p], r.gaps, r.held, r.notices)
		}
	}, kfake.SeedTopics(1, "orders"), kfake.NumBrokers(2), kfake.Ports(9092, 9093))
}

// The commit names the last segment, and reaches no topic of the same name.
func TestCaseD03Commit(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 20)
		r := w.open()
		p := r.only()
		r.until("all", func() bool { return r.total() == 20 })
		w.check(r.s.Commit(w.ctx, []sources.Position{{Partition: p, Next: 17, First: 10, LeaderEpoch: 0}}))
		wire := &wire{Client: w.client()}
		got := must(wire.committed(w.ctx, "g", must(wire.topology(w.ctx, []string{"orders"})).topics))
		if want := (commit{17, "twgd first=10"}); got[key{"orders", 0}] != want {
			t.Fatalf("committed %v, want %v", got, want)
		}
		other := p
		other.TopicID[0]++
		for _, q := range []record.Partition{other, {Cluster: "fake", Topic: "orders", TopicID: p.TopicID, Number: 1}} {
			if err := r.s.Commit(w.ctx, []sources.Position{{Partition: q, Next: 1}}); err == nil {
				t.Fatalf("%+v was committed", q)
			}
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestOtherCluster(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open()
		r.only()
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
		r.until("a word", func() bool { return strings.Contains(r.held[whole], `"other"`) })
		foreign.Store(false)
		w.produce("orders", 0, 0, 5)
		r.until("the records", func() bool { return r.total() == 5 && len(r.held) == 0 })
	}, kfake.SeedTopics(1, "orders"))
}

func TestCheck(t *testing.T) {
	f := func(name string, change func(*Options), want string, opts ...kfake.Opt) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				o := w.options()
				change(&o)
				err := Check(w.ctx, o)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Fatalf("%v, want %q", err, want)
				}
			}, append([]kfake.Opt{kfake.SeedTopics(2, "orders")}, opts...)...)
		})
	}
	f("good", func(*Options) {}, "")
	f("a pattern", func(o *Options) { o.Topics, o.TopicsRegex = nil, "^later" }, "")
	f("no topic", func(o *Options) { o.Topics = []string{"orders", "absent"} }, "the topic absent does not exist")
	f("no partition", func(o *Options) { o.Topics, o.Group, o.Partitions = nil, "", map[string][]int32{"orders": {0, 5}} }, "no partition 5")
	f("no broker", func(o *Options) { o.Brokers = []string{"localhost:1"} }, "no listener on port 1")
	f("wrong password", func(o *Options) { o.SASL = SASLOptions{"SCRAM-SHA-256", "admin", "wrong"} }, "cannot be reached: EOF", kfake.EnableSASL()) // a real broker says more
	f("right password", func(o *Options) { o.SASL = SASLOptions{"SCRAM-SHA-256", "admin", "admin"} }, "", kfake.EnableSASL())
	read := kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	group := kfake.ACL{Resource: kmsg.ACLResourceTypeGroup, Name: "g", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	plain := func(o *Options) { o.SASL = SASLOptions{"PLAIN", "user", "pw"} }
	f("all rights", plain, "", kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "user", "pw", read, group))
	f("no right to the topic", plain, "TOPIC_AUTHORIZATION_FAILED", kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "user", "pw", group))
	f("no right to the group", plain, "GROUP_AUTHORIZATION_FAILED", kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "user", "pw", read))
}

// What keeps us from connecting is named, not the deadline that it ran into.
func TestWrongPassword(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open(func(o *Options) { o.SASL = SASLOptions{"PLAIN", "user", "wrong"} })
		r.until("a word", func() bool { return r.noticed("source_down") })
		if text := r.notices[0].Text; !strings.Contains(text, "EOF") || strings.Contains(text, "deadline") {
			t.Fatalf("it says %q", text)
		}
	}, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.User("PLAIN", "user", "pw"), kfake.Superuser("PLAIN", "admin", "admin"))
}

func TestGroupDenied(t *testing.T) {
	read := kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	bubble(t, func(w *world) {
		r := w.open(func(o *Options) { o.SASL = SASLOptions{"PLAIN", "user", "pw"} })
		r.until("a word", func() bool { return r.noticed("source_down") })
		if text := r.notices[0].Text; !strings.Contains(text, "GROUP_AUTHORIZATION_FAILED") {
			t.Fatalf("it says %q", text)
		}
	}, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "user", "pw", read))
}
