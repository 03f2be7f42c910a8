package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
	"github.com/stream-arrow/twgd/sinks/raw"
)

// fleet is the part of a story that several agents play: nodes which read nothing come, are killed, lose their claims, and are paused
// while others take their windows.
type fleet struct {
	leases  *leases
	size    int
	names   int
	members []*member
}

type member struct {
	client *client
	stream *pipeline.Stream
	gate   *pipetest.Raw
	lanes  []*pipeline.Lane
	stop   context.CancelFunc
	ended  sync.WaitGroup
	killed bool
}

// sharing makes the options of an agent those of one of several.
func (s *story) sharing(o recovery.Options, c *client, store *raw.Store, stream *pipeline.Stream, lanes []*pipeline.Lane) (recovery.Options, *recovery.Survey) {
	survey := recovery.NewSurvey(recovery.SurveyOptions{Raw: store, Assigned: stream.Assigned, Adopt: func(p record.Partition) {
		for _, l := range lanes {
			l.Adopt(p)
		}
	}})
	o.Node, o.Claims, o.Shared, o.Assigned, o.Whole, o.Exclusive = c.node, c, true, survey.Extents, survey.Whole, false
	o.Copies = func(ctx context.Context) (coverage.Set, error) {
		return coverage.Merged(ctx, s.bucket, "s", o.Lane.Name())
	}
	return o, survey
}

func (f *fleet) client() *client {
	f.names++
	return &client{of: f.leases, node: fmt.Sprintf("n%d", f.names)}
}

// muster fills the fleet up.
func (s *story) muster() {
	for len(s.fleet.members) < s.fleet.size {
		s.fleet.members = append(s.fleet.members, s.recruit())
	}
}

// recruit starts a process that only recovers.
func (s *story) recruit() *member {
	store, err := raw.Open(s.Context(), raw.Options{Bucket: s.bucket, Stream: "s", Codec: "null", ReadOnly: true})
	if err != nil {
		s.Fatal(err)
	}
	m := &member{client: s.fleet.client(), gate: pipetest.Watch(store)}
	copies := coverage.NewPublisher(coverage.Options{Bucket: s.bucket, Stream: "s", Node: m.client.node})
	for _, t := range s.tables {
		m.lanes = append(m.lanes, s.lane(t, copies))
	}
	m.stream = pipeline.New(pipeline.Options{Stream: "s", Raw: m.gate, Lanes: m.lanes, Grace: 20 * time.Second})
	ctx, cancel := context.WithCancel(s.Context())
	m.stop = cancel
	run := func(f func(context.Context) error) {
		m.ended.Go(func() {
			if err := f(ctx); err != nil && !errors.Is(err, pipeline.ErrHanging) {
				s.Errorf("%s ends with %v", m.client.node, err)
			}
		})
	}
	run(m.stream.Run)
	run(copies.Run)
	for i, l := range m.lanes {
		o, survey := s.sharing(recovery.Options{Stream: "s", Lane: l, Sink: s.tables[i], Raw: m.gate, Window: 100, Deadline: 20 * time.Second}, m.client, store, m.stream, m.lanes)
		run(survey.Run)
		run(recovery.New(o).Run)
	}
	return m
}

// dismiss ends a member, in peace or not: what it holds then nobody gives back.
func (s *story) dismiss(i int, kill bool) {
	m := s.fleet.members[i]
	s.fleet.members = append(s.fleet.members[:i:i], s.fleet.members[i+1:]...)
	if m.killed = kill; kill {
		m.client.kill()
	}
	m.client.pause(false)
	m.stop()
	m.ended.Wait()
	s.leftOf(m.stream, m.gate, m.lanes)
}

// drill is what happens to the fleet now.
func (s *story) drill() {
	f := s.fleet
	switch n := int(s.dice.N(int64(len(f.members)))); {
	case s.dice.Percent(2):
		s.dismiss(n, s.dice.Percent(60))
		s.muster()
	case s.dice.Percent(2):
		f.leases.lose()
	case s.dice.Percent(1):
		f.leases.away(true)
		time.Sleep(s.dice.Between(time.Second, 30*time.Second))
		f.leases.away(false)
	case s.dice.Percent(4):
		c := f.members[n].client
		c.pause(true)
		time.AfterFunc(s.dice.Between(f.leases.ttl, 3*f.leases.ttl), func() { c.pause(false) })
	}
}
