package recovery_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/cuts"
	"github.com/stream-arrow/twgd/sinks/raw"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	orders = record.Partition{Cluster: "c", Topic: "orders", Number: 0}
	bills  = record.Partition{Cluster: "c", Topic: "bills", Number: 3}
	away   = &sinks.Error{Kind: sinks.Retry, Reason: "away"}
)

func sp(from, to int64) checkpoint.Span { return checkpoint.Span{From: from, To: to} }

// process is one twgd: a stream with one lane and its recovery.
type process struct {
	raw    *pipetest.Raw
	lane   *pipeline.Lane
	stream *pipeline.Stream
	agent  *recovery.Agent
	survey *recovery.Survey // nil where nothing is shared
	claims *client
	reg    *prometheus.Registry
	trail  trail
	stop   context.CancelFunc
	ended  chan error
	parts  int // that say so when they end
}

type trail struct {
	mu      sync.Mutex
	offsets map[int64]bool
}

func (r *trail) report(_ context.Context, rejects []sinks.Reject) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.offsets == nil {
		r.offsets = map[int64]bool{}
	}
	for _, j := range rejects {
		r.offsets[j.Offset] = true
	}
	return nil
}

func (r *trail) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.offsets)
}

// site is what processes share.
type site struct {
	*testing.T
	bucket *faultbucket.Bucket
	table  *pipetest.Table
	src    *pipetest.Script
	leases *leases
}

// options of one process.
type options struct {
	lane  pipeline.LaneOptions
	agent recovery.Options

	node   string // shares the site's leases under this name; empty: a process of its own
	reader bool   // reads no source
	watch  bool   // looks, and fills nothing
}

func onSite(t *testing.T, files bool, f func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{T: t, bucket: faultbucket.New(), table: pipetest.NewTable(files), src: pipetest.NewScript(), leases: newLeases(10 * time.Second)}
		f(s)
		synctest.Wait()
		if live, _, err := s.src.Heap.Live(); live != 0 || err != nil {
			s.Errorf("%d batches are not released, %v", live, err)
		}
		if wrong, loads, _ := s.table.Wrong(); len(wrong) > 0 || loads != 0 {
			s.Errorf("the sink was misused: %v, %d loads are not discarded", wrong, loads)
		}
	})
}

// cuts are those of a process of its own.
func (s *site) cuts() sinks.Cuts {
	return cuts.New(cuts.Options{Bucket: s.bucket, Stream: "s", Sink: "t", Cell: 50, Genesis: func(context.Context, record.Partition) (int64, error) { return 0, nil }})
}

// start begins a process; the site's script is its source.
func (s *site) start(opt options) *process {
	s.Helper()
	store, err := raw.Open(s.Context(), raw.Options{Bucket: s.bucket, Stream: "s", Codec: "null"})
	if err != nil {
		s.Fatal(err)
	}
	p := &process{raw: pipetest.Watch(store), ended: make(chan error, 8)}
	lo := opt.lane
	lo.Stream, lo.Name, lo.Sink, lo.Report = "s", "t", s.table, p.trail.report
	if s.table.Files {
		lo.Cuts = s.cuts()
	}
	if lo.Roll == (pipeline.Roll{}) {
		lo.Roll = pipeline.Roll{Rows: 1000, Age: 2 * time.Second}
	}
	if lo.Deadline == 0 {
		lo.Deadline = 20 * time.Second
	}
	if lo.Queue == 0 {
		lo.Queue = 1 << 20
	}
	copies := coverage.NewPublisher(coverage.Options{Bucket: s.bucket, Stream: "s", Node: "n~" + opt.node})
	if opt.node != "" {
		lo.Covered = func(p record.Partition, set checkpoint.SpanSet) { copies.Covered("t", p, set) }
	}
	p.lane = pipeline.NewLane(lo)
	po := pipeline.Options{Stream: "s", Source: s.src, Raw: p.raw, Lanes: []*pipeline.Lane{p.lane}, Budget: 1 << 20,
		Flush: pipeline.Flush{Records: 1000, Age: 100 * time.Millisecond}}
	if opt.reader {
		po.Source = nil
	}
	p.stream, p.reg = pipeline.New(po), prometheus.NewRegistry()
	ao := opt.agent
	ao.Stream, ao.Lane, ao.Sink, ao.Raw, ao.Assigned = "s", p.lane, s.table, p.raw, p.stream.Assigned
	ao.Claims, ao.Deadline, ao.Metrics = new(recovery.Local), lo.Deadline, recovery.NewMetrics(p.reg)
	if ao.Window == 0 {
		ao.Window = 50
	}
	ctx, cancel := context.WithCancel(s.Context())
	p.stop = cancel
	run := func(f func(context.Context) error) {
		p.parts++
		go func() { p.ended <- f(ctx) }()
	}
	if opt.node != "" {
		p.share(s, opt, &ao, store)
		run(p.survey.Run)
		run(copies.Run)
	}
	p.agent = recovery.New(ao)
	run(p.stream.Run)
	if opt.watch {
		run(p.agent.Watch)
	} else {
		run(p.agent.Run)
	}
	synctest.Wait()
	return p
}

// share makes a process one of several.
func (p *process) share(s *site, opt options, ao *recovery.Options, store *raw.Store) {
	p.survey = recovery.NewSurvey(recovery.SurveyOptions{Raw: store, Assigned: p.stream.Assigned, Adopt: p.lane.Adopt})
	p.claims = &client{of: s.leases, node: opt.node}
	ao.Node, ao.Claims, ao.Shared, ao.Assigned, ao.Whole, ao.Weigh = opt.node, p.claims, true, p.survey.Extents, p.survey.Whole, store.Weigh
	ao.Copies = func(ctx context.Context) (coverage.Set, error) { return coverage.Merged(ctx, s.bucket, "s", "t") }
}

// speak lets the process speak for the stream until the function returned is called.
func (s *site) speak(p *process) (resign func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var speaking sync.WaitGroup
	speaking.Go(func() { p.agent.Speak(ctx) })
	speaking.Go(func() { _ = coverage.Merger{Bucket: s.bucket, Stream: "s", Sinks: []string{"t"}}.Run(ctx) })
	synctest.Wait()
	return func() {
		cancel()
		speaking.Wait()
	}
}

// metrics are what a process shows of recovery: windows, records, bytes, oldest_seconds, and windows_total by reason.
func (p *process) metrics() map[string]float64 {
	families, err := p.reg.Gather()
	if err != nil {
		panic(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "twg_recovery_backlog_")
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" {
					name = l.GetValue()
				}
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// end stops a process.
func (s *site) end(p *process) {
	s.Helper()
	p.stop()
	for range p.parts {
		if err := <-p.ended; err != nil {
			s.Error(err)
		}
	}
	if n := p.lane.Status().QueueBytes; n != 0 {
		s.Errorf("the lane still counts %d bytes", n)
	}
}

func (s *site) assign(p record.Partition) uint64 {
	s.Helper()
	epoch, _, err := s.src.Assign(s.Context(), p, 0)
	if err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
	return epoch
}

// complete checks that the destination has every record of [0, next), once.
func (s *site) complete(p record.Partition, next int64) {
	s.Helper()
	have := s.table.Rows(p)
	for o := int64(0); o < next; o++ {
		if want := map[bool]int{true: 1}[pipetest.Present(o)]; have[o] != want {
			s.Errorf("offset %d is there %d times", o, have[o])
			return
		}
		delete(have, o)
	}
	if len(have) > 0 {
		s.Errorf("rows that should not be there: %v", have)
	}
}

func (s *site) rows(p record.Partition, want int) {
	s.Helper()
	synctest.Wait()
	if got := len(s.table.Rows(p)); got != want {
		s.Errorf("%d rows, want %d", got, want)
	}
}

func on(op string, err error) func(context.Context, string) error {
	return func(_ context.Context, o string) error {
		if o == op {
			return err
		}
		return nil
	}
}
