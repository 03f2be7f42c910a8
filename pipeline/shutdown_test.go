package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sources"
)

var late = pipeline.Flush{Age: 30 * time.Minute}

func TestRevokedIsStoredAndTold(t *testing.T) {
	inHouse(t, pipeline.Options{Flush: late}, func(h *house) {
		e, f := h.assign(orders), h.assign(bills)
		h.src.Poll(orders, e, 0, 10)
		h.raw.Before(func(ctx context.Context, _ []*record.Batch) error { return sleep(ctx, time.Second) })
		one := h.src.Revoke(false, orders)
		two := h.src.Revoke(false, orders, bills) // at the same time
		h.src.Poll(orders, e, 10, 20)             // void
		h.src.Poll(bills, f, 0, 10)
		if !open(one) || !open(two) {
			t.Error("let go before it was stored")
		}
		time.Sleep(1100 * time.Millisecond)
		if open(one) || open(two) {
			t.Error("not let go")
		}
		h.stored(orders, 10)
		h.committed(orders, 10)
		if n := len(h.status().Partitions); n != 0 {
			t.Errorf("%d partitions are left", n)
		}
	})
}

func TestLostGivesUpAtOnce(t *testing.T) {
	inHouse(t, pipeline.Options{Flush: late}, func(h *house) {
		e := h.assign(orders)
		h.raw.Before(hang)
		h.src.Poll(orders, e, 0, 10)
		one := h.src.Revoke(false, orders)
		if !open(one) || open(h.src.Revoke(true, orders)) || open(one) {
			t.Error("a lost partition waits")
		}
		h.stored(orders, 0)
	})
}

func TestRevokeDoesNotWaitForEver(t *testing.T) {
	f := func(bound time.Duration, spoil func(*house)) {
		t.Helper()
		inHouse(t, pipeline.Options{Flush: late, Release: 20 * time.Second}, func(h *house) {
			e := h.assign(orders)
			time.Sleep(2 * time.Second)
			spoil(h)
			h.src.Poll(orders, e, 0, 10)
			done := h.src.Revoke(false, orders)
			begin := time.Now()
			<-done
			if d := time.Since(begin); d > bound {
				t.Errorf("let go after %v", d)
			}
			h.raw.Before(nil)
			e = h.assign(orders) // and all goes on
			h.src.Poll(orders, e, 0, 20)
			h.src.Refuse(nil)
			<-h.src.Revoke(false, orders)
			h.stored(orders, 20)
			h.committed(orders, 20)
		})
	}
	f(20*time.Second, func(h *house) { h.raw.Before(down) })
	f(20*time.Second, func(h *house) { h.raw.Before(hang2) })
	f(time.Second, func(h *house) { // one answer is enough
		h.src.Refuse(func(context.Context, []sources.Position) error { return pipetest.ErrDown })
	})
	f(11*time.Second, func(h *house) {
		h.src.Refuse(func(ctx context.Context, _ []sources.Position) error { <-ctx.Done(); return ctx.Err() })
	})
}

// hang2 hangs long, but not for ever.
func hang2(ctx context.Context, _ []*record.Batch) error { return sleep(ctx, 25*time.Second) }

func TestRevokeWhileParked(t *testing.T) {
	inHouse(t, pipeline.Options{Budget: 3000, Flush: late}, func(h *house) {
		e := h.assign(orders)
		h.raw.Before(func(ctx context.Context, _ []*record.Batch) error { return sleep(ctx, 2*time.Second) })
		for o := int64(0); o < 50; o += 10 {
			h.src.Poll(orders, e, o, o+10)
		}
		h.calls("pause")
		<-h.src.Revoke(false, orders)
		h.calls("resume")
		e = h.assign(orders)
		h.src.Poll(orders, e, 10, 20)
		<-h.src.Revoke(false, orders)
		h.stored(orders, 20)
	})
}

// raw hangs where a chain begins, while another assignment of the same chain ends: the controller must not wait for either.
func TestControllerDoesNotWaitForAChainThatBegins(t *testing.T) {
	inHouse(t, pipeline.Options{}, func(h *house) {
		e := h.assign(orders)
		<-h.src.Revoke(false, orders)
		time.Sleep(time.Second)
		h.bucket.Fault(func(faultbucket.Call) faultbucket.Fault { return faultbucket.Hang })
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		asked := make(chan error)
		go func() {
			_, err := h.raw.Begin(ctx, orders, nil)
			asked <- err
		}()
		synctest.Wait()
		h.src.Send(sources.Assigned{Partitions: []sources.Assignment{{Partition: orders, Epoch: e + 1}}})
		h.src.Revoke(true, orders)
		h.status()
		cancel()
		<-asked
		h.bucket.Fault(nil)
	})
}

func TestCaseD07Shutdown(t *testing.T) {
	t.Run("D07 the open record is stored and committed", func(t *testing.T) {
		inHouse(t, pipeline.Options{Flush: late}, func(h *house) {
			e := h.assign(orders)
			h.src.Poll(orders, e, 0, 1)
			time.Sleep(3 * time.Second)
			h.committed(orders, 0)
			if took, err := h.stop(); err != nil || took > time.Second {
				t.Error(err, took)
			}
			h.stored(orders, 1)
			h.committed(orders, 1)
			h.calls("pause", "close")
		})
	})
	f := func(name string, before func(context.Context, []*record.Batch) error) {
		t.Run("D07 "+name, func(t *testing.T) {
			inHouse(t, pipeline.Options{Flush: late, Grace: 25 * time.Second}, func(h *house) {
				e := h.assign(orders)
				h.src.Poll(orders, e, 0, 1)
				time.Sleep(3 * time.Second)
				h.raw.Before(before)
				if took, err := h.stop(); !errors.Is(err, pipeline.ErrUnfinished) || errors.Is(err, pipeline.ErrHanging) || took > 25*time.Second {
					t.Error(err, took)
				}
				h.committed(orders, 0)
			})
		})
	}
	f("raw is down", down)
	f("raw hangs", hang)
}

func TestShutdownNamesWhatHangs(t *testing.T) {
	let := make(chan struct{})
	f := func(want string, spoil func(*house)) {
		t.Helper()
		withLane(t, false, pipeline.LaneOptions{}, pipeline.Options{Grace: 20 * time.Second}, func(h *house) {
			stop := make(chan struct{})
			let = stop
			e := h.assign(orders)
			spoil(h)
			h.src.Poll(orders, e, 0, 10)
			time.Sleep(5 * time.Second)
			took, err := h.stop()
			if !errors.Is(err, pipeline.ErrHanging) || !strings.Contains(err.Error(), want) || took > 20*time.Second {
				t.Errorf("%v after %v, want it to name %s", err, took, want)
			}
			close(stop)
		})
	}
	f("storing orders/0", func(h *house) { h.raw.Before(deaf(let)) })
	f("telling the source", func(h *house) {
		h.src.Refuse(func(context.Context, []sources.Position) error { <-let; return nil })
	})
	f("sink t", func(h *house) {
		h.table.Fault(func(_ context.Context, op string) error {
			if op == "commit" {
				<-let
			}
			return nil
		})
	})
}

func TestShutdownWithASinkThatIsAway(t *testing.T) {
	f := func(fault func(context.Context, string) error) {
		t.Helper()
		lo := pipeline.LaneOptions{Roll: pipeline.Roll{Age: time.Hour}, Deadline: 3 * time.Hour}
		withLane(t, false, lo, pipeline.Options{Grace: 20 * time.Second}, func(h *house) {
			h.table.Fault(fault)
			e := h.assign(orders)
			h.src.Poll(orders, e, 0, 10)
			time.Sleep(5 * time.Second)
			if took, err := h.stop(); err != nil || took > 20*time.Second {
				t.Error(err, took)
			}
			h.committed(orders, 10)
		})
	}
	f(func(context.Context, string) error { return &sinks.Error{Kind: sinks.Retry, Reason: "away"} })
	f(func(_ context.Context, op string) error {
		if op == "commit" {
			return &sinks.Error{Kind: sinks.Blocked, Reason: "table missing"}
		}
		return nil
	})
	f(func(ctx context.Context, op string) error {
		if op == "open" || op == "commit" || op == "coverage" {
			<-ctx.Done()
		}
		return ctx.Err()
	})
}

func TestBrokenSourceEndsTheStream(t *testing.T) {
	inHouse(t, pipeline.Options{Flush: late}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 10)
		h.src.Break()
		h.over, h.err = true, <-h.ended
		if h.err == nil || !strings.Contains(h.err.Error(), "the source is broken") {
			t.Error(h.err)
		}
		h.stored(orders, 10) // what was read is stored
	})
}

func TestExhaustedSourceEndsTheStream(t *testing.T) {
	inHouse(t, pipeline.Options{Flush: late}, func(h *house) {
		e := h.assign(orders)
		h.src.Poll(orders, e, 0, 10)
		h.src.Send(sources.Exhausted{})
		if h.over, h.err = true, <-h.ended; h.err != nil {
			t.Error(h.err)
		}
		h.stored(orders, 10)
		h.committed(orders, 10)
	})
}
