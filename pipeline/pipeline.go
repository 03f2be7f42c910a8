// Package pipeline carries batches from a source through the gate to the lanes. One controller per stream owns all state and
// waits for everything in one select; what takes time runs beside it and reports back. Position follows the gate's receipt,
// lanes start behind the gate, and nothing of a lane ever makes the gate wait.
package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sources"
)

// Options of a stream's pipeline.
type Options struct {
	Stream  string
	Source  sources.Source // nil: nothing is read, and the lanes only carry what recovery brings
	Raw     sinks.Raw
	Lanes   []*Lane
	Flush   Flush
	Budget  int64         // bytes between the source and the gate, and, with Screening, between the gate and the lanes
	Commit  time.Duration // how often the source is told the position; 0 means 1 s
	Release time.Duration // how long a revoked partition may take to be stored and told; 0 means 30 s
	Grace   time.Duration // what shutdown may take; 0 means 25 s
	Writers int           // commits under way at once over all partitions; 0 means 16
	Metrics *Metrics
	Log     *slog.Logger

	Screening *Screening // nil: nothing is screened, and lanes are offered all that raw has
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		of *time.Duration
		is time.Duration
	}{{&o.Commit, time.Second}, {&o.Release, 30 * time.Second}, {&o.Grace, 25 * time.Second}} {
		if *d.of == 0 {
			*d.of = d.is
		}
	}
	if o.Writers == 0 {
		o.Writers = 16
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Stream runs one stream. Create it with New; Run may be called once.
type Stream struct {
	opt  Options
	ctl  *controller
	crew *crew
	ask  chan func(*controller)
	end  chan struct{} // closed when the controller has ended

	budget atomic.Int64  // as it was set last
	resize chan struct{} // says that it was
}

// New prepares a stream.
func New(opt Options) *Stream {
	opt.setDefaults()
	s := &Stream{opt: opt, crew: new(crew), ask: make(chan func(*controller)), end: make(chan struct{}), resize: make(chan struct{}, 1)}
	s.ctl = newController(opt, s.crew)
	if opt.Screening != nil {
		opt.Metrics.beginDedup(opt.Stream)
	}
	s.ctl.resized = s.resize
	s.ctl.newBudget = s.budget.Load
	return s
}

// Budget changes the byte budget, and in proportion the bytes and records of a segment, of a stream that may be running: what is in flight
// stays counted, and nothing new is taken until there is room again. It may be called at any time and does not wait; the last call counts.
// Budgets below one byte are one.
func (s *Stream) Budget(bytes int64) {
	s.budget.Store(max(1, bytes))
	select {
	case s.resize <- struct{}{}:
	default:
	}
}

// ErrUnfinished says that shutdown ended with records that raw has not got. They are still in the source: the position has not
// passed them.
var ErrUnfinished = errors.New("the gate was not flushed within the grace period; the position has not moved past what is stored")

// ErrHanging says that something did not end though it was told to. What it holds was not counted as done by anybody.
var ErrHanging = errors.New("the grace period is over, and something still hangs")

// Run moves records until ctx ends, then flushes the gate, commits, and drains the lanes, all within the grace period. It returns
// when everything it started has ended, or, with ErrHanging, when the grace period is over and a destination ignores that.
func (s *Stream) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for _, l := range s.opt.Lanes {
		s.crew.begin("sink "+l.Name(), func() { l.run(hard) })
	}
	err := s.read(ctx, hard)
	close(s.end)
	err = errors.Join(err, s.leave(hard))
	cancel()
	last, stop := context.WithTimeout(context.Background(), s.ctl.graceLeft(10))
	defer stop()
	return errors.Join(err, s.crew.wait(last))
}

// read opens the source and lets the controller run until there is nothing more to do for it.
func (s *Stream) read(ctx, hard context.Context) error {
	if s.opt.Source == nil {
		return s.ctl.rest(ctx, s.ask)
	}
	opening, cancel := context.WithCancel(hard)
	defer cancel()
	stop := context.AfterFunc(ctx, cancel) // a source that cannot be reached must not hold up the end
	err := s.opt.Source.Open(opening, s.gate)
	switch {
	case !stop() && err != nil:
		return nil
	case err != nil:
		return err
	}
	return s.ctl.run(ctx, hard, s.ask)
}

// leave leaves the group and drains the lanes, side by side: whoever takes the partitions over need not wait for our sinks.
func (s *Stream) leave(hard context.Context) error {
	ctx, cancel := context.WithTimeout(hard, s.ctl.graceLeft(9))
	defer cancel()
	closed := make(chan error, 1)
	if s.opt.Source == nil {
		drain(ctx, s.opt.Lanes)
		return nil
	}
	s.crew.begin("closing the source", func() { closed <- s.opt.Source.Close(ctx) })
	drain(ctx, s.opt.Lanes)
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// drain lets every lane finish what it holds until ctx ends.
func drain(ctx context.Context, lanes []*Lane) {
	for _, l := range lanes {
		l.drain()
	}
	for _, l := range lanes {
		select {
		case <-l.drained:
		case <-ctx.Done():
		}
	}
}

// gate answers the source where a partition begins, trying until raw answers. It is called from the source's goroutines.
//
// A chain that is still open here is of an assignment that was lost, of which the controller has not heard yet: a process that was
// stopped and goes on finds itself there. What that assignment knew of the chain's end is old, another owner has written since, so the
// chain is closed and looked up again. Otherwise reading, and the position that is committed, would go back.
func (s *Stream) gate(ctx context.Context, p record.Partition, genesis func(context.Context) (int64, error)) (sources.Start, error) {
	defer s.ctl.gateFailed.clear(p)
	wait := flow.Backoff{Base: 200 * time.Millisecond, Max: 10 * time.Second}
	s.opt.Raw.End(p)
	for {
		head, err := s.ctl.begins.head(ctx, s.opt.Raw, p, genesis)
		if err == nil {
			s.ctl.genesis.Store(p, head.Genesis)
			return sources.Start{Next: head.Next, LeaderEpoch: head.LeaderEpoch, Stored: head.Next > head.Genesis}, nil
		}
		if ctx.Err() == nil && s.ctl.gateFailed.set(p, err) {
			s.opt.Log.Error("raw does not answer where a partition begins; trying again", "partition", p.String(), "error", err)
		}
		if err := sleep(ctx, wait.Next(rand.Float64())); err != nil {
			return sources.Start{}, err
		}
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// span is the range of a batch.
func span(b *record.Batch) checkpoint.Span { return checkpoint.Span{From: b.First, To: b.Next} }
