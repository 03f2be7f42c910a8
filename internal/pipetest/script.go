package pipetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// Script is a source whose events a test writes.
type Script struct {
	Heap   *Heap
	events chan sources.Event
	epoch  uint64

	mu      sync.Mutex
	gate    sources.Gate
	commits []sources.Position
	calls   []string
	refuse  func(context.Context, []sources.Position) error
}

// NewScript has no events yet.
func NewScript() *Script { return &Script{Heap: new(Heap), events: make(chan sources.Event)} }

// Traits implements sources.Source.
func (s *Script) Traits() sources.Traits { return sources.Traits{Kind: "script", Replayable: true} }

// Open implements sources.Source.
func (s *Script) Open(_ context.Context, g sources.Gate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = g
	return nil
}

// Next implements sources.Source.
func (s *Script) Next(ctx context.Context) (sources.Event, error) {
	select {
	case ev, ok := <-s.events:
		if !ok {
			return nil, fmt.Errorf("the source is broken")
		}
		return ev, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Script) called(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

// Pause implements sources.Source.
func (s *Script) Pause() { s.called("pause") }

// Resume implements sources.Source.
func (s *Script) Resume() { s.called("resume") }

// Seek implements sources.Source.
func (s *Script) Seek(p record.Partition, next int64) { s.called("seek %v %d", p, next) }

// Buffered implements sources.Source.
func (s *Script) Buffered() int64 { return 0 }

// Rejoin implements sources.Source.
func (s *Script) Rejoin() { s.called("rejoin") }

// Commit implements sources.Source.
func (s *Script) Commit(ctx context.Context, positions []sources.Position) error {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	var err error
	if refuse != nil {
		err = refuse(ctx, positions)
	}
	var some *sources.CommitError
	if err != nil && !errors.As(err, &some) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pos := range positions {
		if some == nil || some.Failed[pos.Partition] == nil {
			s.commits = append(s.commits, pos)
		}
	}
	return err
}

// Close implements sources.Source.
func (s *Script) Close(context.Context) error { s.called("close"); return nil }

// Refuse makes commits of positions fail, all or, with a CommitError, some of them, or hang.
func (s *Script) Refuse(f func(context.Context, []sources.Position) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// Calls lists what the source was told, and forgets it.
func (s *Script) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Committed lists the positions of p that were committed.
func (s *Script) Committed(p record.Partition) (out []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pos := range s.commits {
		if pos.Partition == p {
			out = append(out, pos.Next)
		}
	}
	return out
}

// Send delivers an event.
func (s *Script) Send(ev sources.Event) { s.events <- ev }

// Break makes the source fail for good.
func (s *Script) Break() { close(s.events) }

// Assign asks the gate where p begins and assigns it, under a new epoch.
func (s *Script) Assign(ctx context.Context, p record.Partition, genesis int64) (epoch uint64, next int64, err error) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	start, err := gate(ctx, p, func(context.Context) (int64, error) { return genesis, nil })
	if err != nil {
		return 0, 0, err
	}
	s.epoch++
	s.Send(sources.Assigned{Partitions: []sources.Assignment{{Partition: p, Epoch: s.epoch, Next: start.Next}}})
	return s.epoch, start.Next, nil
}

// Poll delivers [first, next) of p as one batch.
func (s *Script) Poll(p record.Partition, epoch uint64, first, next int64) {
	s.Send(sources.Polled{Batches: []*record.Batch{s.Heap.Batch(p, epoch, first, next, 100)}})
}

// Revoke revokes partitions; the channel is closed by Done.
func (s *Script) Revoke(lost bool, p ...record.Partition) <-chan struct{} {
	done := make(chan struct{})
	s.Send(sources.Revoked{Partitions: p, Lost: lost, Done: func() { close(done) }}) // twice panics
	return done
}
