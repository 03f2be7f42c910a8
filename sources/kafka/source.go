// Package kafka reads topics of Apache Kafka, and of what speaks its protocol, as a source of the pipeline.
//
// The client library carries the connections and the group membership; what is fetched, and from where, is decided here. A
// partition's position is the gate's alone, so nothing may move it on its own: not a reset after an offset out of range, not a
// rewind after a truncation, not a topic of the same name. And a record must arrive as it is in the log: the library's own
// records hold time in nanoseconds, which wraps for timestamps that are merely absurd.
//
// Who does what:
//
//	watch       asks for leaders, topic ids and the cluster's id every few seconds, and notices recreated topics
//	a member    holds the membership of the group, and fetches nothing
//	tend        one a partition: asks the gate where to begin and compares the log with what was read, whenever that is in doubt
//	a fetcher   one a broker: keeps one request on its way, and what it brought compressed until it is wanted
//	decode      turns what was fetched into batches, a few ahead of the receiver
//
// All of them share Source.mu and what it guards; none holds it while it waits.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// ErrClosed is what Next returns after Close.
var ErrClosed = errors.New("the source is closed")

// Times that nobody needs to configure.
const (
	refreshEvery = 5 * time.Second        // how old leaders, topic ids and lists of topics may be
	refreshAfter = 100 * time.Millisecond // how soon they may be asked for again when something is wrong
	recheckEvery = 5 * time.Second        // how often a held partition is looked at again
	endsEvery    = time.Second            // how often the ends of the logs are reported
	revokeBound  = 10 * time.Second       // how long a revocation may wait for what is open, at most
)

// readyBytes is how much is decoded ahead of the receiver.
const readyBytes = 8 << 20

// Source reads one stream. See sources.Source.
type Source struct {
	o      Options
	wire   *wire
	dialed *dialed
	gate   sources.Gate
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	nudge  chan struct{} // asks watch to look at once
	run    sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, whenever something below changed that somebody may wait for

	cluster string           // as partitions carry it; empty until a broker has answered
	topics  map[string]topic // those that the stream wants, as of the last look
	missing map[string]int   // topics that are named but not there: how often in a row
	fixed   map[record.Partition]int64
	other   string // another member of a group that should have us alone
	foreign bool   // the brokers belong to another cluster now: nothing is fetched
	brokers health
	group   health

	parts    map[key]*part
	order    []*part // parts by topic and number
	epochs   uint64
	fetchers map[int32]*fetcher
	member   *member
	commits  map[key]commit // what the group's coordinator keeps, as of the last assignment

	pending []*chunk // fetched, in the order of arrival
	ready   []decoded
	waiting int64 // bytes of ready
	events  []sources.Event
	ends    bool // an end has moved since they were reported
	endsAt  time.Time
	paused  bool
	closed  bool
}

var _ sources.Source = (*Source)(nil)

type decoded struct {
	part  *part
	batch *record.Batch
}

// New prepares a source. It reads the files that the options name, and connects to nothing.
func New(o Options) (*Source, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	d := &dialed{}
	w, err := newWire(&o, d)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Source{
		o: o, wire: w, dialed: d, ctx: ctx, stop: stop, nudge: make(chan struct{}, 1), changed: make(chan struct{}),
		missing: map[string]int{}, parts: map[key]*part{}, fetchers: map[int32]*fetcher{}, commits: map[key]commit{},
	}, nil
}

func newWire(o *Options, hooks ...kgo.Hook) (*wire, error) {
	opts, err := o.dialOptions(o.Logger, hooks...)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	w := &wire{Client: cl}
	if o.committed() {
		w.isolation = 1
	}
	return w, nil
}

// Traits of every Kafka source.
func (s *Source) Traits() sources.Traits { return sources.Traits{Kind: "kafka", Replayable: true} }

// Open begins to connect and returns at once: a broker that is away is reported by Next, and comes back by itself.
func (s *Source) Open(_ context.Context, gate sources.Gate) error {
	s.gate = gate
	s.run.Go(s.watch)
	s.run.Go(s.decode)
	s.run.Go(s.begin)
	if s.o.Alone && s.o.Group != "" {
		s.run.Go(s.watchAlone)
	}
	return nil
}

// Next waits for what happens next: first what concerns assignments, in order, then what was read.
func (s *Source) Next(ctx context.Context) (sources.Event, error) {
	for {
		s.mu.Lock()
		e, wait := s.take(time.Now())
		changed, closed := s.changed, s.closed
		s.mu.Unlock()
		switch {
		case e != nil:
			return e, nil
		case closed:
			return nil, ErrClosed
		}
		if err := sleep(ctx, wait, changed); err != nil {
			return nil, err
		}
	}
}

// take is the event that is due, or how long until one may be; 0 is until something changes.
func (s *Source) take(now time.Time) (sources.Event, time.Duration) {
	if len(s.events) > 0 {
		e := s.events[0]
		s.events = s.events[1:]
		return e, 0
	}
	if len(s.ready) > 0 && !s.paused {
		return s.takeReady(), 0
	}
	if !s.ends {
		return nil, 0
	}
	if wait := s.endsAt.Add(endsEvery).Sub(now); wait > 0 {
		return nil, wait
	}
	return s.takeEnds(now), 0
}

func (s *Source) takeReady() sources.Event {
	e := sources.Polled{Batches: make([]*record.Batch, len(s.ready))}
	for i, d := range s.ready {
		e.Batches[i] = d.batch
		d.part.next, d.part.nextEpoch = d.batch.Next, d.batch.LeaderEpoch
	}
	clear(s.ready)
	s.ready, s.waiting = s.ready[:0], 0
	s.notify()
	return e
}

func (s *Source) takeEnds(now time.Time) sources.Event {
	e := sources.Ends{Ends: map[record.Partition]int64{}}
	for _, p := range s.order {
		if p.assigned && !p.leaving && p.end >= 0 {
			e.Ends[p.id] = p.end
		}
	}
	s.ends, s.endsAt = false, now
	return e
}

// Pause stops delivery of records. Until the read-ahead is full fetching goes on, so that resuming is quick.
func (s *Source) Pause() { s.setPaused(true) }

// Resume ends Pause.
func (s *Source) Resume() { s.setPaused(false) }

func (s *Source) setPaused(v bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = v
	s.notify()
}

// Buffered is the memory of what was read ahead and not delivered: compressed as it came, or decoded.
func (s *Source) Buffered() (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.fetchers {
		bytes += f.buffered
	}
	return bytes + s.waiting
}

// Close leaves the group, while ctx lasts, and ends everything. Revocations on the way are not reported: whoever closes has
// flushed and committed already.
func (s *Source) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	m := s.member
	s.notify()
	s.mu.Unlock()
	s.stop() // before the group is left, so that nobody begins what would be left again
	var err error
	if m != nil {
		err = m.leave(ctx)
	}
	s.run.Wait()
	s.wire.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.order {
		s.discard(p)
	}
	if err != nil {
		return fmt.Errorf("leaving group %s: %w", s.o.Group, err)
	}
	return nil
}

// notify wakes all who wait for a change.
func (s *Source) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// tell queues an event. Assignments that come together are told together.
func (s *Source) tell(e sources.Event) {
	if a, ok := e.(sources.Assigned); ok && len(s.events) > 0 {
		if last, ok := s.events[len(s.events)-1].(sources.Assigned); ok {
			last.Partitions = slices.Concat(last.Partitions, a.Partitions)
			s.events[len(s.events)-1] = last
			return
		}
	}
	s.events = append(s.events, e)
	s.notify()
}

// sleep waits for d, where it is not 0, or until changed is closed. It returns the error of ctx.
func sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	var due <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-due:
	}
	return nil
}
