package coverage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// Options of a Publisher.
type Options struct {
	Bucket store.Bucket // raw's
	Stream string
	Node   string        // <node>~<instance>
	Every  time.Duration // the shortest time between two writes of one sink; 0 means 10 s

	Retry flow.Backoff   // after a write that failed; 0 means one second to one minute
	Rand  func() float64 // for the jitter; nil means a good one
	Log   *slog.Logger   // nil means silent
}

// Publisher writes this process's copies. Lanes tell it what is covered and never wait; it gathers, and writes seldom. Methods are
// safe for concurrent use; Run is called once, and Flush after it has returned.
type Publisher struct {
	opt  Options
	kick chan struct{} // a sink has become dirty
	mu   struct {
		sync.Mutex
		sinks map[string]*copied
		err   error // of the last write; nil where it succeeded
	}
}

// copied is the copy of one sink.
type copied struct {
	set    Set
	dirty  bool      // set holds what is not written
	joined bool      // set holds what a former run of this process has written
	due    time.Time // the next write is not made earlier
}

// NewPublisher does no I/O.
func NewPublisher(opt Options) *Publisher {
	if opt.Every == 0 {
		opt.Every = 10 * time.Second
	}
	if opt.Retry == (flow.Backoff{}) {
		opt.Retry = flow.Backoff{Base: time.Second, Max: time.Minute}
	}
	if opt.Rand == nil {
		opt.Rand = rand.Float64
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	p := &Publisher{opt: opt, kick: make(chan struct{}, 1)}
	p.mu.sinks = map[string]*copied{}
	return p
}

// Covered notes that a sink covers the spans of a partition, besides what was noted before. It does no I/O.
func (p *Publisher) Covered(sink string, part record.Partition, spans checkpoint.SpanSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.mu.sinks[sink]
	if c == nil {
		c = &copied{set: Set{}}
		p.mu.sinks[sink] = c
	}
	if covers(c.set[part], spans) {
		return
	}
	c.set.add(part, spans)
	if !c.dirty {
		c.dirty = true
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
}

func covers(have, spans checkpoint.SpanSet) bool {
	return !slices.ContainsFunc(spans.Spans(), func(s checkpoint.Span) bool { return !have.Covers(s) })
}

// next is the dirty sink whose turn it is, and how long it has to wait; false where none is dirty.
func (p *Publisher) next() (sink string, wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for name, c := range p.mu.sinks {
		if w := max(0, c.due.Sub(now)); c.dirty && (!ok || w < wait) {
			sink, wait, ok = name, w, true
		}
	}
	return sink, wait, ok
}

// Run writes what has changed until ctx ends, which is no error. What is left then is Flush's.
func (p *Publisher) Run(ctx context.Context) error {
	for {
		sink, wait, dirty := p.next()
		var timer <-chan time.Time
		if dirty {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.kick:
		case <-timer:
			p.attempt(ctx, sink)
		}
	}
}

// Flush writes all that has changed, and tries as long as ctx lasts, which must have an end. What is not written then is lost to
// the copies, which lag: the error says so.
func (p *Publisher) Flush(ctx context.Context) error {
	for {
		sink, _, dirty := p.next()
		if !dirty {
			return nil
		}
		if p.attempt(ctx, sink) == nil {
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the copy of the coverage of %s lags: %w", sink, p.Err())
		}
	}
}

// attempt writes a sink's copy once, and pauses where that failed: what is away for one sink is away for all.
func (p *Publisher) attempt(ctx context.Context, sink string) error {
	err := p.write(ctx, sink)
	p.mu.Lock()
	p.mu.err = err
	if err == nil {
		p.mu.sinks[sink].due = time.Now().Add(p.opt.Every)
	}
	p.mu.Unlock()
	if err == nil {
		p.opt.Retry.Reset()
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(p.opt.Retry.Next(p.opt.Rand())):
	}
	return err
}

// write replaces the copy. What comes while it is on its way makes the sink dirty again.
func (p *Publisher) write(ctx context.Context, sink string) error {
	key := dir(p.opt.Stream, sink) + p.opt.Node + suffix
	if err := p.join(ctx, sink, key); err != nil {
		return err
	}
	p.mu.Lock()
	c := p.mu.sinks[sink]
	body, err := encode(p.opt.Stream, sink, p.opt.Node, c.set, time.Now())
	c.dirty = false
	p.mu.Unlock()
	if err == nil {
		err = p.opt.Bucket.Replace(ctx, key, body)
	}
	if err == nil {
		return nil
	}
	p.mu.Lock()
	c.dirty = true
	p.mu.Unlock()
	return fmt.Errorf("writing the coverage of %s: %w", sink, err)
}

// join takes over, before the first write, what a former run of this process has written: replacing it would forget that. A copy
// that is damaged is replaced: it can only lag.
func (p *Publisher) join(ctx context.Context, sink, key string) error {
	p.mu.Lock()
	joined := p.mu.sinks[sink].joined
	p.mu.Unlock()
	if joined {
		return nil
	}
	former := Set{}
	body, err := p.opt.Bucket.Read(ctx, key)
	if err == nil {
		err = decode(body, former)
	}
	switch {
	case errors.Is(err, avrofile.ErrDamaged):
		p.opt.Log.Warn("a copy of coverage is damaged and begins anew", "sink", sink, "key", key, "error", err)
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("reading the coverage of %s: %w", sink, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.mu.sinks[sink]
	for part, spans := range former {
		c.set.add(part, spans)
	}
	c.joined = true
	return nil
}

// Err is how the last write ended; nil where it succeeded.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.err
}
