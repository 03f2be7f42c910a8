package recovery_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
)

// writeWhileAway lets one process store [0, next) of each partition while its sink takes nothing, and ends it.
func (s *site) writeWhileAway(next int64, partitions ...record.Partition) {
	s.Helper()
	s.table.Fault(on("commit", away))
	p := s.start(options{node: "writer", watch: true})
	for _, q := range partitions {
		e := s.assign(q)
		for o := int64(0); o < next; o += 20 {
			s.src.Poll(q, e, o, min(o+20, next))
			time.Sleep(200 * time.Millisecond)
		}
	}
	s.end(p)
	s.table.Fault(nil)
	s.src = pipetest.NewScript()
}

// Any node recovers any partition, also of what nobody reads any more, and three of them share the work: each window is carried once,
// and a fleet without a source does as well as one with.
func TestSharedAgentsShareTheWork(t *testing.T) {
	for _, files := range []bool{false, true} {
		onSite(t, files, func(s *site) {
			s.writeWhileAway(600, orders, bills)
			s.table.Fault(func(ctx context.Context, op string) error {
				if op == "commit" {
					return pause(ctx, time.Second)
				}
				return nil
			})
			loads := s.table.Calls("begin")
			var fleet []*process
			for _, node := range []string{"a", "b", "c"} {
				fleet = append(fleet, s.start(options{node: node, reader: true}))
			}
			time.Sleep(3 * time.Minute)
			s.complete(orders, 600)
			s.complete(bills, 600)
			windows := 24
			if files {
				windows = len(s.table.Names(orders)) + len(s.table.Names(bills))
			}
			if n := s.table.Calls("begin") - loads; n != windows {
				t.Errorf("files %v: %d windows were carried in %d loads", files, windows, n)
			}
			for _, p := range fleet {
				m := p.metrics()
				if m["done"] < 4 || m["failed"]+m["stale"]+m["lost"] > 0 {
					t.Errorf("files %v: %s did %v", files, p.claims.node, m)
				}
				s.end(p)
			}
			if live := s.leases.live(); len(live) > 0 || len(s.leases.never) > 0 {
				t.Errorf("leases are left: %v, %v", live, s.leases.never)
			}
		})
	}
}

// Invariant 27 across nodes: what a lane of another process may still write is left alone, by nodes that read nothing too.
func TestSharedAgentLeavesYoungAlone(t *testing.T) {
	for _, files := range []bool{false, true} {
		onSite(t, files, func(s *site) {
			writer := s.start(options{node: "writer", watch: true, lane: pipeline.LaneOptions{Roll: pipeline.Roll{Age: 8 * time.Second}}})
			other := s.start(options{node: "other", reader: true})
			e := s.assign(orders)
			time.Sleep(time.Minute)
			for o := int64(0); o < 3000; o += 10 { // five minutes, at the pace of the lane
				s.src.Poll(orders, e, o, o+10)
				time.Sleep(time.Second)
			}
			time.Sleep(10 * time.Second)
			s.complete(orders, 3000)
			if m := other.metrics(); m["done"]+m["covered"]+m["failed"] > 0 {
				t.Errorf("files %v: nothing was missing, and the other did %v", files, m)
			}
			s.table.Fault(on("add", away)) // the writer's lane gives this up at once
			s.src.Poll(orders, e, 3000, 3010)
			time.Sleep(time.Second)
			s.table.Fault(nil)
			stored := time.Now()
			for len(s.table.Rows(orders)) < rowsIn(3010) && time.Since(stored) < 5*time.Minute {
				time.Sleep(time.Second)
			}
			if took := time.Since(stored); took < 28*time.Second || took > 2*time.Minute {
				t.Errorf("files %v: the other filled the gap after %v; deadline and margin are 30 s", files, took)
			}
			s.complete(orders, 3010)
			s.end(other)
			s.end(writer)
		})
	}
}

func rowsIn(next int64) (n int) {
	for o := range next {
		if pipetest.Present(o) {
			n++
		}
	}
	return n
}

// K17, for what concerns the sink: A claims a window and is paused for twice the time that the claim lasts, in the middle of its commit;
// B takes the window and completes; A goes on. Its completion is refused and counted, and every row is there once.
func TestCaseK17PausedAgentIsHarmless(t *testing.T) {
	for _, files := range []bool{false, true} {
		onSite(t, files, func(s *site) {
			s.writeWhileAway(50, orders)
			let, stopped := make(chan struct{}), make(chan struct{})
			var met atomic.Bool
			s.table.Fault(func(_ context.Context, op string) error {
				if op == "commit" && !met.Swap(true) {
					close(stopped)
					<-let
				}
				return nil
			})
			a := s.start(options{node: "a", reader: true})
			<-stopped
			a.claims.pause(true)
			b := s.start(options{node: "b", reader: true})
			time.Sleep(2 * s.leases.ttl)
			for range 30 {
				time.Sleep(time.Second)
			}
			if m := b.metrics(); m["done"] != 1 {
				t.Errorf("files %v: b did %v", files, m)
			}
			s.complete(orders, 50)
			close(let)
			a.claims.pause(false)
			synctest.Wait()
			if m := a.metrics(); m["stale"] != 1 || m["done"]+m["failed"] > 0 {
				t.Errorf("files %v: a did %v", files, m)
			}
			time.Sleep(time.Minute)
			s.complete(orders, 50)
			if names := s.table.Names(orders); files && len(names) != 1 {
				t.Errorf("files %v", names)
			}
			s.end(a)
			s.end(b)
		})
	}
}

// An agent whose claim is lost stops in the middle and leaves the window, without a fault to show; it is filled all the same.
func TestLostClaimIsLeft(t *testing.T) {
	onSite(t, false, func(s *site) {
		s.writeWhileAway(50, orders)
		var fast atomic.Bool
		s.table.Fault(func(ctx context.Context, op string) error {
			if op == "commit" && !fast.Load() {
				return pause(ctx, time.Hour)
			}
			return nil
		})
		a := s.start(options{node: "a", reader: true})
		for len(s.leases.live()) == 0 {
			time.Sleep(time.Second)
		}
		s.leases.lose()
		time.Sleep(s.leases.ttl)
		if m := a.metrics(); m["lost"] != 1 || m["failed"] > 0 || a.lane.Status().State != "live" || a.agent.Backlog().LastError != "" {
			t.Errorf("%v, %+v, %+v", m, a.lane.Status(), a.agent.Backlog())
		}
		fast.Store(true)
		s.leases.lose()
		time.Sleep(2 * time.Minute)
		s.complete(orders, 50)
		s.end(a)
	})
}

// An agent dies with its claim; another waits that out, and does its work.
func TestDeadAgentIsReplaced(t *testing.T) {
	onSite(t, true, func(s *site) {
		s.writeWhileAway(200, orders)
		s.table.Fault(func(ctx context.Context, op string) error {
			if op == "commit" {
				return pause(ctx, time.Hour)
			}
			return nil
		})
		a := s.start(options{node: "a", reader: true})
		for len(s.leases.live()) == 0 {
			time.Sleep(time.Second)
		}
		a.claims.kill()
		s.end(a)
		s.table.Fault(nil)
		b := s.start(options{node: "b", reader: true})
		time.Sleep(2 * time.Minute)
		s.complete(orders, 200)
		s.end(b)
	})
}

// While nobody can claim, recovery waits with growing pauses, and says why; the backlog is known all the same.
func TestWithoutClaimsRecoveryWaits(t *testing.T) {
	onSite(t, false, func(s *site) {
		s.writeWhileAway(200, orders)
		s.leases.away(true)
		a := s.start(options{node: "a", reader: true})
		time.Sleep(time.Hour)
		if n := s.leases.asked(); n < 100 || n > 260 {
			t.Errorf("%d claims were tried in an hour", n)
		}
		if b := a.agent.Backlog(); b.Windows != 4 || b.Records != 200 || !strings.Contains(b.LastError, "no leader") {
			t.Errorf("%+v", b)
		}
		s.leases.away(false)
		time.Sleep(time.Minute)
		s.complete(orders, 200)
		s.end(a)
	})
}

// One node shows the backlog, which is that of all partitions; when another is elected the first one's series are gone.
func TestOneSpeaksForAll(t *testing.T) {
	onSite(t, false, func(s *site) {
		s.writeWhileAway(200, orders, bills)
		s.table.Fault(on("commit", away))
		a := s.start(options{node: "a", reader: true, watch: true})
		b := s.start(options{node: "b", reader: true, watch: true})
		resign := s.speak(a)
		time.Sleep(2 * time.Minute)
		shown := a.metrics()
		size := 0
		for _, k := range s.bucket.Keys() {
			if strings.HasSuffix(k, ".avro") {
				size += len(s.bucket.Get(k))
			}
		}
		if shown["windows"] != 8 || shown["records"] != 400 || shown["oldest_seconds"] < 120 {
			t.Errorf("a shows %v", shown)
		}
		if got := int(shown["bytes"]); got < size*8/10 || got > size*12/10 {
			t.Errorf("%d bytes of %d", got, size)
		}
		if m := b.metrics(); len(m) > 0 {
			t.Errorf("b shows %v", m)
		}
		resign()
		if m := a.metrics(); len(m) > 0 {
			t.Errorf("a still shows %v", m)
		}
		resign = s.speak(b)
		if m := b.metrics(); m["windows"] != 8 || m["records"] != 400 {
			t.Errorf("b shows %v", m)
		}
		s.table.Fault(nil)
		c := s.start(options{node: "c", reader: true})
		time.Sleep(2 * time.Minute)
		if m := b.metrics(); m["windows"] != 0 || m["records"] != 0 || m["bytes"] != 0 || m["oldest_seconds"] != 0 || len(m) != 4 {
			t.Errorf("nothing is behind, and b shows %v", m)
		}
		resign()
		for _, p := range []*process{a, b, c} {
			s.end(p)
		}
	})
}

// A sink that does not answer from the start hides no backlog: the copies of coverage know it.
func TestBacklogOfASinkThatIsAway(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(options{node: "writer"})
		resign := s.speak(p)
		e := s.assign(orders)
		for o := int64(0); o < 200; o += 20 {
			s.src.Poll(orders, e, o, o+20)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		s.table.Fault(func(context.Context, string) error { return away })
		for o := int64(200); o < 300; o += 20 {
			s.src.Poll(orders, e, o, o+20)
			time.Sleep(time.Second)
		}
		resign()
		s.end(p)
		s.src = pipetest.NewScript()
		q := s.start(options{node: "q", reader: true})
		resign = s.speak(q)
		time.Sleep(time.Minute)
		if m := q.metrics(); m["windows"] != 2 || m["records"] != 100 {
			t.Errorf("shown is %v", m)
		}
		s.table.Fault(nil)
		time.Sleep(time.Minute)
		s.complete(orders, 300)
		resign()
		s.end(q)
	})
}

// What copies say never hides a gap from a sink that was asked: a table that was emptied is filled again after a restart.
func TestCopiesHideNothing(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(options{node: "writer"})
		resign := s.speak(p)
		e := s.assign(orders)
		for o := int64(0); o < 200; o += 20 {
			s.src.Poll(orders, e, o, o+20)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		resign()
		s.end(p)
		if set, err := coverage.Merged(s.Context(), s.bucket, "s", "t"); err != nil || set[orders].String() != "[0, 200)" {
			t.Fatalf("%v, %v", set, err)
		}
		s.table, s.src = pipetest.NewTable(false), pipetest.NewScript()
		q := s.start(options{node: "q", reader: true})
		time.Sleep(2 * time.Minute)
		s.complete(orders, 200)
		s.end(q)
	})
}

// Where nothing is missing little is asked, however many nodes look: of the sink nothing, of raw what tells that nothing has come.
func TestSharedSteadyStateAsksLittle(t *testing.T) {
	for _, files := range []bool{false, true} {
		onSite(t, files, func(s *site) {
			p := s.start(options{node: "writer"})
			q := s.start(options{node: "q", reader: true})
			resign := s.speak(p)
			e := s.assign(orders)
			s.src.Poll(orders, e, 0, 100)
			time.Sleep(20 * time.Minute)
			f := func(what string, most map[string]int, during func()) {
				t.Helper()
				before := map[string]int{}
				for op := range most {
					before[op] = s.bucket.Calls(op)
				}
				asked := s.table.Calls("coverage")
				during()
				for op, n := range most {
					if got := s.bucket.Calls(op) - before[op]; got > n {
						t.Errorf("files %v, %s: %d calls of %s in an hour, want at most %d", files, what, got, op, n)
					}
				}
				if n := s.table.Calls("coverage") - asked; n > 0 {
					t.Errorf("files %v, %s: the sink was asked %d times", files, what, n)
				}
			}
			f("idle", map[string]int{"create": 0, "read": 130, "list": 240, "dirs": 500}, func() { time.Sleep(time.Hour) })
			f("busy", map[string]int{"list": 3000, "read": 3000}, func() {
				for o := int64(100); o < 3700; o += 10 {
					s.src.Poll(orders, e, o, o+10)
					time.Sleep(10 * time.Second)
				}
			})
			s.complete(orders, 3700)
			resign()
			s.end(q)
			s.end(p)
		})
	}
}

// Damage of one chain keeps no other from being found.
func TestSurveyBesideDamage(t *testing.T) {
	onSite(t, false, func(s *site) {
		s.writeWhileAway(50, orders, bills)
		if err := s.bucket.Delete(s.Context(), "s/"+orders.Path()+"/_genesis"); err != nil {
			t.Fatal(err)
		}
		p := s.start(options{node: "a", reader: true})
		resign := s.speak(p)
		time.Sleep(time.Minute)
		s.complete(bills, 50)
		if m := p.metrics(); !p.survey.Whole() || m["windows"] != 0 || len(m) != 5 {
			t.Errorf("%v", m)
		}
		resign()
		s.end(p)
	})
}

// A chain that has come, one that grows, one that is assigned, and one that is taken away.
func TestSurveyFollows(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(options{node: "writer", watch: true})
		q := s.start(options{node: "q", reader: true, watch: true})
		f := func(of *process, want string) {
			t.Helper()
			var got []string
			for id, e := range of.survey.Extents(s.Context()) {
				got = append(got, fmt.Sprintf("%s [%d,%d,%d)", id.Topic, e.Genesis, e.Begin, e.Next))
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("%v, want %s", got, want)
			}
		}
		f(q, "")
		e := s.assign(orders)
		s.src.Poll(orders, e, 0, 30)
		time.Sleep(40 * time.Second)
		f(p, "orders [0,0,30)")
		f(q, "orders [0,30,30)")
		s.src.Poll(orders, e, 30, 70)
		time.Sleep(40 * time.Second)
		f(q, "orders [0,70,70)")
		<-s.src.Revoke(false, orders)
		time.Sleep(40 * time.Second)
		f(p, "orders [0,70,70)")
		for _, k := range s.bucket.Keys() {
			if strings.HasPrefix(k, "s/"+orders.Path()) {
				_ = s.bucket.Delete(s.Context(), k)
			}
		}
		time.Sleep(40 * time.Second)
		f(q, "")
		s.end(q)
		s.end(p)
	})
}

// A forced replay writes what coverage claims to be there, and waits for whoever has the window.
func TestForceOverClaims(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(options{node: "writer"})
		e := s.assign(orders)
		s.src.Poll(orders, e, 0, 50)
		time.Sleep(time.Minute)
		other := &client{of: s.leases, node: "other"}
		held, ok, err := other.Claim(s.Context(), "recovery/s/t/"+orders.Path()+"/"+record.OffsetName(0))
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		begun, done := s.table.Calls("begin"), make(chan error, 1)
		go func() { done <- p.agent.Force(s.Context(), orders, sp(0, 50), func(int, int) {}) }()
		time.Sleep(30 * time.Second)
		if n := s.table.Calls("begin") - begun; n > 0 {
			t.Errorf("%d loads while another has the window", n)
		}
		held.Release(s.Context())
		if err := <-done; err != nil || s.table.Calls("begin")-begun != 1 {
			t.Errorf("%v, %d loads", err, s.table.Calls("begin")-begun)
		}
		s.complete(orders, 50)
		s.end(p)
	})
}

func TestLocalClaims(t *testing.T) {
	var l recovery.Local
	ctx := t.Context()
	one, ok, err := l.Claim(ctx, "w")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, _ := l.Claim(ctx, "w"); ok {
		t.Error("claimed twice")
	}
	if two, ok, _ := l.Claim(ctx, "v"); !ok || two.Done(ctx) != nil {
		t.Error("another name is not another claim")
	}
	one.Release(ctx)
	if one.Context().Err() == nil {
		t.Error("a claim that was given back is still trusted")
	}
	three, ok, _ := l.Claim(ctx, "w")
	if !ok || one.Done(ctx) == nil || three.Context().Err() != nil {
		t.Error("an old claim ends a new one")
	}
	if err := three.Done(ctx); err != nil {
		t.Error(err)
	}
}

func TestAloneHoldsEveryOffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		held, ended := false, false
		go func() {
			recovery.Alone{}.Elected(ctx, "x", func(context.Context) { held = true })
			ended = true
		}()
		synctest.Wait()
		if !held || ended {
			t.Error(held, ended)
		}
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("it does not end")
		}
	})
}
