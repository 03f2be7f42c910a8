package kafka

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/record"
)

// fetcher asks one broker for the partitions that it leads, one request at a time. It asks again as soon as less than a
// request's worth waits to be decoded, so that a broker costs at most two of them in memory.
type fetcher struct {
	id       int32
	buffered int64 // bytes of chunks from this broker that are not decoded
	turn     int   // which partition stands first: a broker fills its answer in the order asked
	faults   int
	rest     time.Time
}

// asked is what a request asked of one partition.
type asked struct {
	part *part
	at   int64
}

func (s *Source) fetch(f *fetcher) {
	for {
		req, parts := s.compose(f)
		if req == nil {
			return
		}
		resp, err := s.wire.fetch(s.ctx, f.id, req)
		s.absorb(f, parts, resp, err)
	}
}

// compose waits until there is something to ask for; nil ends.
func (s *Source) compose(f *fetcher) (*kmsg.FetchRequest, []asked) {
	for {
		s.mu.Lock()
		due, wait := s.due(f, time.Now())
		changed := s.changed
		if len(due) > 0 {
			req := s.request(due)
			s.mu.Unlock()
			return req, due
		}
		s.mu.Unlock()
		if sleep(s.ctx, wait, changed) != nil {
			return nil, nil
		}
	}
}

// due lists what may be asked of the broker now, beginning with another partition each time; and how long to wait where nothing
// may.
func (s *Source) due(f *fetcher, now time.Time) (due []asked, wait time.Duration) {
	if s.foreign || f.buffered >= s.o.Fetch.MaxBytes {
		return nil, 0
	}
	later := func(t time.Time) bool {
		d := t.Sub(now)
		if d > 0 && (wait == 0 || d < wait) {
			wait = d
		}
		return d > 0
	}
	if later(f.rest) {
		return nil, wait
	}
	for i := range s.order {
		p := s.order[(i+f.turn)%len(s.order)]
		if p.state != reading || p.leaving || p.asking || p.led.broker != f.id || later(p.rest) {
			continue
		}
		due = append(due, asked{p, p.ask})
	}
	f.turn++
	return due, wait
}

func (s *Source) request(due []asked) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(s.o.Fetch.MaxWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = int32(s.o.Fetch.MaxBytes)
	if s.o.committed() {
		req.IsolationLevel = 1
	}
	at := map[string]int{}
	for _, a := range due {
		i, ok := at[a.part.topic]
		if !ok {
			i = len(req.Topics)
			at[a.part.topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = a.part.topic, a.part.id.TopicID
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.CurrentLeaderEpoch = a.part.number, a.at, a.part.led.epoch
		p.PartitionMaxBytes = req.MaxBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
		a.part.asking = true
	}
	return req
}

// absorb takes in the answer, for the parts that still are where they were when it was asked for.
func (s *Source) absorb(f *fetcher, parts []asked, resp *kmsg.FetchResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	for _, a := range parts {
		a.part.asking = false
	}
	if err != nil {
		f.faults++
		f.rest = time.Now().Add(backoff(f.faults))
		s.look()
		return
	}
	f.faults = 0
	questions := s.questions(parts)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			if a, ok := questions[question{t.Topic, t.TopicID, rp.Partition}]; ok && s.current(a) {
				s.land(f, a.part, rp)
			}
		}
	}
}

// question finds again what was asked: answers name the topic by name or by id, as the version of the protocol has it.
type question struct {
	topic  string
	id     [16]byte
	number int32
}

func (s *Source) questions(parts []asked) map[question]asked {
	out := make(map[question]asked, 2*len(parts))
	for _, a := range parts {
		out[question{topic: a.part.topic, number: a.part.number}] = a
		out[question{id: a.part.id.TopicID, number: a.part.number}] = a
	}
	return out
}

// current reports whether the part still waits for this answer.
func (s *Source) current(a asked) bool {
	p := a.part
	return s.parts[p.key] == p && p.state == reading && !p.leaving && p.ask == a.at
}

// backoff is how long to leave alone what failed n times in a row.
func backoff(n int) time.Duration { return min(50*time.Millisecond<<min(n, 7), recheckEvery) }

// land takes in the answer for one partition.
func (s *Source) land(f *fetcher, p *part, rp *kmsg.FetchResponseTopicPartition) {
	err := kerr.ErrorForCode(rp.ErrorCode)
	switch {
	case err == nil:
		p.faults = 0
		s.seeEnd(p, rp)
		s.addChunk(f, p, rp)
	case errors.Is(err, kerr.OffsetOutOfRange):
		s.doubt(p)
	case kerr.IsRetriable(err), errors.Is(err, kerr.FencedLeaderEpoch), errors.Is(err, kerr.UnknownLeaderEpoch):
		p.faults++
		p.rest = time.Now().Add(backoff(p.faults))
		s.look()
	default:
		p.broken = fmt.Sprintf("the broker does not give us records from offset %d on: %v", p.ask, err)
		s.doubt(p)
	}
}

// seeEnd notes where the log ends for a reader of our isolation.
func (s *Source) seeEnd(p *part, rp *kmsg.FetchResponseTopicPartition) {
	end := rp.HighWatermark
	if s.o.committed() && rp.LastStableOffset >= 0 {
		end = rp.LastStableOffset
	}
	if end != p.end {
		p.end, s.ends = end, true
	}
}

func (s *Source) addChunk(f *fetcher, p *part, rp *kmsg.FetchResponseTopicPartition) {
	size, next, epoch := scan(rp.RecordBatches, p.ask)
	if size == 0 {
		return
	}
	c := &chunk{part: p, broker: f.id, raw: rp.RecordBatches[:size:size], size: int64(size), at: p.ask, hide: s.o.committed()}
	if c.hide {
		c.aborts = newAborter(rp.AbortedTransactions)
	}
	p.ask = next
	if epoch >= 0 {
		p.askEpoch = epoch
	}
	f.buffered += c.size
	s.pending = append(s.pending, c)
}

// decode keeps a few batches ready for the receiver.
func (s *Source) decode() {
	d := &decoder{}
	for {
		c := s.nextChunk()
		if c == nil {
			return
		}
		b, err := d.next(c)
		s.deliver(c, b, err)
	}
}

// nextChunk waits for something to decode; nil ends. The chunk stays in front until it is used up.
func (s *Source) nextChunk() *chunk {
	for {
		s.mu.Lock()
		changed := s.changed
		if len(s.pending) > 0 && s.waiting < readyBytes {
			c := s.pending[0]
			s.mu.Unlock()
			return c
		}
		s.mu.Unlock()
		if sleep(s.ctx, 0, changed) != nil {
			return nil
		}
	}
}

// deliver makes a decoded piece ready, if somebody still wants it.
func (s *Source) deliver(c *chunk, b *record.Batch, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	if c.dropped {
		if b != nil {
			b.Release()
		}
		return
	}
	if b != nil {
		s.ready = append(s.ready, decoded{c.part, b})
		s.waiting += b.Bytes
	}
	if err != nil {
		s.breakAt(c, err)
		return
	}
	if c.done() {
		s.drop(c)
		s.pending = s.pending[1:]
	}
}

// breakAt holds a partition in front of what cannot be decoded. What lies behind was fetched in vain.
func (s *Source) breakAt(c *chunk, err error) {
	p := c.part
	at, epoch := p.next, p.nextEpoch
	for _, d := range s.ready {
		if d.part == p {
			at, epoch = d.batch.Next, d.batch.LeaderEpoch
		}
	}
	for _, other := range s.pending {
		if other.part == p {
			s.drop(other)
		}
	}
	s.pending = slices.DeleteFunc(s.pending, func(c *chunk) bool { return c.dropped })
	p.ask, p.askEpoch, p.broken = at, epoch, err.Error()
	s.doubt(p)
}

// fetchFrom makes sure that somebody fetches from the broker.
func (s *Source) fetchFrom(broker int32) {
	if s.fetchers[broker] != nil || s.closed {
		return
	}
	f := &fetcher{id: broker}
	s.fetchers[broker] = f
	s.run.Go(func() { s.fetch(f) })
}
