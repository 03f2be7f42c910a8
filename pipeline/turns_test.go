package pipeline

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// slowRaw takes a second to begin a chain, after its genesis, and counts how many do at a time.
type slowRaw struct {
	sinks.Raw
	mu        sync.Mutex
	now, most int
}

func (r *slowRaw) Begin(ctx context.Context, p record.Partition, genesis func(context.Context) (int64, error)) (sinks.Head, error) {
	at, err := genesis(ctx)
	if err != nil {
		return sinks.Head{}, err
	}
	r.add(1)
	defer r.add(-1)
	return sinks.Head{Genesis: at, Next: at}, sleep(ctx, time.Second)
}

// End implements sinks.Raw.
func (r *slowRaw) End(record.Partition) {}

func (r *slowRaw) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += n
	r.most = max(r.most, r.now)
}

// Thousands of partitions that are assigned at once begin a few at a time, and those that wait for a leader keep no other waiting.
func TestChainsBeginInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw := new(slowRaw)
		s := New(Options{Stream: "s", Raw: raw})
		ctx, cancel := context.WithCancel(t.Context())
		var stuck, rest sync.WaitGroup
		for n := range int32(200) {
			stuck.Go(func() {
				_, err := s.gate(ctx, record.Partition{Topic: "leaderless", Number: n}, func(ctx context.Context) (int64, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				})
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		for n := range int32(2000) {
			rest.Go(func() {
				start, err := s.gate(ctx, record.Partition{Topic: "orders", Number: n}, func(context.Context) (int64, error) { return 7, nil })
				if err != nil || start.Next != 7 {
					t.Error(start, err)
				}
			})
		}
		rest.Wait()
		if took := time.Since(begin); raw.most != begins || took != 32*time.Second { // 2000 in turns of 64
			t.Errorf("%d at a time, in %v", raw.most, took)
		}
		cancel()
		stuck.Wait()
		if n := len(s.ctl.begins); n != 0 {
			t.Errorf("%d turns are not given back", n)
		}
	})
}
