package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// key names a partition as a group assigns it: whatever topic has that name now.
type key struct {
	topic  string
	number int32
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.topic, o.topic), cmp.Compare(k.number, o.number))
}

// part is one assignment of a partition. Another assignment, even of the same partition, is another part, so that whatever is
// still on its way for this one finds nobody.
//
// Invariants: chunks and ready batches of a part follow each other without a hole from next to ask. Nothing is fetched unless
// its state is reading, and it becomes reading only when the log was found to be the one that was read up to ask.
type part struct {
	key
	id     record.Partition // without a topic id until the topic was seen
	epoch  uint64
	cancel context.CancelFunc
	ended  chan struct{}   // closed when tend has returned
	after  <-chan struct{} // closed when the part that this one replaces has ended
	wake   chan struct{}   // tells tend that the state is checking

	state    state
	assigned bool // the receiver was told
	leaving  bool // revoked, but the next owner still waits for us: commits are allowed, nothing is read

	head      int64 // what is stored, as the gate said
	stored    bool
	next      int64 // what the receiver has been given
	nextEpoch int32 // the leader epoch of the record before next, -1 where it is not known
	ask       int64 // what was fetched
	askEpoch  int32
	led       leader // the leader that the log was compared with
	atLeast   int64  // the receiver has seen another writer's data up to here
	asking    bool   // a request is on its way
	rest      time.Time
	faults    int    // errors in a row
	broken    string // why what was fetched cannot be decoded
	held      string // the reason that was reported
	end       int64  // of the log; -1 until it is known
}

type state uint8

const (
	starting state = iota // the topic or the gate has not answered
	checking              // the log must be compared with what was read
	reading
)

// adopt makes parts for keys, and tends them. It is called with mu held.
func (s *Source) adopt(keys ...key) {
	for _, k := range keys {
		s.adoptOne(k, -1)
	}
}

func (s *Source) adoptOne(k key, atLeast int64) {
	if s.closed {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	p := &part{key: k, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1), end: -1, atLeast: atLeast}
	if old := s.parts[k]; old != nil {
		p.after = old.ended
		s.remove(old)
	}
	s.parts[k] = p
	s.sortParts()
	s.run.Go(func() { s.tend(ctx, p) })
}

// remove forgets a part. Its batches that nobody took are gone.
func (s *Source) remove(p *part) {
	p.cancel()
	s.discard(p)
	if s.parts[p.key] == p {
		delete(s.parts, p.key)
		s.sortParts()
	}
}

func (s *Source) sortParts() {
	s.order = s.order[:0]
	for _, p := range s.parts {
		s.order = append(s.order, p)
	}
	slices.SortFunc(s.order, func(a, b *part) int { return a.key.compare(b.key) })
	s.notify()
}

// discard drops what was fetched of p and not taken, so that it goes on at next.
func (s *Source) discard(p *part) (some bool) {
	for _, c := range s.pending {
		if c.part == p && !c.dropped {
			s.drop(c)
			some = true
		}
	}
	s.pending = slices.DeleteFunc(s.pending, func(c *chunk) bool { return c.dropped })
	for _, d := range s.ready {
		if d.part == p {
			s.waiting -= d.batch.Bytes
			d.batch.Release()
			some = true
		}
	}
	s.ready = slices.DeleteFunc(s.ready, func(d decoded) bool { return d.part == p })
	p.ask, p.askEpoch = p.next, p.nextEpoch
	s.notify()
	return some
}

func (s *Source) drop(c *chunk) {
	c.dropped = true
	if f := s.fetchers[c.broker]; f != nil {
		f.buffered -= c.size
	}
}

// doubt stops reading of p until its log was compared again.
func (s *Source) doubt(p *part) {
	p.state = checking
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// tend looks after one part for as long as it is ours.
func (s *Source) tend(ctx context.Context, p *part) {
	defer close(p.ended)
	if p.after != nil {
		<-p.after
	}
	if err := s.identify(ctx, p); err != nil {
		return
	}
	if err := s.place(ctx, p); err != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			s.settle(ctx, p)
		}
	}
}

// identify waits until the topic and the partition are there, and gives the part its identity.
func (s *Source) identify(ctx context.Context, p *part) error {
	for {
		s.mu.Lock()
		t, ok := s.topics[p.topic]
		if _, there := t.partitions[p.number]; ok && t.err == nil && there {
			p.id = record.Partition{Cluster: s.cluster, Topic: p.topic, TopicID: t.id, Number: p.number}
			s.mu.Unlock()
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		if err := sleep(ctx, 0, changed); err != nil {
			return err
		}
	}
}

// place asks the gate where to begin, and tells the receiver that the partition is ours.
func (s *Source) place(ctx context.Context, p *part) error {
	start, err := s.gate(ctx, p.id, func(ctx context.Context) (int64, error) { return s.genesis(ctx, p) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.epochs++
	p.epoch, p.head, p.stored, p.next, p.nextEpoch = s.epochs, start.Next, start.Stored, start.Next, start.LeaderEpoch
	if !start.Stored {
		p.nextEpoch = -1
	}
	if p.atLeast > p.next {
		p.next, p.nextEpoch = p.atLeast, -1
	}
	p.ask, p.askEpoch, p.assigned = p.next, p.nextEpoch, true
	s.tell(sources.Assigned{Partitions: []sources.Assignment{{Partition: p.id, Epoch: p.epoch, Next: p.next}}})
	s.compareCommit(p)
	s.doubt(p)
	return nil
}

// genesis is the offset that a chain of p begins with, where there is none: what the stream's first start fixed, or the log's
// start. It does not give up before ctx ends.
func (s *Source) genesis(ctx context.Context, p *part) (int64, error) {
	s.mu.Lock()
	at, ok := s.fixed[p.id]
	s.mu.Unlock()
	for wait := 100 * time.Millisecond; !ok; wait = min(2*wait, recheckEvery) {
		var err error
		if at, err = s.wire.from(ctx, s.spot(p), askEarliest); err == nil {
			break
		}
		s.look()
		if sleep(ctx, wait, nil) != nil {
			return 0, fmt.Errorf("asking for the start of %s: %w", p.id, err)
		}
	}
	return at, nil
}

// spot is where to ask about p now.
func (s *Source) spot(p *part) spot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return spot{p.topic, p.number, s.leaderOf(p)}
}

func (s *Source) leaderOf(p *part) leader {
	if t, ok := s.topics[p.topic]; ok && t.err == nil && t.id == p.id.TopicID {
		if l, ok := t.partitions[p.number]; ok {
			return l
		}
	}
	return leader{-1, -1}
}

// settle compares the log with what was read of it until they are found to agree. What keeps them from it is reported as the
// reason why the partition is held; a doubt that goes away by itself within a second is not worth a word.
func (s *Source) settle(ctx context.Context, p *part) {
	for doubts := 0; ; doubts++ {
		s.mu.Lock()
		at, broken := place{p.ask, p.askEpoch}, p.broken
		s.mu.Unlock()
		reason, wait := broken, brokenEvery
		if broken == "" {
			var done bool
			if reason, wait, done = s.compare(ctx, p, at, doubts); done || ctx.Err() != nil {
				return
			}
		}
		if reason != "" {
			s.hold(ctx, p, reason)
		}
		if sleep(ctx, wait, nil) != nil {
			return
		}
		s.mu.Lock()
		p.broken = ""
		s.mu.Unlock()
	}
}

// brokenEvery is how often a batch that could not be decoded is fetched again.
const brokenEvery = time.Minute

// quiet is the number of doubts in a row that are not reported.
const quiet = 2

// compare asks the log once, and does what follows from it. Where it is not done it says why, and when to ask again.
func (s *Source) compare(ctx context.Context, p *part, at place, doubts int) (reason string, wait time.Duration, done bool) {
	spot := s.spot(p)
	log, err := s.wire.extent(ctx, spot, at)
	if err != nil {
		return s.cannotAsk(err, doubts)
	}
	v := judge(at, log, s.o.OnGap == GapStop)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil || p.ask != at.next:
		return "", time.Millisecond, ctx.Err() != nil
	case s.leaderOf(p) != spot.leader: // the answer is of yesterday
		return "", refreshAfter, false
	case v.act == hold && s.discard(p): // perhaps only what the receiver has not seen is gone: then nothing is lost
		return "", time.Millisecond, false
	case v.act == hold && doubts < quiet:
		return "", time.Second / 2, false
	case v.act == hold:
		return v.reason, recheckEvery, false
	case v.act == skip:
		s.addGap(p, v.resume)
	}
	s.resume(p, spot.leader)
	return "", 0, true
}

func (s *Source) cannotAsk(err error, doubts int) (reason string, wait time.Duration, done bool) {
	s.look()
	wait = min(refreshAfter<<min(doubts, 5), recheckEvery)
	switch {
	case denied(err):
		return fmt.Sprintf("the broker refuses us: %v", err), recheckEvery, false
	case doubts < 3 || !answered(err): // no answer at all is the source's trouble, and told as such
		return "", wait, false
	}
	return fmt.Sprintf("the log cannot be checked: %v", err), wait, false
}

// answered reports whether err is a broker's answer.
func answered(err error) bool {
	var e *kerr.Error
	return errors.As(err, &e)
}

func (s *Source) addGap(p *part, resume int64) {
	s.pending = append(s.pending, &chunk{part: p, broker: -1, at: p.ask, gap: "retention", gapEnd: resume})
	p.ask, p.askEpoch = resume, -1
}

// resume begins to read p from its leader.
func (s *Source) resume(p *part, l leader) {
	s.fetchFrom(l.broker)
	p.state, p.led, p.faults, p.rest = reading, l, 0, time.Time{}
	if p.held != "" {
		p.held = ""
		s.tell(sources.Held{Partition: p.id})
	}
	s.notify()
}

// hold reports why p is not read, once for each reason.
func (s *Source) hold(ctx context.Context, p *part, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || p.held == reason || p.leaving {
		return
	}
	p.held = reason
	s.tell(sources.Held{Partition: p.id, Reason: reason})
}
