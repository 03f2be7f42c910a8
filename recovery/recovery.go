package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Options of an agent: one sink of one stream.
type Options struct {
	Stream string
	Node   string // this process among those that share the work: <node>~<instance>
	Lane   *pipeline.Lane
	Sink   sinks.Sink
	Raw    sinks.Raw

	// Assigned lists the partitions to recover; nil while nobody knows. Of one whose Begin is its Next this process has written nothing.
	Assigned func(context.Context) map[record.Partition]pipeline.Extent

	// Whole, if not nil, reports whether Assigned has all partitions by now. Before, the backlog is not shown: it would be too small.
	Whole func() bool

	Claims    Claims
	Shared    bool          // Claims are those of several processes, of which each may recover any partition
	Window    int64         // offsets a window, for sinks without cuts
	Deadline  time.Duration // the lane's
	Exclusive bool          // raw has one process only: an earlier owner is dead for certain
	Every     time.Duration // how often gaps are looked for; 0 means 1 s

	// Copies, if not nil, are the copies of the sink's coverage, of all processes. They lag and never lead.
	Copies func(context.Context) (coverage.Set, error)

	// Weigh, if not nil, estimates the compressed bytes of a span in raw.
	Weigh func(context.Context, record.Partition, checkpoint.Span) (int64, error)

	// Share, if not nil, is the part of its time that the agent works, above 0 and at most 1; it rests for what remains, behind each
	// window.
	Share func() float64

	Metrics *Metrics
	Log     *slog.Logger
}

// Agent recovers one sink of one stream. It works on one window at a time, so that catching up does not crowd out the intake.
//
// Where claims are shared, every agent looks at all partitions, and what it knows of a sink is never all: others write there too. So
// it asks the sink again before it believes in a gap, though not often, and once more when it has claimed a window. What copies of coverage say
// spares it questions; it never takes the place of an answer.
type Agent struct {
	opt   Options
	begun map[record.Partition]pending // holes that are not pinned yet
	aged  map[record.Partition]aged
	views map[record.Partition]*view
	ages  map[window]time.Time // when the first windows were written
	means map[record.Partition]mean
	held  map[string]time.Time // claims of others, and until when they are not asked for again
	hints hints

	mu       sync.Mutex
	backlog  Backlog
	found    bool // backlog has been looked for
	speaking bool // the metrics show backlog
}

// New prepares an agent.
func New(opt Options) *Agent {
	if opt.Every == 0 {
		opt.Every = time.Second
	}
	if opt.Window == 0 {
		opt.Window = 100_000
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Agent{opt: opt, begun: map[record.Partition]pending{}, aged: map[record.Partition]aged{}, views: map[record.Partition]*view{},
		ages: map[window]time.Time{}, means: map[record.Partition]mean{}, held: map[string]time.Time{}}
}

const (
	turn     = 10 * time.Second // after which gaps are looked for anew, though windows are left
	patience = 15 * time.Minute // for one window
	parting  = 5 * time.Second  // for a destination to notice that the context has ended
	telling  = 3 * time.Second  // for giving a claim back
)

// Run looks for gaps and fills them until ctx ends. Where a destination ignores that it returns an error that says what hangs.
// Neither Run nor Watch may be called while one of them runs.
func (a *Agent) Run(ctx context.Context) error { return a.run(ctx, true) }

// Watch looks for gaps until ctx ends, and leaves them alone: the backlog is known without anybody who works on it.
func (a *Agent) Watch(ctx context.Context) error {
	err := a.run(ctx, false)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = false // nobody looks any more
	return err
}

func (a *Agent) run(ctx context.Context, work bool) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.loop(ctx, work)
	}()
	<-ctx.Done()
	select {
	case <-ended:
		return nil
	case <-time.After(parting):
		return fmt.Errorf("recovery of sink %s: %w: %s", a.opt.Lane.Name(), pipeline.ErrHanging, a.Backlog().Working)
	}
}

func (a *Agent) loop(ctx context.Context, work bool) {
	wait := flow.Backoff{Base: a.opt.Every, Max: 30 * time.Second}
	for ctx.Err() == nil {
		pause := a.opt.Every
		switch more, err := a.round(ctx, work); {
		case err != nil && ctx.Err() == nil:
			pause = wait.Next(rand.Float64())
			a.failed(err)
		case more:
			pause = 0
		default:
			wait.Reset()
			a.failed(nil)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// failed notes how the last round ended.
func (a *Agent) failed(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	changed := a.backlog.LastError != text
	a.backlog.LastError = text
	a.mu.Unlock()
	if changed && err != nil {
		a.opt.Log.Warn("recovery cannot go on; trying again", "error", err)
	}
}

// round finds what is missing now and fills it, where that is asked for. What is wrong with one partition, a damaged segment say, does
// not keep the others waiting; what is wrong with the destination ends the round. more says that windows are left.
func (a *Agent) round(ctx context.Context, work bool) (more bool, err error) {
	f, err := a.find(ctx)
	if f.whole {
		a.show(ctx, f)
	}
	switch {
	case !work || err != nil && destination(err):
		return false, err
	case len(f.due) == 0 && len(f.supposed) == 0 && err == nil:
		a.opt.Lane.Complete()
		return false, nil
	}
	more, ferr := a.fillAll(ctx, f.due)
	return more, errors.Join(err, ferr)
}

func (a *Agent) fillAll(ctx context.Context, due []window) (more bool, err error) {
	begun, bad := time.Now(), map[record.Partition]bool{}
	for _, w := range due {
		if time.Since(begun) > turn {
			return true, err
		}
		if bad[w.p] || a.isHeld(w) {
			continue
		}
		started := time.Now()
		ok, ferr := a.fill(ctx, w, false)
		a.rest(ctx, time.Since(started))
		if ferr != nil {
			err = errors.Join(err, fmt.Errorf("window %v of %v: %w", w.s, w.p, ferr))
			if destination(ferr) || errors.Is(ferr, errClaims) || ctx.Err() != nil {
				return false, err
			}
			bad[w.p] = true
			continue
		}
		if ok {
			a.filled(w)
		}
	}
	return false, err
}

// longestRest bounds a rest: the share may be changed meanwhile.
const longestRest = time.Minute

// rest leaves time to others after work, as the share says.
func (a *Agent) rest(ctx context.Context, worked time.Duration) {
	if a.opt.Share == nil {
		return
	}
	share := a.opt.Share()
	if share <= 0 || share >= 1 {
		return
	}
	select {
	case <-time.After(min(time.Duration(float64(worked)*(1-share)/share), longestRest)):
	case <-ctx.Done():
	}
}

// destination reports whether err is a fault that every window would meet.
func destination(err error) bool {
	var fault *sinks.Error
	return errors.As(err, &fault) && fault.Kind != sinks.Fenced
}
