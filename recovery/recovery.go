package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
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
	wake  chan struct{}
	begun map[record.Partition]pending // holes that are not pinned yet
	aged  map[record.Partition]int64   // up to where the segments of earlier owners are known to be old

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

// pending is a hole in the chain of cuts that a lane may still pin itself.
type pending struct {
	head  int64
	since time.Time
}

// New prepares an agent.
func New(opt Options) *Agent {
	if opt.Every == 0 {
		opt.Every = time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Agent{opt: opt, wake: make(chan struct{}, 1), begun: map[record.Partition]pending{}, aged: map[record.Partition]int64{}}
}

// Run looks for gaps and fills them until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	wait := flow.Backoff{Base: a.opt.Every, Max: 30 * time.Second}
	for {
		pause := a.opt.Every
		if err := a.round(ctx); err != nil && ctx.Err() == nil {
			pause = wait.Next(rand.Float64())
			a.failed(err)
		} else {
			wait.Reset()
		}
		select {
		case <-time.After(pause):
		case <-a.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *Agent) failed(err error) {
	a.mu.Lock()
	changed := a.backlog.LastError != err.Error()
	a.backlog.LastError = err.Error()
	a.mu.Unlock()
	if changed {
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

// round finds what is missing now and fills it, oldest offsets first in each partition.
func (a *Agent) round(ctx context.Context) error {
	todo, err := a.find(ctx)
	a.show(ctx, todo)
	if err != nil {
		return err
	}
	for i, w := range todo {
		if err := a.fill(ctx, w); err != nil {
			return err
		}
		a.show(ctx, todo[i+1:])
	}
	return nil
}

// find lists the windows that are missing and settled.
func (a *Agent) find(ctx context.Context) (todo []window, err error) {
	assigned := a.opt.Assigned(ctx)
	partitions := make([]record.Partition, 0, len(assigned))
	for p := range assigned {
		partitions = append(partitions, p)
	}
	slices.SortFunc(partitions, func(p, q record.Partition) int {
		if p.Less(q) {
			return -1
		}
		return 1
	})
	for _, p := range partitions {
		spans, err := a.missing(ctx, p, assigned[p])
		if err != nil {
			return todo, fmt.Errorf("finding gaps of %v: %w", p, err)
		}
		for _, s := range spans {
			todo = append(todo, window{p, s})
		}
	}
	return todo, nil
}

// missing lists the windows of one partition.
func (a *Agent) missing(ctx context.Context, p record.Partition, e pipeline.Extent) ([]checkpoint.Span, error) {
	gaps, known := a.opt.Lane.Gaps(p, checkpoint.Span{From: e.Genesis, To: e.Next})
	if !known || len(gaps) == 0 {
		return nil, nil
	}
	old, err := a.oldUpTo(ctx, p, e, gaps[0])
	if err != nil {
		return nil, err
	}
	if cuts := a.opt.Lane.Cuts(); cuts != nil {
		return a.missingCells(ctx, cuts, p, e, gaps, old)
	}
	return Settled(Windows(gaps, a.opt.Window), e.Begin, old), nil
}

// oldUpTo is the offset below which everything that an earlier owner stored is old enough to be recovery's. Segments are in the
// order of time, so the search goes on from where it stood.
func (a *Agent) oldUpTo(ctx context.Context, p record.Partition, e pipeline.Extent, first checkpoint.Span) (int64, error) {
	if a.opt.Exclusive || first.From >= e.Begin {
		return e.Begin, nil
	}
	limit := time.Now().Add(-a.opt.Deadline - max(a.opt.Deadline/4, 10*time.Second))
	lo, hi := max(a.aged[p], first.From), e.Begin
	for lo < hi { // the last offset that is old, by halving
		mid := lo + (hi-lo)/2
		at, stored, err := a.opt.Raw.Written(ctx, p, mid)
		if err != nil {
			return 0, err
		}
		if stored && at.Before(limit) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	a.aged[p] = lo
	return lo, nil
}

// missingCells lists cuts and cells without a file. What no cut covers is pinned as a hole first, once no lane is about to do so.
func (a *Agent) missingCells(ctx context.Context, cuts sinks.Cuts, p record.Partition, e pipeline.Extent, gaps []checkpoint.Span, old int64) ([]checkpoint.Span, error) {
	head, err := cuts.Head(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := a.pinHole(ctx, cuts, p, e, head, gaps, old); err != nil {
		return nil, err
	}
	have, _ := a.opt.Lane.Coverage(p)
	for _, s := range a.opt.Lane.Holding(p) {
		have.Add(s)
	}
	cells, err := cuts.Cells(ctx, p, have)
	if err != nil {
		return nil, err
	}
	return WholeSettled(cells, e.Begin, old), nil
}

// pinHole pins what lies between the last cut and what a lane holds, when it has lain there for as long as a lane keeps a file open:
// until then the lane will likely pin it itself, and more at once.
func (a *Agent) pinHole(ctx context.Context, cuts sinks.Cuts, p record.Partition, e pipeline.Extent, head int64, gaps []checkpoint.Span, old int64) error {
	i := slices.IndexFunc(gaps, func(g checkpoint.Span) bool { return g.From <= head && head < g.To })
	if i < 0 {
		delete(a.begun, p)
		return nil
	}
	if was, ok := a.begun[p]; !ok || was.head != head {
		a.begun[p] = pending{head, time.Now()}
		return nil
	}
	if time.Since(a.begun[p].since) < a.opt.Lane.Roll().Age {
		return nil
	}
	to := gaps[i].To
	if old < e.Begin && to > old { // what an earlier owner may still write stays open
		to = old
	}
	delete(a.begun, p)
	if to <= head {
		return nil
	}
	return cuts.PinHole(ctx, p, to)
}

// fill claims one window and carries it.
func (a *Agent) fill(ctx context.Context, w window) error {
	release, ok, err := a.opt.Claims.Claim(ctx, w.name(a.opt.Stream, a.opt.Lane.Name()))
	if err != nil || !ok {
		return err
	}
	defer release()
	a.mu.Lock()
	a.backlog.Working = fmt.Sprintf("%v %v", w.p, w.s)
	a.mu.Unlock()
	err = a.opt.Lane.Carry(ctx, w.p, w.s, a.opt.Raw.Read)
	a.mu.Lock()
	a.backlog.Working = ""
	if err == nil {
		a.backlog.LastError = ""
	}
	a.mu.Unlock()
	a.opt.Metrics.window(a.opt.Stream, a.opt.Lane.Name(), err)
	if err == nil {
		a.opt.Lane.Recovered()
	}
	return err
}

// show publishes the backlog.
func (a *Agent) show(ctx context.Context, todo []window) {
	var records int64
	for _, w := range todo {
		records += w.s.Len()
	}
	var oldest time.Duration
	for _, w := range todo[:min(1, len(todo))] {
		if at, ok, err := a.opt.Raw.Written(ctx, w.p, w.s.From); err == nil && ok {
			oldest = max(oldest, time.Since(at))
		}
	}
	a.mu.Lock()
	a.backlog.Windows, a.backlog.Records, a.backlog.Oldest = int64(len(todo)), records, oldest
	a.mu.Unlock()
	a.opt.Metrics.backlog(a.opt.Stream, a.opt.Lane.Name(), int64(len(todo)), records, oldest)
}

// Backlog is what was left when the agent looked last.
func (a *Agent) Backlog() Backlog {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.backlog
}

// ErrNothing says that a forced range has nothing to replay.
var ErrNothing = errors.New("raw has nothing in this range")

// Force replays a range whatever coverage says: rows that are missing are written, rows that are there stay. For a file sink these are
// the cuts and cells in the range whose file is gone. progress is told the windows done and the windows in all.
func (a *Agent) Force(ctx context.Context, p record.Partition, s checkpoint.Span, progress func(done, all int)) error {
	head, err := a.opt.Raw.Head(ctx, p)
	if err != nil {
		return err
	}
	s = s.Intersect(checkpoint.Span{From: head.Genesis, To: head.Next})
	if s.Empty() {
		return ErrNothing
	}
	windows := Windows([]checkpoint.Span{s}, a.opt.Window)
	if cuts := a.opt.Lane.Cuts(); cuts != nil {
		if windows, err = a.lostCells(ctx, cuts, p, s); err != nil {
			return err
		}
	}
	for i, w := range windows {
		progress(i, len(windows))
		if err := a.fill(ctx, window{p, w}); err != nil {
			return err
		}
	}
	progress(len(windows), len(windows))
	return nil
}

// lostCells lists the cuts and cells in s whose file is not there, asking the sink anew.
func (a *Agent) lostCells(ctx context.Context, cuts sinks.Cuts, p record.Partition, s checkpoint.Span) ([]checkpoint.Span, error) {
	have, err := a.opt.Sink.Coverage(ctx, p)
	if err != nil {
		return nil, err
	}
	empties, err := cuts.Empties(ctx, p)
	if err != nil {
		return nil, err
	}
	have.Union(empties)
	for _, held := range a.opt.Lane.Holding(p) {
		have.Add(held)
	}
	cells, err := cuts.Cells(ctx, p, have)
	return slices.DeleteFunc(cells, func(c checkpoint.Span) bool { return !c.Overlaps(s) }), err
}
