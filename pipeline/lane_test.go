package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// rows checks that the table has every record of [from, to), once, and nothing else of p.
func rows(t *testing.T, table *pipetest.Table, p record.Partition, from, to int64) {
	t.Helper()
	have := table.Rows(p)
	for o := from; o < to; o++ {
		want := 0
		if pipetest.Present(o) {
			want = 1
		}
		if have[o] != want {
			t.Errorf("offset %d is there %d times", o, have[o])
			return
		}
		delete(have, o)
	}
	if len(have) > 0 {
		t.Errorf("rows that should not be there: %v", have)
	}
}

// idle checks that a lane holds nothing any more and that its sink was used as it must be.
func idle(t *testing.T, lane *pipeline.Lane, table *pipetest.Table) {
	t.Helper()
	if n := lane.Status().QueueBytes; n != 0 {
		t.Errorf("the lane still counts %d bytes", n)
	}
	if spans := append(lane.Holding(orders), lane.Holding(bills)...); len(spans) > 0 {
		t.Errorf("the lane still holds %v", spans)
	}
	if wrong, loads, _ := table.Wrong(); len(wrong) > 0 || loads != 0 {
		t.Errorf("the sink was misused: %v, %d loads are not discarded", wrong, loads)
	}
}

var (
	away    = &sinks.Error{Kind: sinks.Retry, Reason: "away"}
	missing = &sinks.Error{Kind: sinks.Blocked, Reason: "table missing"}
)

// on is a fault of one operation.
func on(op string, err error) func(context.Context, string) error {
	return func(_ context.Context, o string) error {
		if o == op {
			return err
		}
		return nil
	}
}

// sp is [from, to).
func sp(from, to int64) checkpoint.Span { return checkpoint.Span{From: from, To: to} }

func (h *house) gaps(p record.Partition, to int64, want string) {
	h.Helper()
	synctest.Wait()
	got, ok := h.lane.Gaps(p, sp(0, to))
	if s := fmt.Sprint(got); s != want || ok != (want != "[unknown]") && want != "[unknown]" {
		h.Errorf("gaps %s, known %v, want %s", s, ok, want)
	}
}

func (h *house) state(want string) {
	h.Helper()
	synctest.Wait()
	if st := h.lane.Status(); st.State != want {
		h.Errorf("the lane is %s (%s), want %s", st.State, st.Reason, want)
	}
}

func TestLanesCloseLoads(t *testing.T) {
	f := func(name string, files bool, lo pipeline.LaneOptions, do func(h *house, e uint64)) {
		t.Run(name, func(t *testing.T) {
			if lo.Roll == (pipeline.Roll{}) {
				lo.Roll = pipeline.Roll{Age: time.Hour}
			}
			lo.Deadline = 3 * time.Hour
			withLane(t, files, lo, pipeline.Options{Flush: pipeline.Flush{Records: 1, Age: time.Hour}}, func(h *house) {
				e := h.assign(orders)
				do(h, e)
			})
		})
	}
	quick := func(h *house, next int64) {
		h.Helper()
		time.Sleep(time.Second)
		rows(h.T, h.table, orders, 0, next)
	}
	f("rows", false, pipeline.LaneOptions{Roll: pipeline.Roll{Rows: 10, Age: time.Hour}}, func(h *house, e uint64) {
		h.src.Poll(orders, e, 0, 20)
		h.src.Poll(orders, e, 20, 26)
		quick(h, 23) // the gate stores record by record: each tenth closes a load
	})
	f("bytes", false, pipeline.LaneOptions{Roll: pipeline.Roll{Bytes: 2000, Age: time.Hour}}, func(h *house, e uint64) {
		h.src.Poll(orders, e, 0, 12)
		quick(h, 11)
	})
	f("age", true, pipeline.LaneOptions{}, func(h *house, e uint64) {
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(59 * time.Minute)
		rows(h.T, h.table, orders, 0, 0)
		time.Sleep(2 * time.Minute)
		rows(h.T, h.table, orders, 0, 10)
	})
	f("tightness", false, pipeline.LaneOptions{Queue: 3000}, func(h *house, e uint64) {
		h.src.Poll(orders, e, 0, 12)
		time.Sleep(time.Second)
		if n := len(h.table.Rows(orders)); n < 8 {
			h.Errorf("%d rows while the lane is nearly full", n)
		}
	})
	for _, files := range []bool{false, true} {
		f(fmt.Sprintf("revocation, files %v", files), files, pipeline.LaneOptions{}, func(h *house, e uint64) {
			h.src.Poll(orders, e, 0, 10)
			<-h.src.Revoke(false, orders)
			quick(h, 10)
		})
		f(fmt.Sprintf("revocation before the sink is open, files %v", files), files, pipeline.LaneOptions{}, func(h *house, e uint64) {
			h.table.Fault(on("commit", missing))
			h.src.Poll(orders, e, 0, 4)
			h.lane.Status()
			time.Sleep(61 * time.Minute) // the load is refused, and the sink opened again
			h.table.Fault(on("open", missing))
			time.Sleep(time.Minute)
			h.src.Poll(orders, e, 4, 10)
			<-h.src.Revoke(false, orders)
			h.table.Fault(nil)
			time.Sleep(30 * time.Second)
			rows(h.T, h.table, orders, 0, 10)
		})
		f(fmt.Sprintf("drain, files %v", files), files, pipeline.LaneOptions{}, func(h *house, e uint64) {
			h.src.Poll(orders, e, 0, 10)
			time.Sleep(time.Second)
			h.stop()
			rows(h.T, h.table, orders, 0, 10)
		})
	}
}

func TestLaneRefusesWhenFull(t *testing.T) {
	withLane(t, false, pipeline.LaneOptions{Queue: 3000, Deadline: time.Hour}, pipeline.Options{}, func(h *house) {
		h.table.Fault(func(ctx context.Context, op string) error {
			if op == "commit" {
				return sleep(ctx, time.Minute)
			}
			return nil
		})
		e := h.assign(orders)
		for o := int64(0); o < 100; o += 10 {
			h.src.Poll(orders, e, o, o+10)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		h.stored(orders, 100) // intake never waited
		h.committed(orders, 100)
		if n := h.lane.Status(); n.Counts.Refused == 0 || n.QueueBytes > 3000 {
			t.Errorf("%+v", n)
		}
		time.Sleep(5 * time.Minute)
		have, ok := h.lane.Coverage(orders)
		gaps, _ := h.lane.Gaps(orders, sp(0, 100))
		if !ok || len(gaps) == 0 || have.Len()+length(gaps) != 100 {
			t.Errorf("covered %v, gaps %v", have, gaps)
		}
	})
}

func length(spans []checkpoint.Span) (n int64) {
	for _, s := range spans {
		n += s.Len()
	}
	return n
}

func TestLaneRetriesThenGivesUp(t *testing.T) {
	withLane(t, false, pipeline.LaneOptions{Deadline: 20 * time.Second}, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		time.Sleep(time.Second)
		h.table.Fault(on("commit", away))
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(3 * time.Second)
		h.state("retrying")
		h.gaps(orders, 10, "[]")
		h.src.Poll(orders, e, 10, 20)
		h.table.Fault(nil)
		time.Sleep(4 * time.Second)
		h.state("live")
		rows(t, h.table, orders, 0, 20)
		h.table.Fault(on("commit", away))
		before := h.table.Calls("commit")
		h.src.Poll(orders, e, 20, 30)
		time.Sleep(30 * time.Second)
		h.gaps(orders, 30, "[[20, 30)]")
		if n := h.table.Calls("commit") - before; n < 4 || n > 12 {
			t.Errorf("%d tries in 20 s", n)
		}
		if n := h.lane.Status().Counts; n.Dropped != 9 || n.Rejected != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// A sink whose fault is a cancellation of its own is away like any other.
func TestSinkThatSaysCanceledIsNoHotLoop(t *testing.T) {
	withLane(t, false, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house) {
		h.table.Fault(on("commit", fmt.Errorf("its pool: %w", context.Canceled)))
		h.src.Poll(orders, h.assign(orders), 0, 10)
		time.Sleep(30 * time.Second)
		h.state("retrying")
		if n := h.table.Calls("commit"); n > 20 {
			t.Errorf("%d tries", n)
		}
	})
}

func TestCaseD16BlockedOpensAgain(t *testing.T) {
	withLane(t, false, pipeline.LaneOptions{Deadline: time.Hour}, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		time.Sleep(time.Second)
		gone := func(_ context.Context, op string) error {
			if op == "begin" || op == "add" {
				return nil
			}
			return missing
		}
		h.table.Fault(gone)
		h.src.Poll(orders, e, 0, 1000)
		time.Sleep(10 * time.Minute)
		h.state("blocked")
		if h.lane.Status().Reason != "table missing" {
			t.Error(h.lane.Status())
		}
		if have, _ := h.lane.Coverage(orders); have.Len() != 0 {
			t.Errorf("coverage has moved: %v", have)
		}
		if n := h.table.Calls("open"); n > 80 {
			t.Errorf("opened %d times in ten minutes", n)
		}
		h.table.Fault(nil)
		time.Sleep(time.Minute)
		h.state("live")
		rows(t, h.table, orders, 0, 1000)
	})
}

func TestCoverageIsUnknownUntilTheSinkAnswers(t *testing.T) {
	withLane(t, false, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house) {
		h.table.Fault(on("coverage", away))
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(10 * time.Minute)
		rows(t, h.table, orders, 0, 10) // commits go on
		if _, ok := h.lane.Gaps(orders, sp(0, 20)); ok {
			t.Error("gaps are known though the sink did not answer")
		}
		if n := h.table.Calls("coverage"); n > 80 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		h.table.Fault(nil)
		time.Sleep(20 * time.Second)
		h.gaps(orders, 20, "[[10, 20)]")
		h.state("live")
	})
}

func TestLoadsThatCannotBegin(t *testing.T) {
	withLane(t, true, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		time.Sleep(time.Second)
		h.table.Fault(on("begin", away))
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(10 * time.Second)
		h.gaps(orders, 10, "[]") // it waits
		if n := h.table.Calls("begin"); n > 15 {
			t.Errorf("%d tries", n)
		}
		h.table.Fault(nil)
		time.Sleep(20 * time.Second)
		rows(t, h.table, orders, 0, 10)
		h.table.Fault(on("add", away))
		h.src.Poll(orders, e, 10, 20)
		time.Sleep(2 * time.Minute)
		h.gaps(orders, 20, "[[10, 20)]")
	})
}

// Cuts: a file's span follows without a hole and is pinned before the file is there; a span that another has cut otherwise is left.
func TestFilesAreCut(t *testing.T) {
	lo := pipeline.LaneOptions{Queue: 6000, Roll: pipeline.Roll{Age: 10 * time.Second}, Deadline: time.Hour}
	withLane(t, true, lo, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		other := h.cuts()
		pinned := true
		h.table.Fault(func(ctx context.Context, op string) error {
			if op != "commit" {
				return nil
			}
			if head, err := h.cuts().Head(ctx, orders); err != nil || head == 0 {
				pinned = false
			}
			return sleep(ctx, time.Minute)
		})
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(11 * time.Second)
		h.src.Poll(orders, e, 10, 20)
		time.Sleep(time.Second)
		h.src.Poll(orders, e, 20, 40) // refused
		h.src.Poll(orders, e, 40, 43)
		time.Sleep(5 * time.Minute)
		if got := fmt.Sprint(h.table.Names(orders)); got != "[[0, 10) [10, 20) [40, 43)]" || !pinned {
			t.Errorf("files %s, pinned %v", got, pinned)
		}
		h.gaps(orders, 43, "[[20, 40)]")
		h.src.Poll(orders, e, 43, 48)
		if ok, err := other.Pin(h.Context(), orders, sp(43, 45)); err != nil || !ok {
			t.Fatal(ok, err)
		}
		time.Sleep(5 * time.Minute)
		h.gaps(orders, 48, "[[20, 40) [43, 48)]")
		h.state("live")
	})
}

// A cut that is damaged is no outage: the lane says which it is, and that somebody has to act.
func TestDamagedCutsBlock(t *testing.T) {
	const dir = "s/_cuts/t/"
	f := func(name, key, body string, known bool, stored int64) {
		t.Run(name, func(t *testing.T) {
			withLane(t, true, pipeline.LaneOptions{Deadline: time.Hour}, pipeline.Options{}, func(h *house) {
				key := dir + orders.Path() + "/" + key
				if !known {
					h.bucket.Put(key, []byte(body))
				}
				e := h.assign(orders)
				time.Sleep(time.Second)
				h.bucket.Put(key, []byte(body))
				h.src.Poll(orders, e, 0, 10)
				time.Sleep(time.Minute)
				h.state("blocked")
				if st := h.lane.Status(); !strings.Contains(st.Reason, avrofile.ErrDamaged.Error()) || !strings.Contains(st.Reason, key) {
					t.Errorf("the reason is %q", st.Reason)
				}
				rows(t, h.table, orders, 0, stored)
				if n := h.table.Calls("open"); stored > 0 && n > 1 {
					t.Errorf("the sink was opened %d times, though it does take rows", n)
				}
				if err := h.bucket.Delete(h.Context(), key); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				h.state("live")
				rows(t, h.table, orders, 0, 10)
			})
		})
	}
	f("a cut", record.OffsetName(0), "{", false, 0)
	f("a cut behind the head", record.OffsetName(0), "{", true, 0)
	f("a mark", "_empty/0-10.empty", "", false, 10)
}

// Offer is called by the controller: whatever the sink does, it returns at once.
func TestNothingOfASinkMakesTheGateWait(t *testing.T) {
	for _, op := range []string{"open", "coverage", "begin", "add", "commit"} {
		withLane(t, false, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house) {
			let := make(chan struct{})
			h.table.Fault(func(_ context.Context, o string) error {
				if o == op {
					<-let
				}
				return nil
			})
			e := h.assign(orders)
			for o := int64(0); o < 50; o += 10 {
				h.src.Poll(orders, e, o, o+10)
				time.Sleep(time.Second)
			}
			time.Sleep(2 * time.Second)
			h.stored(orders, 50)
			h.committed(orders, 50)
			h.status()
			h.lane.Status()
			close(let)
			time.Sleep(time.Second)
		})
	}
}

// A file sink that finds files which its cuts do not know writes nothing: their rows would be there twice.
func TestFilesOfAnotherChainAreNotDoubled(t *testing.T) {
	withLane(t, true, pipeline.LaneOptions{}, pipeline.Options{}, func(h *house) {
		h.table.Place(orders, sp(0, 100))
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 10)
		time.Sleep(30 * time.Second)
		h.stored(orders, 10)
		if st := h.lane.Status(); st.State != "blocked" || !strings.Contains(st.Reason, "[0, 100)") {
			t.Errorf("%+v", st)
		}
		if names := h.table.Names(orders); len(names) != 1 {
			t.Errorf("files %v", names)
		}
		h.table.Lose(orders, sp(0, 100))
		time.Sleep(2 * time.Minute)
		h.src.Poll(orders, e, 10, 20)
		time.Sleep(30 * time.Second)
		rows(t, h.table, orders, 0, 20)
		h.state("live")
	})
}
