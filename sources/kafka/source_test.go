package kafka

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/sources/sourcetest"
)

func TestReads(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 50)
		r := w.open()
		p := r.Only()
		if p.Cluster != "fake" || p.Topic != "orders" || p.TopicID == [16]byte{} {
			t.Fatalf("identity is %+v", p)
		}
		r.Until("all records", func() bool { return len(r.Values[p]) == 50 })
		w.produce("orders", 0, 50, 50)
		r.Until("the later records", func() bool { return len(r.Values[p]) == 100 && r.Ends[p] == 100 })
		if !slices.Equal(r.Values[p], numbers(0, 100)) {
			t.Fatalf("read %v", r.Values[p])
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestPinned(t *testing.T) {
	bubble(t, func(w *world) {
		for n := range int32(3) {
			w.produce("orders", n, 0, 5)
		}
		r := w.open(func(o *Options) {
			o.Topics, o.Group, o.Partitions = nil, "", map[string][]int32{"orders": {0, 2}}
		})
		r.Until("two partitions", func() bool { return r.Total() == 10 })
		for p := range r.Assigned {
			if p.Number == 1 {
				t.Fatal("partition 1 was read")
			}
			w.check(r.Source.Commit(w.ctx, []sources.Position{{Partition: p, Next: 5}}))
		}
	}, kfake.SeedTopics(3, "orders"))
}

func TestPauseIsBounded(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open(func(o *Options) { o.Fetch.MaxBytes = 4 << 10 })
		r.Only()
		r.Source.Pause()
		for i := range 40 {
			w.produce("orders", 0, i*10, 10)
		}
		r.For(10 * time.Second)
		if r.Total() != 0 {
			t.Fatalf("%d records came while paused", r.Total())
		}
		if n := r.Source.(*Source).Buffered(); n == 0 || n > readyBytes {
			t.Fatalf("%d bytes are buffered", n)
		}
		r.Source.Resume()
		r.Until("the rest", func() bool { return r.Total() == 400 })
	}, kfake.SeedTopics(1, "orders"))
}

func TestSeek(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 20)
		r := w.open()
		p := r.Only()
		r.Until("all", func() bool { return r.Total() == 20 })
		before := r.Assigned[p].Epoch
		r.Values[p] = nil
		w.gate.Store(p, sources.Start{Next: 10, LeaderEpoch: -1, Stored: true})
		r.Source.Seek(p, 15)
		r.Until("the end again", func() bool { return len(r.Values[p]) == 5 })
		if after := r.Assigned[p]; after.Epoch <= before || after.Next != 15 {
			t.Fatalf("assigned as %+v after epoch %d", after, before)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestRejoin(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 20)
		r := w.open()
		r.Until("all", func() bool { return r.Total() == 20 })
		r.Source.Rejoin()
		r.Until("the revocation", func() bool { return slices.Contains(r.Log, "-orders/0 lost=true") })
		w.produce("orders", 0, 20, 20)
		r.Until("the rest", func() bool { return r.Total() == 40 })
		if want := []string{"+orders/0@0", "-orders/0 lost=true", "+orders/0@20"}; !slices.Equal(r.Log, want) {
			t.Fatalf("%v, want %v", r.Log, want)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// A revoked partition waits for Done, and no longer than the bound.
func TestRevokedWaits(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 10)
		w.produce("orders", 1, 0, 10)
		a := w.open()
		a.Until("all", func() bool { return a.Total() == 20 })
		var revoked sources.Revoked
		a.Revoked = func(e sources.Revoked) { revoked = e }
		b := w.open(func(o *Options) { o.Client = "node~2" })
		a.Until("a revocation", func() bool { return len(revoked.Partitions) == 1 })
		at := time.Now()
		moved := revoked.Partitions[0]
		w.check(a.Source.Commit(w.ctx, []sources.Position{{Partition: moved, Next: 10}})) // still ours
		b.Until("the move", func() bool { _, ok := b.Assigned[moved]; return ok })
		if waited := time.Since(at); waited < 4*time.Second || waited > 20*time.Second {
			t.Fatalf("the next owner waited %v", waited)
		}
		if err := a.Source.Commit(w.ctx, []sources.Position{{Partition: moved, Next: 10}}); err == nil {
			t.Fatal("a commit of what is not ours was taken")
		}
		revoked.Done() // late: changes nothing
		w.produce("orders", moved.Number, 10, 5)
		b.Until("the new owner's", func() bool { return len(b.Values[moved]) == 5 })
		a.For(2 * time.Second)
		if len(a.Values[moved]) != 10 {
			t.Fatalf("the old owner has %d records", len(a.Values[moved]))
		}
	}, kfake.SeedTopics(2, "orders"))
}

func TestCaseD02(t *testing.T) {
	bubble(t, func(w *world) {
		const each = 150
		for n := range int32(7) {
			w.produce("orders", n, 0, each)
		}
		a := w.open()
		a.Until("a part", func() bool { return a.Total() > 3*each })
		b := w.open(func(o *Options) { o.Client = "node~2" })
		for a.Total()+b.Total() < 7*each || len(b.Assigned) == 0 {
			a.Step(time.Second / 10)
			b.Step(time.Second / 10)
		}
		for n := range int32(7) {
			w.produce("orders", n, each, 10)
		}
		for a.Total()+b.Total() < 7*(each+10) {
			a.Step(time.Second / 10)
			b.Step(time.Second / 10)
		}
		seen := map[record.Partition][]int64{}
		for _, r := range []*sourcetest.Reader{a, b} {
			for p := range r.Records {
				seen[p] = append(seen[p], r.Offsets(p)...)
			}
		}
		for p, o := range seen {
			slices.Sort(o)
			if len(o) != each+10 || len(slices.Compact(o)) != each+10 {
				t.Fatalf("%s has %d offsets", p, len(o))
			}
		}
	}, kfake.SeedTopics(7, "orders"))
}

func TestBrokerAway(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 10)
		r := w.open()
		r.Until("all", func() bool { return r.Total() == 10 })
		w.cluster.ControlKey(-1, away(15*time.Minute, w.cluster))
		r.For(14 * time.Minute)
		if !r.Noticed("source_down") || r.Noticed("source_up") {
			t.Fatalf("notices: %v", r.Notices)
		}
		r.Until("the return", func() bool { return r.Noticed("source_up") })
		w.produce("orders", 0, 10, 10)
		r.Until("the rest", func() bool { return r.Total() == 20 })
		if down := slices.DeleteFunc(r.Notices, func(n sources.Notice) bool { return n.Kind != "source_down" }); len(down) > 1 {
			t.Fatalf("told %d times: %v", len(down), down)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// What Next tells is the receiver's to log: the source has nothing to add.
func TestTellsOnce(t *testing.T) {
	bubble(t, func(w *world) {
		var log bytes.Buffer
		r := w.open(func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		p := r.Only()
		w.check(w.cluster.DeleteTopic("orders"))
		r.Until("a hold", func() bool { return r.Held[p] != "" })
		w.check(w.cluster.CreateTopic("orders", 1, nil))
		r.Until("a notice", func() bool { return r.Noticed("topic_recreated") })
		w.cluster.ControlKey(-1, away(time.Minute, w.cluster))
		r.Until("the return", func() bool { return r.Noticed("source_down") && r.Noticed("source_up") })
		synctest.Wait()
		if log.Len() > 0 {
			t.Fatalf("logged: %s", &log)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// A broker that does not answer keeps nobody from leaving within his time.
func TestCloseWhileAway(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open()
		r.Only()
		w.cluster.ControlKey(-1, func(kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			return nil, nil, true // never answered
		})
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		defer cancel()
		at := time.Now()
		if err := r.Source.Close(ctx); err == nil {
			t.Error("leaving succeeded")
		}
		if took := time.Since(at); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
	}, kfake.SeedTopics(1, "orders"))
}
