package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// One partition whose position the source does not take keeps no other from being committed, nor is it told again and again.
func TestOneRefusedPositionDoesNotFreezeOthers(t *testing.T) {
	var log bytes.Buffer // the stream is at rest whenever it is read
	inHouse(t, pipeline.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(h *house) {
		refused := map[record.Partition]error{bills: errors.New("no such topic")}
		told := map[record.Partition]int{}
		var mu sync.Mutex // of both
		refuse := func(p record.Partition, err error) {
			mu.Lock()
			defer mu.Unlock()
			refused[p] = err
		}
		minute := func() {
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		h.src.Refuse(func(_ context.Context, positions []sources.Position) error {
			mu.Lock()
			defer mu.Unlock()
			failed := map[record.Partition]error{}
			for _, pos := range positions {
				told[pos.Partition]++
				if err := refused[pos.Partition]; err != nil {
					failed[pos.Partition] = err
				}
			}
			if len(failed) == 0 {
				return nil
			}
			return fmt.Errorf("wrapped: %w", &sources.CommitError{Failed: failed})
		})
		e, f := h.assign(orders), h.assign(bills)
		h.src.Poll(orders, e, 0, 10)
		h.src.Poll(bills, f, 0, 10)
		minute()
		h.committed(orders, 10)
		h.committed(bills, -1)
		if told[orders] != 1 || told[bills] < 2 {
			t.Errorf("told %v: what was taken once is told again, or what was not taken never", told)
		}
		h.src.Poll(orders, e, 10, 20)
		minute()
		h.committed(orders, 20)
		if n := strings.Count(log.String(), "does not take the position"); n != 1 {
			t.Errorf("warned %d times: %s", n, &log)
		}
		refuse(bills, nil)
		minute()
		h.committed(bills, 10)
		refuse(orders, errors.New("no such topic"))
		h.src.Poll(orders, e, 20, 30)
		minute()
		if n := strings.Count(log.String(), "does not take the position"); n != 2 {
			t.Errorf("warned %d times in two disturbances: %s", n, &log)
		}
		if open(h.src.Revoke(false, orders, bills)) {
			t.Error("a revocation waits for a commit that is refused")
		}
	})
}

// A source's notice and hold are logged here, once each; one without a topic is the stream's and names no partition.
func TestLogsWhatTheSourceTells(t *testing.T) {
	var log bytes.Buffer
	inHouse(t, pipeline.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(h *house) {
		f := func(ev sources.Event, want string) {
			t.Helper()
			log.Reset()
			h.src.Send(ev)
			synctest.Wait()
			if _, line, _ := strings.Cut(log.String(), "level="); line != want {
				t.Errorf("%q, want %q", line, want)
			}
		}
		f(sources.Notice{Partition: orders, Kind: "topic_recreated", Text: "it is another"}, "WARN msg=\"it is another\" partition=orders/0 event=topic_recreated\n")
		f(sources.Notice{Kind: "source_down", Text: "away"}, "WARN msg=away event=source_down\n")
		f(sources.Held{Partition: orders, Reason: "why"}, "ERROR msg=\"a partition is held and not read\" partition=orders/0 reason=why\n")
		f(sources.Held{Partition: orders, Reason: "why"}, "")
		f(sources.Held{Partition: orders}, "INFO msg=\"a partition is read again\" partition=orders/0\n")
		f(sources.Held{Reason: "why"}, "ERROR msg=\"the stream is held and not read\" reason=why\n")
	})
}
