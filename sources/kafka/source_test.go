package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

func TestReads(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 50)
		r := w.open()
		p := r.only()
		if p.Cluster != "fake" || p.Topic != "orders" || p.TopicID == [16]byte{} {
			t.Fatalf("identity is %+v", p)
		}
		r.until("all records", func() bool { return len(r.values[p]) == 50 })
		w.produce("orders", 0, 50, 50)
		r.until("the later records", func() bool { return len(r.values[p]) == 100 && r.ends[p] == 100 })
		if !slices.Equal(r.values[p], numbers(0, 100)) {
			t.Fatalf("read %v", r.values[p])
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
		r.until("two partitions", func() bool { return r.total() == 10 })
		for p := range r.assigned {
			if p.Number == 1 {
				t.Fatal("partition 1 was read")
			}
			w.check(r.s.Commit(w.ctx, []sources.Position{{Partition: p, Next: 5}}))
		}
	}, kfake.SeedTopics(3, "orders"))
}

func TestPauseIsBounded(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open(func(o *Options) { o.Fetch.MaxBytes = 4 << 10 })
		r.only()
		r.s.Pause()
		for i := range 40 {
			w.produce("orders", 0, i*10, 10)
		}
		r.still(10 * time.Second)
		if r.total() != 0 {
			t.Fatalf("%d records came while paused", r.total())
		}
		if n := r.s.Buffered(); n == 0 || n > readyBytes {
			t.Fatalf("%d bytes are buffered", n)
		}
		r.s.Resume()
		r.until("the rest", func() bool { return r.total() == 400 })
	}, kfake.SeedTopics(1, "orders"))
}

func TestSeek(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 20)
		r := w.open()
		p := r.only()
		r.until("all", func() bool { return r.total() == 20 })
		before := r.assigned[p].Epoch
		r.values[p] = nil
		w.store(p, sources.Start{Next: 10, LeaderEpoch: -1, Stored: true})
		r.s.Seek(p, 15)
		r.until("the end again", func() bool { return len(r.values[p]) == 5 })
		if after := r.assigned[p]; after.Epoch <= before || after.Next != 15 {
			t.Fatalf("assigned as %+v after epoch %d", after, before)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestRejoin(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 20)
		r := w.open()
		r.until("all", func() bool { return r.total() == 20 })
		r.s.Rejoin()
		r.until("the revocation", func() bool { return slices.Contains(r.log, "-orders/0 true") })
		w.produce("orders", 0, 20, 20)
		r.until("the rest", func() bool { return r.total() == 40 })
		if want := []string{"+orders/0@0", "-orders/0 true", "+orders/0@20"}; !slices.Equal(r.log, want) {
			t.Fatalf("%v, want %v", r.log, want)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// A revoked partition waits for Done, and no longer than the bound.
func TestRevokedWaits(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 10)
		w.produce("orders", 1, 0, 10)
		a := w.open()
		a.until("all", func() bool { return a.total() == 20 })
		var revoked sources.Revoked
		a.revoked = func(e sources.Revoked) { revoked = e }
		b := w.open(func(o *Options) { o.Client = "node~2" })
		a.until("a revocation", func() bool { return len(revoked.Partitions) == 1 })
		at := time.Now()
		moved := revoked.Partitions[0]
		w.check(a.s.Commit(w.ctx, []sources.Position{{Partition: moved, Next: 10}})) // still ours
		b.until("the move", func() bool { _, ok := b.assigned[moved]; return ok })
		if waited := time.Since(at); waited < 4*time.Second || waited > 20*time.Second {
			t.Fatalf("the next owner waited %v", waited)
		}
		if err := a.s.Commit(w.ctx, []sources.Position{{Partition: moved, Next: 10}}); err == nil {
			t.Fatal("a commit of what is not ours was taken")
		}
		revoked.Done() // late: changes nothing
		w.produce("orders", moved.Number, 10, 5)
		b.until("the new owner's", func() bool { return len(b.values[moved]) == 5 })
		a.still(2 * time.Second)
		if len(a.values[moved]) != 10 {
			t.Fatalf("the old owner has %d records", len(a.values[moved]))
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
		a.until("a part", func() bool { return a.total() > 3*each })
		b := w.open(func(o *Options) { o.Client = "node~2" })
		for a.total()+b.total() < 7*each || len(b.assigned) == 0 {
			a.step(time.Second / 10)
			b.step(time.Second / 10)
		}
		for n := range int32(7) {
			w.produce("orders", n, each, 10)
		}
		for a.total()+b.total() < 7*(each+10) {
			a.step(time.Second / 10)
			b.step(time.Second / 10)
		}
		seen := map[record.Partition][]int64{}
		for _, r := range []*consumer{a, b} {
			for p, o := range r.offsets {
				seen[p] = append(seen[p], o...)
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
		r.until("all", func() bool { return r.total() == 10 })
		w.cluster.ControlKey(-1, away(15*time.Minute, w.cluster))
		r.still(14 * time.Minute)
		if !r.noticed("source_down") || r.noticed("source_up") {
			t.Fatalf("notices: %v", r.notices)
		}
		r.until("the return", func() bool { return r.noticed("source_up") })
		w.produce("orders", 0, 10, 10)
		r.until("the rest", func() bool { return r.total() == 20 })
		if down := slices.DeleteFunc(r.notices, func(n sources.Notice) bool { return n.Kind != "source_down" }); len(down) > 1 {
			t.Fatalf("told %d times: %v", len(down), down)
		}
	}, kfake.SeedTopics(1, "orders"))
}
