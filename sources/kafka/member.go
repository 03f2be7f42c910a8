package kafka

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// member is our membership of the group: a client that joins, answers heartbeats and commits, and fetches nothing, because it
// is never told where to. A rebalance therefore disturbs only the partitions that it moves, and waits for nobody but the
// receiver that lets go of them.
type member struct {
	*kgo.Client
	cancel context.CancelFunc
	ended  chan struct{}
}

// join becomes a member. It connects in the background. It is called with mu held.
func (s *Source) join() *member {
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{cancel: cancel, ended: make(chan struct{})}
	cl, err := kgo.NewClient(s.memberOptions(ctx, m)...)
	if err != nil { // the options were good for the other client, so these are wrong for good
		s.tell(sources.Held{Partition: s.whole(), Reason: fmt.Sprintf("joining group %s: %v", s.o.Group, err)})
		cancel()
		return nil
	}
	m.Client = cl
	s.run.Go(func() { s.listen(ctx, m) })
	return m
}

func (s *Source) memberOptions(ctx context.Context, m *member) []kgo.Opt {
	opts, _ := s.o.dialOptions(s.o.Logger, s.dialed) // New has seen that these are good
	names := s.o.names()
	if s.o.TopicsRegex != "" {
		names = []string{s.o.TopicsRegex}
		opts = append(opts, kgo.ConsumeRegex())
	}
	mine := func(f func(map[string][]int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			if s.memberIs(m) {
				f(parts)
			}
		}
	}
	if s.idless() {
		opts = append(opts, kgo.MaxVersions(commitsByName()))
	}
	return append(opts,
		kgo.WithContext(ctx), kgo.ConsumerGroup(s.o.Group), kgo.ConsumeTopics(names...),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(s.o.SessionTimeout), kgo.HeartbeatInterval(min(3*time.Second, s.o.SessionTimeout/3)),
		kgo.MetadataMaxAge(refreshEvery), kgo.MetadataMinAge(time.Second), // new partitions and topics are found by this
		kgo.MaxConcurrentFetches(0),
		kgo.OnPartitionsAssigned(mine(s.onAssigned)), kgo.OnPartitionsRevoked(mine(s.onRevoked)), kgo.OnPartitionsLost(mine(s.onLost)),
		kgo.OnOffsetsFetched(func(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
			s.onOffsets(resp)
			return nil
		}),
		kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil
		}))
}

// memberIs reports whether m is the membership that counts. The library calls back before join has returned, too.
func (s *Source) memberIs(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.member == m && !s.closed
}

// unjoined is how long a member that the group has not taken in yet waits to leave. Its request to join is answered only when the
// group has given up a member that died, and nothing was assigned that others would wait for.
const unjoined = 5 * time.Second

// leave ends the membership, and waits for the group to know it while ctx lasts.
func (m *member) leave(ctx context.Context) error {
	err := m.say(ctx)
	m.cancel()
	m.Close()
	<-m.ended
	return err
}

// say tells the group that this member leaves.
func (m *member) say(ctx context.Context) error {
	if _, generation := m.GroupMetadata(); generation >= 0 {
		return m.LeaveGroupContext(ctx)
	}
	asking, cancel := context.WithTimeout(ctx, unjoined)
	defer cancel()
	if err := m.LeaveGroupContext(asking); asking.Err() == nil {
		return err
	}
	return ctx.Err()
}

// listen hears what the group has to complain about.
func (s *Source) listen(ctx context.Context, m *member) {
	defer close(m.ended)
	for {
		fetches := m.PollFetches(ctx)
		if fetches.IsClientClosed() || ctx.Err() != nil {
			return
		}
		for _, f := range fetches.Errors() {
			s.complain(f.Err)
		}
	}
}

func (s *Source) complain(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !answered(err) { // watch tells about brokers that are away
		return
	}
	if s.group.failed() {
		s.tell(sources.Notice{Kind: "source_down", Text: fmt.Sprintf("group %s: %v", s.o.Group, err), Partition: s.whole()})
	}
}

func keysOf(parts map[string][]int32) (keys []key) {
	for topic, numbers := range parts {
		for _, n := range numbers {
			keys = append(keys, key{topic, n})
		}
	}
	return keys
}

func (s *Source) onAssigned(parts map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group.reached() {
		s.tell(sources.Notice{Kind: "source_up", Text: fmt.Sprintf("group %s: joined", s.o.Group), Partition: s.whole()})
	}
	s.lose(keysOf(parts)) // nothing, unless the library has assigned again what it never revoked
	s.adopt(keysOf(parts)...)
	s.look()
}

// onRevoked keeps the next owner waiting until the receiver has let go, or a bound has passed.
func (s *Source) onRevoked(parts map[string][]int32) {
	s.mu.Lock()
	gone, done := s.part(keysOf(parts))
	s.mu.Unlock()
	if done != nil {
		s.waitDone(done)
	}
	s.forget(gone)
}

// part begins to part with what is assigned under keys. done is nil where the receiver need not be asked.
func (s *Source) part(keys []key) (gone []*part, done <-chan struct{}) {
	var told []record.Partition
	for _, k := range keys {
		p := s.parts[k]
		if p == nil {
			continue
		}
		gone = append(gone, p)
		p.cancel()
		s.discard(p)
		p.leaving = true
		if p.assigned {
			told = append(told, p.id)
		}
	}
	if len(told) == 0 {
		return gone, nil
	}
	let := make(chan struct{})
	s.tell(sources.Revoked{Partitions: told, Done: sync.OnceFunc(func() { close(let) })})
	return gone, let
}

func (s *Source) forget(gone []*part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range gone {
		s.remove(p)
	}
}

func (s *Source) onLost(parts map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(keysOf(parts))
}

// lose ends assignments that are somebody else's already.
func (s *Source) lose(keys []key) {
	var told []record.Partition
	for _, k := range keys {
		p := s.parts[k]
		if p == nil {
			continue
		}
		s.remove(p)
		if p.assigned && !p.leaving {
			told = append(told, p.id)
		}
	}
	if len(told) > 0 {
		s.tell(sources.Revoked{Partitions: told, Lost: true, Done: func() {}})
	}
}

// ours begins the metadata of our commits; what follows is the name of the last segment.
const ours = "twgd first="

// onOffsets sees what the group's coordinator keeps of the partitions that came to us.
func (s *Source) onOffsets(resp *kmsg.OffsetFetchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, err := readCommits(resp, s.topics)
	if err != nil {
		return // a hint that is missing is no trouble
	}
	for k, c := range seen {
		s.commits[k] = c
		if p := s.parts[k]; p != nil && p.assigned && !p.leaving {
			s.compareCommit(p)
		}
	}
}

// compareCommit tells when somebody else has moved the group's offset. It changes nothing: the gate knows where we are. An older
// commit of our own is how it always is after a crash.
func (s *Source) compareCommit(p *part) {
	c, ok := s.commits[p.key]
	delete(s.commits, p.key)
	head := p.head
	if !ok || !p.stored || c.offset == head || strings.HasPrefix(c.metadata, ours) && c.offset < head {
		return
	}
	s.tell(sources.Notice{Kind: "offset_ignored", Partition: p.id, Span: checkpoint.Span{From: min(c.offset, head), To: max(c.offset, head)},
		Text: fmt.Sprintf("the group's offset of %s is %d, but %d is stored: the group's offset is ignored", p.id, c.offset, head)})
}

// Seek lets go of the partition and begins it again, at next or behind.
func (s *Source) Seek(id record.Partition, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[key{id.Topic, id.Number}]
	if p == nil || p.id != id || p.leaving || s.closed {
		return
	}
	_, done := s.part([]key{p.key})
	s.run.Go(func() {
		if done != nil {
			s.waitDone(done)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.parts[p.key] == p {
			s.adoptOne(p.key, next)
		}
	})
}

// Rejoin lets go of everything, which is somebody else's already, and takes part anew.
func (s *Source) Rejoin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.o.Group != "" && s.member == nil {
		return
	}
	var keys []key
	for _, p := range s.order {
		keys = append(keys, p.key)
	}
	s.lose(keys)
	m := s.member
	s.member = nil
	s.run.Go(func() {
		if m != nil {
			ctx, cancel := context.WithTimeout(s.ctx, patience)
			if err := m.leave(ctx); err != nil {
				s.o.Logger.Warn("leaving the group to join it again", "error", err)
			}
			cancel()
		}
		s.takePart()
	})
}
