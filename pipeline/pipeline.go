// Package pipeline carries batches from a source through the gate to the lanes. One controller per stream owns all state and
// waits for everything in one select; what takes time runs beside it and reports back. Position follows the gate's receipt,
// lanes start behind the gate, and nothing of a lane ever makes the gate wait.
package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
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
	Source  sources.Source
	Raw     sinks.Raw
	Lanes   []*Lane
	Flush   Flush
	Budget  int64         // bytes between the source and the gate
	Commit  time.Duration // how often the source is told the position; 0 means 1 s
	Grace   time.Duration // what shutdown may take
	Writers int           // commits under way at once over all partitions; 0 means 16
	Metrics *Metrics
	Log     *slog.Logger
}

// Stream runs one stream. Create it with New; Run may be called once.
type Stream struct {
	opt Options
	ctl *controller
	ask chan func(*controller)
	end chan struct{} // closed when the controller has ended
}

// New prepares a stream.
func New(opt Options) *Stream {
	if opt.Commit == 0 {
		opt.Commit = time.Second
	}
	if opt.Writers == 0 {
		opt.Writers = 16
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Stream{opt: opt, ask: make(chan func(*controller)), end: make(chan struct{})}
	s.ctl = newController(opt)
	return s
}

// ErrUnfinished says that shutdown ended with records that raw has not got. They are still in the source: the position has not
// passed them.
var ErrUnfinished = errors.New("the gate was not flushed within the grace period; the position has not moved past what is stored")

// Run moves records until ctx ends, then flushes the gate, commits, and drains the lanes, all within the grace period. It returns
// when everything it started has ended.
func (s *Stream) Run(ctx context.Context) error {
	defer close(s.end)
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	lanes := s.startLanes(hard)
	err := s.opt.Source.Open(hard, s.gate)
	if err == nil {
		err = s.ctl.run(ctx, hard, s.ask)
	}
	deadline, stop := context.WithTimeout(hard, s.ctl.graceLeft())
	defer stop()
	lanes.drain(deadline)
	cerr := s.opt.Source.Close(deadline)
	cancel()
	lanes.wait()
	return errors.Join(err, cerr)
}

// gate answers the source where a partition begins, trying until raw answers. It is called from the source's goroutines.
func (s *Stream) gate(ctx context.Context, p record.Partition, genesis func(context.Context) (int64, error)) (sources.Start, error) {
	wait := flow.Backoff{Base: 200 * time.Millisecond, Max: 10 * time.Second}
	for {
		head, err := s.opt.Raw.Begin(ctx, p, genesis)
		if err == nil {
			s.ctl.gateFailed.clear(p)
			s.ctl.genesis.Store(p, head.Genesis)
			return sources.Start{Next: head.Next, LeaderEpoch: head.LeaderEpoch, Stored: head.Next > head.Genesis}, nil
		}
		if s.ctl.gateFailed.set(p, err) {
			s.opt.Log.Error("raw does not answer where a partition begins; trying again", "partition", p.String(), "error", err)
		}
		if err := sleep(ctx, wait.Next(rand.Float64())); err != nil {
			return sources.Start{}, err
		}
	}
}

// laneGroup is the lanes that run.
type laneGroup struct {
	lanes []*Lane
	done  chan struct{}
}

func (s *Stream) startLanes(ctx context.Context) *laneGroup {
	g := &laneGroup{lanes: s.opt.Lanes, done: make(chan struct{}, len(s.opt.Lanes))}
	for _, l := range s.opt.Lanes {
		go func() {
			l.run(ctx)
			g.done <- struct{}{}
		}()
	}
	return g
}

// drain lets every lane finish what it holds until ctx ends.
func (g *laneGroup) drain(ctx context.Context) {
	for _, l := range g.lanes {
		l.drain()
	}
	for _, l := range g.lanes {
		select {
		case <-l.drained:
		case <-ctx.Done():
		}
	}
}

func (g *laneGroup) wait() {
	for range g.lanes {
		<-g.done
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
