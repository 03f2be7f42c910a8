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
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Claims keeps two agents from the same window. Where it fails both write, and record ids, cuts and coverage make it harmless.
type Claims interface {
	// Claim returns false when somebody else has the window now. release is called when the work has ended.
	Claim(ctx context.Context, name string) (release func(), ok bool, err error)
}

// Options of an agent: one sink of one stream.
type Options struct {
	Stream    string
	Lane      *pipeline.Lane
	Sink      sinks.Sink
	Raw       sinks.Raw
	Assigned  func(context.Context) map[record.Partition]pipeline.Extent
	Claims    Claims
	Window    int64         // offsets a window, for sinks without cuts
	Deadline  time.Duration // the lane's
	Exclusive bool          // raw has one process only: an earlier owner is dead for certain
	Every     time.Duration // how often gaps are looked for; 0 means 1 s
	Metrics   *Metrics
	Log       *slog.Logger
}

// Agent recovers one sink of one stream. It works on one window at a time, so that catching up does not crowd out the intake.
type Agent struct {
	opt   Options
	begun map[record.Partition]pending // holes that are not pinned yet
	aged  map[record.Partition]aged
	ages  map[window]time.Time // when the first windows were written

	mu      sync.Mutex
	backlog Backlog
}

// Backlog is what is left to do.
type Backlog struct {
	Windows, Records int64
	Oldest           time.Duration // age of the oldest segment that is missing
	Working          string        // the window under way
	LastError        string
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
	return &Agent{opt: opt, begun: map[record.Partition]pending{}, aged: map[record.Partition]aged{}, ages: map[window]time.Time{}}
}

const (
	turn     = 10 * time.Second // after which gaps are looked for anew, though windows are left
	patience = 15 * time.Minute // for one window
	parting  = 5 * time.Second  // for a destination to notice that the context has ended
)

// Run looks for gaps and fills them until ctx ends. Where a destination ignores that it returns an error that says what hangs.
func (a *Agent) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.loop(ctx)
	}()
	<-ctx.Done()
	select {
	case <-done:
		return nil
	case <-time.After(parting):
		return fmt.Errorf("recovery of sink %s: %w: %s", a.opt.Lane.Name(), pipeline.ErrHanging, a.Backlog().Working)
	}
}

func (a *Agent) loop(ctx context.Context) {
	wait := flow.Backoff{Base: a.opt.Every, Max: 30 * time.Second}
	for ctx.Err() == nil {
		pause := a.opt.Every
		switch more, err := a.round(ctx); {
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

// window is a span of one partition.
type window struct {
	p record.Partition
	s checkpoint.Span
}

func (w window) name(stream, sink string) string {
	return fmt.Sprintf("%s/%s/%v/%d-%d", stream, sink, w.p, w.s.From, w.s.To)
}

// round finds what is missing now and fills it. What is wrong with one partition, a damaged segment say, does not keep the others
// waiting; what is wrong with the destination ends the round. more says that windows are left.
func (a *Agent) round(ctx context.Context) (more bool, err error) {
	due, err := a.find(ctx)
	a.show(ctx, due)
	if len(due) == 0 {
		if err == nil {
			a.opt.Lane.Complete()
		}
		return false, err
	}
	begun, bad := time.Now(), map[record.Partition]bool{}
	for _, w := range due {
		if time.Since(begun) > turn {
			return true, err
		}
		if bad[w.p] {
			continue
		}
		ok, ferr := a.fill(ctx, w)
		if ferr != nil {
			err = errors.Join(err, fmt.Errorf("window %v of %v: %w", w.s, w.p, ferr))
			if destination(ferr) || ctx.Err() != nil {
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

// destination reports whether err is a fault that every window would meet.
func destination(err error) bool {
	var fault *sinks.Error
	return errors.As(err, &fault) && fault.Kind != sinks.Fenced
}

// fill claims one window and carries it. It returns false where somebody else has the window.
func (a *Agent) fill(ctx context.Context, w window) (bool, error) {
	release, ok, err := a.opt.Claims.Claim(ctx, w.name(a.opt.Stream, a.opt.Lane.Name()))
	if err != nil || !ok {
		return false, err
	}
	defer release()
	a.working(fmt.Sprintf("%v %v", w.p, w.s))
	defer a.working("")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = a.opt.Lane.Carry(ctx, w.p, w.s, a.opt.Raw.Read)
	a.opt.Metrics.window(a.opt.Stream, a.opt.Lane.Name(), err)
	if err == nil {
		a.opt.Lane.Recovered()
	}
	return err == nil, err
}

func (a *Agent) working(on string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.backlog.Working = on
}

// show publishes the backlog as it was found.
func (a *Agent) show(ctx context.Context, due []window) {
	b := Backlog{Windows: int64(len(due)), Oldest: a.oldest(ctx, due)}
	for _, w := range due {
		b.Records += w.s.Len()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	b.Working, b.LastError = a.backlog.Working, a.backlog.LastError
	a.backlog = b
	a.opt.Metrics.backlog(a.opt.Stream, a.opt.Lane.Name(), b)
}

// filled takes one window off the backlog. The age stays until gaps are looked for again.
func (a *Agent) filled(w window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.backlog.Windows--
	a.backlog.Records -= w.s.Len()
	a.opt.Metrics.backlog(a.opt.Stream, a.opt.Lane.Name(), a.backlog)
}

// lookups bounds the segments that are read at once only to show an age.
const lookups = 8

// oldest is the age of the oldest window, as far as it is known: of each partition the first one counts, and its segment is read once.
func (a *Agent) oldest(ctx context.Context, due []window) (age time.Duration) {
	seen, ages, asked := map[record.Partition]bool{}, map[window]time.Time{}, 0
	for _, w := range due {
		if seen[w.p] {
			continue
		}
		seen[w.p] = true
		at, known := a.ages[w]
		if !known && asked < lookups {
			asked++
			var err error
			at, known, err = a.opt.Raw.Written(ctx, w.p, w.s.From)
			known = known && err == nil
		}
		if known {
			ages[w] = at
			age = max(age, time.Since(at))
		}
	}
	a.ages = ages
	return age
}

// Backlog is what was left when the agent looked last.
func (a *Agent) Backlog() Backlog {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.backlog
}
