package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/cuts"
	"github.com/stream-arrow/twgd/sinks/raw"
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
	rooms   *rooms // nil until everything is open
	waiting string // why it is not, yet
}

// rooms is what an open stream is made of.
type rooms struct {
	raw    *raw.Store
	pipe   *pipeline.Stream
	lanes  []*pipeline.Lane
	agents []*recovery.Agent
	sinks  []builtSink
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
	return errors.Join(s.move(ctx, r), r.close())
}

// move runs the pipeline and recovery side by side.
func (s *stream) move(ctx context.Context, r *rooms) error {
	beside, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	if s.node.cfg.Node.Mode == "both" {
		for _, a := range r.agents {
			running.Go(func() { a.Run(beside) })
		}
	}
	err := r.pipe.Run(ctx)
	stop()
	running.Wait()
	return err
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
		case errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrLocked):
			return nil, fmt.Errorf("stream %s is %w: %w", s.cfg.Name, errRefused, err)
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
	if r.raw, err = raw.Open(ctx, raw.Options{Bucket: bucket, Stream: s.cfg.Name, Codec: s.cfg.Raw.Compression, Log: s.log}); err != nil {
		return nil, err
	}
	source, err := newSource(s.cfg.Source.Options, sourceDeps{stream: s.cfg.Name, client: s.node.instance, log: s.log, found: r.raw.Found})
	if err != nil {
		return nil, err
	}
	for i := range s.cfg.Sinks {
		if err := s.openLane(ctx, r, bucket, &s.cfg.Sinks[i], spool); err != nil {
			return nil, err
		}
	}
	f := s.cfg.Raw.Flush
	r.pipe = pipeline.New(pipeline.Options{
		Stream: s.cfg.Name, Source: source, Raw: r.raw, Lanes: r.lanes,
		Flush:  pipeline.Flush{Bytes: int64(f.Bytes), Records: f.Records, Age: time.Duration(f.Age)},
		Budget: int64(s.cfg.Budget), Grace: time.Duration(s.node.cfg.Node.ShutdownGrace), Metrics: s.node.pipes, Log: s.log,
	})
	_, exclusive := bucket.Local()
	for i, l := range r.lanes {
		r.agents = append(r.agents, recovery.New(recovery.Options{
			Stream: s.cfg.Name, Lane: l, Sink: r.sinks[i], Raw: r.raw, Assigned: r.pipe.Assigned, Claims: new(recovery.Local),
			Window: int64(s.cfg.Recovery.Window), Deadline: time.Duration(s.cfg.Sinks[i].Deadline), Exclusive: exclusive,
			Metrics: s.node.recover, Log: s.log.With("sink", l.Name()),
		}))
	}
	return r, nil
}

// openLane makes one sink and its lane. It does not connect: a sink that is away holds up nothing.
func (s *stream) openLane(ctx context.Context, r *rooms, bucket store.Bucket, c *config.Sink, spool string) error {
	sink, err := newSink(ctx, c.Options, sinkDeps{stream: s.cfg.Name, name: c.Name, spool: spool, queue: int64(c.Queue), log: s.log.With("sink", c.Name)})
	if err != nil {
		return fmt.Errorf("sink %s: %w", c.Name, err)
	}
	r.sinks = append(r.sinks, sink)
	var chains sinks.Cuts
	if sink.Traits().Cuts {
		chains = cuts.New(cuts.Options{Bucket: bucket, Stream: s.cfg.Name, Sink: c.Name, Cell: int64(s.cfg.Recovery.Window), Genesis: genesisOf(r.raw)})
	}
	r.lanes = append(r.lanes, pipeline.NewLane(pipeline.LaneOptions{
		Stream: s.cfg.Name, Name: c.Name, Sink: sink, Cuts: chains, Roll: sink.roll,
		Deadline: time.Duration(c.Deadline), Queue: int64(c.Queue), MaxRecord: int64(c.MaxRecord),
		Report:  func(ctx context.Context, rejects []sinks.Reject) error { return errors.New("no trail") },
		Covered: func(record.Partition, checkpoint.SpanSet) {},
		Metrics: s.node.pipes, Log: s.log,
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
	return err
}

// opened is what the stream is made of, nil while it is not open.
func (s *stream) opened() (*rooms, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rooms, s.waiting
}

// notReady says why the stream does not take records yet, empty when it does.
func (s *stream) notReady() string {
	r, waiting := s.opened()
	if r == nil {
		if waiting == "" {
			return "starting"
		}
		return waiting
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	st, _ := r.pipe.Status(ctx)
	switch st.State {
	case "running", "paused":
		return ""
	case "starting":
		return "no partition is assigned yet"
	}
	return st.State + ": " + st.Reason
}
