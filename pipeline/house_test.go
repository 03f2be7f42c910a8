package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/cuts"
	"github.com/stream-arrow/twgd/sinks/raw"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	orders = record.Partition{Cluster: "c", Topic: "orders", Number: 0}
	bills  = record.Partition{Cluster: "c", Topic: "bills", Number: 3}
)

// house is a stream over a scripted source and the real raw store, in a bubble of fake time.
type house struct {
	*testing.T
	bucket *faultbucket.Bucket
	store  *raw.Store
	raw    *pipetest.Raw
	src    *pipetest.Script
	lane   *pipeline.Lane
	table  *pipetest.Table
	trail  trail
	stream *pipeline.Stream
	cancel context.CancelFunc
	ended  chan error
	err    error
	over   bool
}

// inHouse runs f in a bubble. Afterwards the stream is stopped, and it is checked that nothing is left.
func inHouse(t *testing.T, opt pipeline.Options, f func(*house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{T: t, bucket: faultbucket.New(), src: pipetest.NewScript(), ended: make(chan error, 1)}
		h.begin(opt)
		f(h)
		h.stop()
		h.clean()
	})
}

// withLane is inHouse with one lane. With files its sink has cuts.
func withLane(t *testing.T, files bool, lo pipeline.LaneOptions, opt pipeline.Options, f func(*house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{T: t, bucket: faultbucket.New(), src: pipetest.NewScript(), ended: make(chan error, 1)}
		h.furnish(files, lo)
		opt.Lanes = []*pipeline.Lane{h.lane}
		h.begin(opt)
		f(h)
		h.stop()
		h.clean()
		idle(t, h.lane, h.table)
	})
}

func (h *house) furnish(files bool, opt pipeline.LaneOptions) {
	h.table = pipetest.NewTable(files)
	opt.Stream, opt.Name, opt.Sink = "s", "t", h.table
	if opt.Roll == (pipeline.Roll{}) {
		opt.Roll = pipeline.Roll{Rows: 1000, Age: 500 * time.Millisecond}
	}
	if opt.Deadline == 0 {
		opt.Deadline = time.Minute
	}
	if opt.Queue == 0 {
		opt.Queue = 1 << 20
	}
	if opt.Report == nil {
		opt.Report = h.trail.report
	}
	if files {
		opt.Cuts = h.cuts()
	}
	h.lane = pipeline.NewLane(opt)
}

func (h *house) cuts() sinks.Cuts {
	return cuts.New(cuts.Options{Bucket: h.bucket, Stream: "s", Sink: "t", Cell: 50, Genesis: func(context.Context, record.Partition) (int64, error) { return 0, nil }})
}

// trail keeps what was reported.
type trail struct {
	mu      sync.Mutex
	fail    error
	calls   int
	rejects map[int64]sinks.Reject
}

func (r *trail) report(_ context.Context, rejects []sinks.Reject) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.fail != nil {
		return r.fail
	}
	if r.rejects == nil {
		r.rejects = map[int64]sinks.Reject{}
	}
	for _, j := range rejects {
		r.rejects[j.Offset] = j
	}
	return nil
}

func (r *trail) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *trail) of(offset int64) sinks.Reject {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rejects[offset]
}

// at lists the offsets reported, ascending.
func (r *trail) at() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.rejects))
}

func (h *house) begin(opt pipeline.Options) {
	h.Helper()
	var err error
	if h.store, err = raw.Open(h.Context(), raw.Options{Bucket: h.bucket, Stream: "s", Codec: "null"}); err != nil {
		h.Fatal(err)
	}
	h.raw = pipetest.Watch(h.store)
	opt.Stream, opt.Source, opt.Raw = "s", h.src, h.raw
	if opt.Budget == 0 {
		opt.Budget = 1 << 20
	}
	if opt.Flush == (pipeline.Flush{}) {
		opt.Flush = pipeline.Flush{Bytes: 1 << 20, Records: 10_000, Age: 100 * time.Millisecond}
	}
	h.stream = pipeline.New(opt)
	ctx, cancel := context.WithCancel(h.Context())
	h.cancel = cancel
	go func() { h.ended <- h.stream.Run(ctx) }()
	synctest.Wait()
}

// stop ends the stream as SIGTERM does, and returns what Run returned and how long it took.
func (h *house) stop() (time.Duration, error) {
	begin := time.Now()
	h.cancel()
	if !h.over {
		h.over, h.err = true, <-h.ended
	}
	return time.Since(begin), h.err
}

// clean checks what must hold when a stream has ended.
func (h *house) clean() {
	h.Helper()
	synctest.Wait()
	if live, made, err := h.src.Heap.Live(); live != 0 || err != nil {
		h.Errorf("%d of %d batches are not released, %v", live, made, err)
	}
	if wrong := h.raw.Wrong(); len(wrong) > 0 {
		h.Errorf("raw was misused: %v", wrong)
	}
	if st := h.status(); st.InFlight != 0 {
		h.Errorf("%d bytes of the budget were not given back", st.InFlight)
	}
}

func (h *house) status() pipeline.Status {
	h.Helper()
	st, ok := h.stream.Status(h.Context())
	if !ok {
		h.Fatal("the controller does not answer")
	}
	return st
}

func (h *house) assign(p record.Partition) (epoch uint64) {
	h.Helper()
	epoch, _, err := h.src.Assign(h.Context(), p, 0)
	if err != nil {
		h.Fatal(err)
	}
	synctest.Wait()
	return epoch
}

// stored checks that raw holds exactly the records that the log has in [0, next).
func (h *house) stored(p record.Partition, next int64) {
	h.Helper()
	holds(h.T, h.store, p, next)
}

func holds(t *testing.T, r sinks.Raw, p record.Partition, next int64) {
	t.Helper()
	at := int64(0)
	err := r.Read(t.Context(), p, checkpoint.Span{From: 0, To: 1 << 60}, func(b *record.Batch) error {
		if b.First != at {
			return fmt.Errorf("raw goes on at %d behind %d", b.First, at)
		}
		n := 0
		for o := b.First; o < b.Next && b.Gap == ""; o++ {
			if !pipetest.Present(o) {
				continue
			}
			if n == len(b.Records) || b.Records[n].Offset != o {
				return fmt.Errorf("raw lacks offset %d", o)
			}
			if err := pipetest.Check(&b.Records[n]); err != nil {
				return err
			}
			n++
		}
		if n != len(b.Records) {
			return fmt.Errorf("raw has %d records too many in [%d, %d)", len(b.Records)-n, b.First, b.Next)
		}
		at = b.Next
		return nil
	})
	if err != nil || at != next {
		t.Errorf("raw ends at %d, %v, want %d", at, err, next)
	}
}

// committed checks the last position that the source was told, -1 for none, and that none went back.
func (h *house) committed(p record.Partition, want int64) {
	h.Helper()
	all := h.src.Committed(p)
	if last := append([]int64{-1}, all...); last[len(last)-1] != want || !slices.IsSorted(all) {
		h.Errorf("committed %v, want %d at the end", all, want)
	}
}

func (h *house) calls(want ...string) {
	h.Helper()
	synctest.Wait()
	if got := h.src.Calls(); !slices.Equal(got, want) {
		h.Errorf("the source was told %q, want %q", got, want)
	}
}

func (h *house) appends(want ...string) {
	h.Helper()
	synctest.Wait()
	if got := h.raw.Appends(); !slices.Equal(got, want) {
		h.Errorf("appends %q, want %q", got, want)
	}
}

func open(done <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// down is a Before that says that the store is away.
func down(context.Context, []*record.Batch) error { return pipetest.ErrDown }

// hang is a Before that waits for the context; deaf one that does not even notice it, until let go.
func hang(ctx context.Context, _ []*record.Batch) error { <-ctx.Done(); return ctx.Err() }

func deaf(let <-chan struct{}) func(context.Context, []*record.Batch) error {
	return func(context.Context, []*record.Batch) error { <-let; return pipetest.ErrDown }
}
