package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/recovery"
)

// A destination is away for an hour: intake does not notice, nobody hammers at it, and everything is there soon after. D12.
func TestCaseD12SinkAwayForAnHour(t *testing.T) {
	for _, files := range []bool{false, true} {
		t.Run(fmt.Sprintf("D12 files %v", files), func(t *testing.T) {
			onSite(t, files, func(s *site) {
				p := s.start(options{lane: pipeline.LaneOptions{Queue: 50_000}})
				e := s.assign(orders)
				s.src.Poll(orders, e, 0, 10)
				time.Sleep(5 * time.Second)
				s.table.Fault(func(_ context.Context, op string) error {
					if op == "begin" || op == "add" {
						return nil
					}
					return away
				})
				before := s.table.Calls("commit")
				next := int64(10)
				for range 360 {
					s.src.Poll(orders, e, next, next+20)
					next += 20
					time.Sleep(10 * time.Second)
				}
				if committed := s.src.Committed(orders); committed[len(committed)-1] != next {
					t.Errorf("intake stands at %d of %d", committed[len(committed)-1], next)
				}
				if n := s.table.Calls("commit") - before; n > 800 {
					t.Errorf("%d commits were tried in an hour", n)
				}
				st, backlog := p.lane.Status(), p.agent.Backlog()
				if st.State != "retrying" || st.Counts.Rejected != 0 || backlog.Windows < 100 || backlog.Oldest < 50*time.Minute || backlog.LastError == "" {
					t.Errorf("lane %+v, backlog %+v", st, backlog)
				}
				s.table.Fault(nil)
				time.Sleep(time.Minute)
				s.complete(orders, next)
				if st, backlog := p.lane.Status(), p.agent.Backlog(); st.State != "live" || backlog != (recovery.Backlog{}) {
					t.Errorf("lane %+v, backlog %+v", st, backlog)
				}
				s.end(p)
			})
		})
	}
}

// Without traffic only recovery tries, with growing pauses.
func TestNoHotLoopWhileASinkIsAway(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(options{})
		e := s.assign(orders)
		time.Sleep(time.Second)
		s.table.Fault(on("commit", away))
		s.src.Poll(orders, e, 0, 200)
		time.Sleep(time.Minute)
		before, reads := s.table.Calls("commit"), s.bucket.Calls("read")
		time.Sleep(time.Hour)
		if n := s.table.Calls("commit") - before; n < 100 || n > 260 {
			t.Errorf("%d tries in an hour", n)
		}
		if n := s.bucket.Calls("read") - reads; n > 2000 {
			t.Errorf("%d reads in an hour", n)
		}
		s.table.Fault(nil)
		time.Sleep(time.Minute)
		s.complete(orders, 200)
		if st := p.lane.Status(); st.State != "live" {
			t.Error(st)
		}
		s.end(p)
	})
}

// An agent that may have a quarter of the time takes about four times as long for what it recovers.
func TestShareLeavesTimeToOthers(t *testing.T) {
	took := func(share float64) (took time.Duration) {
		onSite(t, false, func(s *site) {
			p := s.start(options{agent: recovery.Options{Share: func() float64 { return share }}})
			e := s.assign(orders)
			time.Sleep(time.Second)
			s.table.Fault(on("commit", away))
			for o := int64(0); o < 4000; o += 20 {
				s.src.Poll(orders, e, o, o+20)
				time.Sleep(time.Second)
			}
			time.Sleep(5 * time.Minute)
			s.table.Fault(func(_ context.Context, op string) error { // it is back, and slow
				if op == "commit" {
					time.Sleep(time.Second)
				}
				return nil
			})
			begun := time.Now()
			for p.agent.Backlog().Windows > 0 && time.Since(begun) < time.Hour {
				time.Sleep(100 * time.Millisecond)
			}
			took = time.Since(begun)
			s.end(p)
		})
		return took
	}
	all, quarter := took(1), took(0.25)
	if quarter < 2*all || quarter > 6*all {
		t.Errorf("it takes %v with all of the time, and %v with a quarter", all, quarter)
	}
}

// A sink that is added later gets the history.
func TestHistoryIsFilled(t *testing.T) {
	for _, files := range []bool{false, true} {
		onSite(t, files, func(s *site) {
			later := s.table
			s.table = pipetest.NewTable(files)
			p := s.start(options{})
			e := s.assign(orders)
			for o := int64(0); o < 500; o += 20 {
				s.src.Poll(orders, e, o, o+20)
				time.Sleep(time.Second)
			}
			s.end(p)
			for _, k := range s.bucket.Keys() { // the cuts are of the sink that was
				if strings.Contains(k, "_cuts") {
					_ = s.bucket.Delete(s.Context(), k)
				}
			}
			s.table, s.src = later, pipetest.NewScript()
			p = s.start(options{agent: recovery.Options{Exclusive: true}})
			e = s.assign(orders)
			s.src.Poll(orders, e, 500, 520)
			time.Sleep(time.Minute)
			s.complete(orders, 520)
			s.end(p)
		})
	}
}

// What another process may still be writing is left alone until the deadline and its margin have passed; at once where there can be none.
func TestEarlierOwnerIsLeftAlone(t *testing.T) {
	f := func(files, exclusive bool) {
		t.Helper()
		onSite(t, files, func(s *site) {
			p := s.start(options{})
			time.Sleep(time.Second)
			s.table.Fault(on("commit", away))
			e := s.assign(orders)
			s.src.Poll(orders, e, 0, 30)
			time.Sleep(500 * time.Millisecond)
			s.end(p)
			s.table.Fault(nil)
			s.src = pipetest.NewScript()
			p = s.start(options{agent: recovery.Options{Exclusive: exclusive}})
			e = s.assign(orders)
			s.src.Poll(orders, e, 30, 40)
			reads := s.bucket.Calls("read")
			time.Sleep(10 * time.Second)
			if have := s.table.Rows(orders); (have[0] == 1) != exclusive {
				t.Errorf("files %v, exclusive %v: after 10 s offset 0 is there %d times", files, exclusive, have[0])
			}
			time.Sleep(15 * time.Second)
			if have := s.table.Rows(orders); !exclusive && have[0] == 1 {
				t.Error("written before the margin has passed")
			}
			if n := s.bucket.Calls("read") - reads; n > 100 {
				t.Errorf("%d reads in 25 s to know what is old", n)
			}
			time.Sleep(20 * time.Second)
			s.complete(orders, 40)
			s.end(p)
		})
	}
	for _, files := range []bool{false, true} {
		f(files, false)
		f(files, true)
	}
}

// D31: the file of a lane is held back past the deadline, recovery writes it, then it arrives.
func TestCaseD31LateUpload(t *testing.T) {
	onSite(t, true, func(s *site) {
		p := s.start(options{})
		e := s.assign(orders)
		time.Sleep(time.Second)
		let, first := make(chan struct{}), true
		s.table.Fault(func(_ context.Context, op string) error {
			if op == "commit" && first {
				first = false
				<-let // deaf to its deadline
			}
			return nil
		})
		s.src.Poll(orders, e, 0, 30)
		time.Sleep(time.Minute)
		s.src = pipetest.NewScript()
		q := s.start(options{agent: recovery.Options{Exclusive: true}}) // the next owner
		e = s.assign(orders)
		s.src.Poll(orders, e, 30, 40)
		time.Sleep(time.Minute)
		s.complete(orders, 40)
		close(let)
		time.Sleep(time.Minute)
		s.complete(orders, 40)
		if n := len(s.table.Names(orders)); n != 2 {
			t.Errorf("%d files", n)
		}
		s.end(q)
		s.end(p)
	})
}

// Holes are pinned after roll.age, not before: until then the lane pins them itself, and more at once.
func TestHolesArePinnedLate(t *testing.T) {
	onSite(t, true, func(s *site) {
		p := s.start(options{lane: pipeline.LaneOptions{Roll: pipeline.Roll{Age: 10 * time.Second}, Deadline: time.Minute}})
		e := s.assign(orders)
		time.Sleep(time.Second)
		s.table.Fault(on("add", away))
		s.src.Poll(orders, e, 0, 120)
		time.Sleep(time.Second)
		s.table.Fault(nil)
		time.Sleep(7 * time.Second)
		if head, err := s.cuts().Head(s.Context(), orders); head != 0 || err != nil {
			t.Errorf("pinned up to %d, %v, too early", head, err)
		}
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(s.table.Names(orders)); got != "[[0, 50) [50, 100) [100, 120)]" {
			t.Errorf("files %s", got)
		}
		s.complete(orders, 120)
		s.end(p)
	})
}

// A hole may reach across the begin of an assignment: its cells are written all the same.
func TestHoleAcrossTheBeginOfAnAssignment(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		onSite(t, true, func(s *site) {
			p := s.start(options{})
			time.Sleep(time.Second)
			s.table.Fault(on("add", away))
			e := s.assign(orders)
			s.src.Poll(orders, e, 0, 30)
			time.Sleep(500 * time.Millisecond)
			s.end(p)
			s.src = pipetest.NewScript()
			p = s.start(options{agent: recovery.Options{Exclusive: exclusive}})
			e = s.assign(orders)
			s.src.Poll(orders, e, 30, 70)
			time.Sleep(time.Minute)
			s.table.Fault(nil)
			time.Sleep(2 * time.Minute)
			s.complete(orders, 70)
			s.end(p)
		})
	}
}

// What an earlier owner may still write does not hold up what is ours for certain.
func TestOwnHoleDoesNotWaitForAnEarlierOwner(t *testing.T) {
	onSite(t, true, func(s *site) {
		p := s.start(options{})
		e := s.assign(orders)
		time.Sleep(time.Second)
		s.table.Fault(on("commit", away))
		s.src.Poll(orders, e, 0, 30)
		time.Sleep(5 * time.Second) // its cut is pinned, its file is not there
		s.end(p)
		s.src = pipetest.NewScript()
		s.table.Fault(on("add", away))
		p = s.start(options{lane: pipeline.LaneOptions{Deadline: 5 * time.Minute}})
		e = s.assign(orders)
		s.src.Poll(orders, e, 30, 70)
		time.Sleep(10 * time.Second)
		s.table.Fault(nil)
		time.Sleep(30 * time.Second)
		if got := fmt.Sprint(s.table.Names(orders)); got != "[[30, 50) [50, 70)]" {
			t.Errorf("files %s", got)
		}
		time.Sleep(10 * time.Minute)
		s.complete(orders, 70)
		s.end(p)
	})
}

// D32: a span without rows is covered, and recovery does not come back to it.
func TestCaseD32RecoveryDoesNotComeBack(t *testing.T) {
	for _, files := range []bool{false, true} {
		onSite(t, files, func(s *site) {
			p := s.start(options{lane: pipeline.LaneOptions{MaxRecord: 10}})
			e := s.assign(orders)
			time.Sleep(time.Second)
			s.table.Fault(on("add", away))
			s.src.Poll(orders, e, 0, 120)
			time.Sleep(time.Second)
			s.table.Fault(nil)
			time.Sleep(time.Minute)
			gaps, ok := p.lane.Gaps(orders, sp(0, 120))
			if !ok || len(gaps) > 0 || p.trail.len() != 103 {
				t.Errorf("gaps %v, %d rejected", gaps, p.trail.len())
			}
			before := s.table.Calls("begin")
			time.Sleep(time.Hour)
			if n := s.table.Calls("begin") - before; n > 0 {
				t.Errorf("%d loads were begun for nothing", n)
			}
			s.end(p)
		})
	}
}

// Damage of one partition does not keep the others waiting.
func TestDamageStaysWhereItIs(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(options{lane: pipeline.LaneOptions{Queue: 1}})
		e, f := s.assign(bills), s.assign(orders)
		time.Sleep(time.Second)
		s.table.Fault(on("add", away))
		s.src.Poll(bills, e, 0, 100)
		s.src.Poll(orders, f, 0, 100)
		time.Sleep(1300 * time.Millisecond) // between two rounds
		for _, k := range s.bucket.Keys() {
			if strings.Contains(k, "bills") && strings.HasSuffix(k, ".avro") {
				body := s.bucket.Get(k)
				body[len(body)/2] ^= 1
				s.bucket.Put(k, body)
			}
		}
		s.table.Fault(nil)
		time.Sleep(2 * time.Minute)
		s.rows(bills, 0)
		s.complete(orders, 100)
		if b := p.agent.Backlog(); !strings.Contains(b.LastError, "bills") || b.Windows != 2 {
			t.Errorf("%+v", b)
		}
		s.end(p)
	})
}

// A window may hold any number of bytes: Carry commits in parts, where the sink has no cuts.
func TestMemoryOfCarryIsBounded(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(options{lane: pipeline.LaneOptions{Queue: 3 << 20, Roll: pipeline.Roll{Rows: 1 << 30, Age: 5 * time.Second}}, agent: recovery.Options{Window: 1 << 20}})
		e := s.assign(orders)
		time.Sleep(time.Second)
		s.table.Fault(on("add", away))
		for o := int64(0); o < 20_000; o += 1000 {
			s.src.Poll(orders, e, o, o+1000)
			time.Sleep(200 * time.Millisecond)
		}
		s.table.Fault(nil)
		time.Sleep(time.Minute)
		s.complete(orders, 20_000)
		if _, _, peak := s.table.Wrong(); peak > 2<<20 {
			t.Errorf("a load held %d bytes", peak)
		}
		s.end(p)
	})
}

// A destination that is deaf to its context does not keep Run.
func TestRunDoesNotHang(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(options{})
		e := s.assign(orders)
		time.Sleep(time.Second)
		let := make(chan struct{})
		s.table.Fault(on("add", away))
		s.src.Poll(orders, e, 0, 10)
		time.Sleep(200 * time.Millisecond)
		s.table.Fault(func(_ context.Context, op string) error {
			if op == "commit" {
				<-let
			}
			return nil
		})
		time.Sleep(time.Minute)
		p.stop()
		err := errors.Join(<-p.ended, <-p.ended)
		if !errors.Is(err, pipeline.ErrHanging) || !strings.Contains(err.Error(), "orders/0 [0, 10)") {
			t.Error(err)
		}
		close(let)
	})
}

// Nothing is missing, so nothing is asked.
func TestSteadyStateAsksNothing(t *testing.T) {
	for _, files := range []bool{false, true} {
		onSite(t, files, func(s *site) {
			p := s.start(options{})
			e := s.assign(orders)
			s.src.Poll(orders, e, 0, 100)
			time.Sleep(time.Minute)
			ops := []string{"create", "read", "list"}
			var before []int
			for _, op := range ops {
				before = append(before, s.bucket.Calls(op))
			}
			time.Sleep(time.Hour)
			for i, op := range ops {
				if n := s.bucket.Calls(op) - before[i]; n > 0 {
					t.Errorf("%d calls of %s in an idle hour", n, op)
				}
			}
			s.end(p)
		})
	}
}
