package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/cuts"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/sources"
	"github.com/stream-arrow/twgd/store"
)

// errRefused says that a stream cannot run as it is configured, however often it is tried.
var errRefused = errors.New("refused")

// stream joins the rooms of one stream.
type stream struct {
	node *node
	cfg  *config.Stream
	log  *slog.Logger

	mu      sync.Mutex
	rooms   *rooms    // nil until everything is open
	waiting string    // why it is not, yet
	held    string    // why the stream may not begin: it belongs to another cluster, or its founding cannot be read
	settled time.Time // when its beginning was
	ended   error     // how it ended, where it has
	idle    idle
}

// rooms is what an open stream is made of.
type rooms struct {
	raw     *raw.Store
	bucket  store.Bucket     // raw's
	source  sources.Source   // nil where the node only recovers
	chains  *recovery.Survey // nil where recovery looks after the assigned partitions alone
	pipe    *pipeline.Stream
	lanes   []*pipeline.Lane
	agents  []*recovery.Agent
	sinks   []builtSink
	rejects *rejects
	copies  *coverage.Publisher
	dedup   *dedup // nil: nothing is screened
}

// run opens the stream, however long that takes, and moves records until ctx ends.
func (s *stream) run(ctx context.Context) error {
	r, err := s.openPatiently(ctx)
	if err != nil || r == nil {
		return err
	}
	s.mu.Lock()
	s.rooms, s.waiting = r, ""
	s.mu.Unlock()
	err = errors.Join(s.move(ctx, r), r.close())
	s.mu.Lock()
	s.ended = err
	s.mu.Unlock()
	return err
}

// move runs the pipeline, and beside it recovery, the quarantine and the copies of coverage.
func (s *stream) move(ctx context.Context, r *rooms) error {
	beside, stop := context.WithCancel(context.WithoutCancel(ctx)) // a lane that drains still reports
	defer stop()
	recovering, stopRecovery := context.WithCancel(ctx)
	defer stopRecovery()
	var running sync.WaitGroup
	running.Go(func() { s.recover(recovering, r) })
	running.Go(func() { r.rejects.view.Run(beside) })
	running.Go(func() { r.rejects.follow(beside, s.log) })
	running.Go(func() { r.copies.Run(beside) })
	err := r.pipe.Run(ctx)
	stopRecovery()
	stop()
	running.Wait()
	s.flush(r)
	return err
}

// lastWords is what writing the views may take at the end: they may lag, and nobody waits long for them.
const lastWords = 2 * time.Second

// flush writes what the quarantine and the copies of coverage still hold. What the stores do not take lags or is shed, and said so.
func (s *stream) flush(r *rooms) {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	var flushing sync.WaitGroup
	for what, f := range map[string]func(context.Context) error{"quarantine": r.rejects.view.Flush, "coverage": r.copies.Flush} {
		flushing.Go(func() {
			if err := f(ctx); err != nil {
				s.log.Warn("not all could be written at the end", "what", what, "error", err)
			}
		})
	}
	flushing.Wait()
}

// openPatiently tries to open the stream until it can, is refused, or ctx ends.
func (s *stream) openPatiently(ctx context.Context) (*rooms, error) {
	wait := flow.Backoff{Base: 500 * time.Millisecond, Max: 15 * time.Second}
	for {
		r, err := s.open(ctx)
		switch {
		case err == nil:
			return r, nil
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, avrofile.ErrDamaged):
			return nil, fail(exitDamaged, fmt.Errorf("stream %s is %w: %w; `twgd raw verify` says more", s.cfg.Name, errRefused, err))
		case errors.Is(err, errRefused):
			return nil, err
		case errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrLocked):
			return nil, fail(exitRefused, fmt.Errorf("stream %s is %w: %w", s.cfg.Name, errRefused, err))
		}
		s.mu.Lock()
		first := s.waiting == ""
		s.waiting = store.Describe(err)
		s.mu.Unlock()
		if first {
			s.log.Error("the stream cannot start yet; trying again", "error", err)
		}
		select {
		case <-time.After(wait.Next(rand.Float64())):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// open opens raw, the source and the sinks.
func (s *stream) open(ctx context.Context) (_ *rooms, err error) {
	r := &rooms{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	spool, err := spoolDir(s.node.cfg)
	if err != nil {
		return nil, err
	}
	bucket, err := store.Open(ctx, string(s.cfg.Raw.To), store.Options{SpoolDir: spool})
	if err != nil {
		return nil, fmt.Errorf("opening raw: %w", err)
	}
	r.bucket = bucket
	_, exclusive := bucket.Local()
	exclusive = exclusive && !s.cfg.Raw.Shared
	if err := s.openRaw(ctx, r, exclusive); err != nil {
		return nil, err
	}
	if r.rejects, err = s.openRejects(ctx, bucket, spool); err != nil {
		return nil, err
	}
	if r.dedup, err = s.openDedup(r, exclusive); err != nil {
		return nil, err
	}
	r.copies = coverage.NewPublisher(coverage.Options{Bucket: bucket, Stream: s.cfg.Name, Node: s.node.instance, Log: s.log})
	for i := range s.cfg.Sinks {
		if err := s.openLane(ctx, r, bucket, &s.cfg.Sinks[i], spool); err != nil {
			return nil, err
		}
	}
	f := s.cfg.Raw.Flush
	r.pipe = pipeline.New(pipeline.Options{
		Stream: s.cfg.Name, Source: r.source, Raw: r.raw, Lanes: r.lanes, Screening: r.dedup.screening(r.rejects),
		Flush:  pipeline.Flush{Bytes: int64(f.Bytes), Records: f.Records, Age: time.Duration(f.Age)},
		Budget: int64(s.cfg.Budget), Grace: s.grace(), Metrics: s.node.pipes, Log: s.log,
	})
	s.applyShare(r)
	shared := !exclusive && (s.node.duties.shared || !s.node.ingests())
	r.chains = s.survey(r, exclusive, shared)
	for i := range r.lanes {
		r.agents = append(r.agents, s.newAgent(r, i, exclusive, shared))
	}
	return r, nil
}

// openRaw opens raw and, where the node ingests, the source. A node that only recovers writes no segment: it needs the right to
// create, for cuts and copies, and no lock.
func (s *stream) openRaw(ctx context.Context, r *rooms, exclusive bool) (err error) {
	o := raw.Options{Bucket: r.bucket, Stream: s.cfg.Name, Codec: s.cfg.Raw.Compression, Shared: s.cfg.Raw.Shared, Log: s.log, ReadOnly: !s.node.ingests()}
	if o.ReadOnly && exclusive {
		return fail(exitRefused, fmt.Errorf("stream %s is %w: a node of mode recovery needs a raw that the other nodes see too, and %s belongs to one process",
			s.cfg.Name, errRefused, s.cfg.Raw.To))
	}
	if o.ReadOnly {
		if err := r.bucket.Probe(ctx); err != nil {
			return fmt.Errorf("raw store of stream %s: %w", s.cfg.Name, err)
		}
	}
	if r.raw, err = raw.Open(ctx, o); err != nil || o.ReadOnly {
		return err
	}
	r.source, err = newSource(s.cfg.Source.Options, sourceDeps{alone: exclusive, client: s.node.instance, log: s.log, found: s.founding(r.raw)})
	return err
}

func (s *stream) deadline(i int) time.Duration { return time.Duration(s.cfg.Sinks[i].Deadline) }

// grace is what the pipeline may take of the grace period.
func (s *stream) grace() time.Duration {
	whole := time.Duration(s.node.cfg.Node.ShutdownGrace)
	return max(whole-lastWords, whole/2)
}

// founding asks raw where the stream began, and keeps why it may not go on: the source tries again, slowly.
func (s *stream) founding(r *raw.Store) func(context.Context, string, map[record.Partition]int64) (map[record.Partition]int64, error) {
	return func(ctx context.Context, cluster string, starts map[record.Partition]int64) (map[record.Partition]int64, error) {
		stored, err := r.Found(ctx, cluster, starts)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = ""
		if err != nil {
			s.held = err.Error()
		} else if s.settled.IsZero() {
			s.settled = time.Now()
		}
		return stored, err
	}
}

// openLane makes one sink and its lane. It does not connect: a sink that is away holds up nothing.
func (s *stream) openLane(ctx context.Context, r *rooms, bucket store.Bucket, c *config.Sink, spool string) error {
	sink, err := newSink(ctx, c.Options, sinkDeps{stream: s.cfg.Name, name: c.Name, spool: spool, queue: int64(c.Queue), log: s.log.With("sink", c.Name)})
	if err != nil {
		return fmt.Errorf("sink %s: %w", c.Name, err)
	}
	r.sinks = append(r.sinks, sink)
	var chains sinks.Cuts
	count := recovery.Rows(sink.Count)
	if sink.Traits().Cuts {
		count = nil
		chains = cuts.New(cuts.Options{Bucket: bucket, Stream: s.cfg.Name, Sink: c.Name, Cell: int64(s.cfg.Recovery.Window), Genesis: genesisOf(r.raw)})
	}
	r.lanes = append(r.lanes, pipeline.NewLane(pipeline.LaneOptions{
		Stream: s.cfg.Name, Name: c.Name, Sink: sink.Sink, Cuts: chains, Roll: sink.roll,
		Deadline: time.Duration(c.Deadline), Queue: int64(c.Queue), MaxRecord: int64(c.MaxRecord),
		Report:     func(ctx context.Context, list []sinks.Reject) error { return r.rejects.report(ctx, c.Name, list) },
		Covered:    func(p record.Partition, set checkpoint.SpanSet) { r.copies.Covered(c.Name, p, set) },
		Duplicates: recovery.LeaveOut(r.rejects.notes, r.rejects.index, c.Name, count, s.log),
		Metrics:    s.node.pipes, Log: s.log,
	}))
	return nil
}

func genesisOf(r *raw.Store) func(context.Context, record.Partition) (int64, error) {
	return func(ctx context.Context, p record.Partition) (int64, error) {
		head, err := r.Head(ctx, p)
		return head.Genesis, err
	}
}

func (r *rooms) close() (err error) {
	for _, s := range r.sinks {
		err = errors.Join(err, s.Close())
	}
	if r.raw != nil {
		err = errors.Join(err, r.raw.Close())
	}
	err = errors.Join(err, r.rejects.close(), r.dedup.close())
	if r.bucket != nil {
		err = errors.Join(err, r.bucket.Close())
	}
	return err
}
