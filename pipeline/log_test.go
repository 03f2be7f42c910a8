package pipeline_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sources"
)

// written is a log to look into.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) log() *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// times is how often a line holds text.
func (w *written) times(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.b.String(), text)
}

func TestAHoldIsToldOnce(t *testing.T) {
	var w written
	inHouse(t, pipeline.Options{Log: w.log()}, func(h *house) {
		h.assign(orders)
		held := func(reason string) {
			h.src.Send(sources.Held{Partition: orders, Reason: reason})
			h.src.Send(sources.Held{Partition: record.Partition{Cluster: "c"}, Reason: reason})
		}
		held("why")
		held("why")
		synctest.Wait()
		if st, _ := h.stream.Status(h.Context()); st.Held != "why" || st.State != "blocked" || st.Partitions[0].Held != "why" {
			t.Errorf("%+v", st)
		}
		held("")
		held("")
		synctest.Wait()
		if st, _ := h.stream.Status(h.Context()); st.Held != "" || st.State != "running" || st.Partitions[0].Held != "" {
			t.Errorf("%+v", st)
		}
	})
	f := func(line string) {
		t.Helper()
		if n := w.times(line); n != 1 {
			t.Errorf("%d lines %s:\n%s", n, line, w.b.String())
		}
	}
	f(`msg="a partition is held and not read" partition=orders/0 reason=why`)
	f(`msg="the stream is held and not read" reason=why`)
	f(`msg="a partition is read again" partition=orders/0`)
	f(`msg="the stream is read again"`)
}

func TestAShutdownIsNoDeadline(t *testing.T) {
	var w written
	lo := pipeline.LaneOptions{Deadline: 3 * time.Hour, Log: w.log()}
	withLane(t, false, lo, pipeline.Options{Grace: 20 * time.Second}, func(h *house) {
		h.table.Fault(func(_ context.Context, op string) error {
			if op == "commit" {
				return &sinks.Error{Kind: sinks.Retry, Reason: "away"}
			}
			return nil
		})
		h.src.Poll(orders, h.assign(orders), 0, 10)
		time.Sleep(5 * time.Second)
		h.stop()
	})
	if w.times("the process ends") == 0 || w.times("deadline") > 0 {
		t.Error(w.b.String())
	}
}
