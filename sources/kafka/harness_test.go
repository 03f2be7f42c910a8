package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// world is a broker in memory, in fake time, and the gate that a pipeline would be.
type world struct {
	*testing.T
	net     kfake.VirtualNetwork
	cluster *kfake.Cluster
	ctx     context.Context
	mu      sync.Mutex
	gate    map[record.Partition]sources.Start
	asked   []record.Partition // by the gate, in order
	closing []func()
}

// bubble runs f in a world of its own. Whatever it starts must have ended when f returns: the bubble waits for it.
func bubble(t *testing.T, f func(w *world), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := &world{T: t, ctx: ctx, gate: map[record.Partition]sources.Start{}}
		opts = append([]kfake.Opt{kfake.ListenFn(w.net.Listen), kfake.Ports(9092), kfake.ClusterID("fake")}, opts...)
		w.cluster = must(kfake.NewCluster(opts...))
		defer w.cluster.Close()
		defer func() {
			for _, f := range slices.Backward(w.closing) {
				f()
			}
		}()
		f(w)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) options() Options {
	return Options{Stream: "orders", Client: "node~1", Brokers: []string{"localhost:9092"}, Topics: []string{"orders"}, Group: "g",
		SessionTimeout: 10 * time.Second, Dial: w.net.DialContext, Logger: slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))}
}

// client is a plain client of the broker, for what tests do besides reading.
func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	cl := must(kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers("localhost:9092"), kgo.Dialer(w.net.DialContext),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics()}, opts...)...))
	w.closing = append(w.closing, cl.Close)
	return cl
}

// produce writes n records, each a batch of its own, with their running number as value.
func (w *world) produce(topic string, partition int32, from, n int) {
	w.Helper()
	cl := must(kgo.NewClient(kgo.SeedBrokers("localhost:9092"), kgo.Dialer(w.net.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics()))
	defer cl.Close()
	for i := range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%d", from+i)}
		w.check(cl.ProduceSync(w.ctx, r).FirstErr())
	}
}

// answer is the gate of the world: what was stored wins, and a genesis is kept.
func (w *world) answer(ctx context.Context, p record.Partition, genesis func(context.Context) (int64, error)) (sources.Start, error) {
	s, ok := w.stored(p)
	if !ok {
		at, err := genesis(ctx)
		if err != nil {
			return sources.Start{}, err
		}
		s = sources.Start{Next: at, LeaderEpoch: -1}
		w.store(p, s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, p)
	return s, nil
}

func (w *world) stored(p record.Partition) (sources.Start, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.gate[p]
	return s, ok
}

func (w *world) store(p record.Partition, s sources.Start) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate[p] = s
}

func (w *world) wasAsked(p record.Partition) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.asked, p)
}

// consumer is a source that somebody reads, and what came of it. It stores what it is given in the world's gate.
type consumer struct {
	*world
	s        *Source
	assigned map[record.Partition]sources.Assignment
	next     map[record.Partition]int64
	values   map[record.Partition][]string
	offsets  map[record.Partition][]int64
	gaps     []string
	held     map[record.Partition]string
	notices  []sources.Notice
	ends     map[record.Partition]int64
	log      []string // assignments and revocations
	revoked  func(sources.Revoked)
}

func (w *world) open(change ...func(*Options)) *consumer {
	w.Helper()
	o := w.options()
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	w.check(err)
	w.check(s.Open(w.ctx, w.answer))
	r := &consumer{world: w, s: s, assigned: map[record.Partition]sources.Assignment{}, next: map[record.Partition]int64{}, values: map[record.Partition][]string{},
		offsets: map[record.Partition][]int64{}, held: map[record.Partition]string{}, ends: map[record.Partition]int64{}}
	r.revoked = func(e sources.Revoked) { e.Done() }
	w.closing = append(w.closing, func() { r.close() })
	return r
}

func (r *consumer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r.check(r.s.Close(ctx))
}

// step takes one event, and checks what must hold of every one. It reports false when none came within d.
func (r *consumer) step(d time.Duration) bool {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, d)
	defer cancel()
	e, err := r.s.Next(ctx)
	if err != nil {
		return false
	}
	switch e := e.(type) {
	case sources.Assigned:
		for _, a := range e.Partitions {
			if old, ok := r.assigned[a.Partition]; ok || !r.wasAsked(a.Partition) {
				r.Fatalf("%s is assigned again (%v), or the gate was not asked", a.Partition, old)
			}
			r.assigned[a.Partition], r.next[a.Partition] = a, a.Next
			r.log = append(r.log, fmt.Sprintf("+%s@%d", a.Partition, a.Next))
		}
	case sources.Revoked:
		for _, p := range e.Partitions {
			if _, ok := r.assigned[p]; !ok {
				r.Fatalf("%s is revoked, but was not assigned", p)
			}
			delete(r.assigned, p)
			delete(r.held, p)
			r.log = append(r.log, fmt.Sprintf("-%s %v", p, e.Lost))
		}
		r.revoked(e)
	case sources.Polled:
		for _, b := range e.Batches {
			r.take(b)
		}
	case sources.Held:
		r.held[e.Partition] = e.Reason
		if e.Reason == "" {
			delete(r.held, e.Partition)
		}
	case sources.Ends:
		maps.Copy(r.ends, e.Ends)
	case sources.Notice:
		r.notices = append(r.notices, e)
	}
	return true
}

func (r *consumer) take(b *record.Batch) {
	r.Helper()
	a, ok := r.assigned[b.Partition]
	if !ok || a.Epoch != b.Epoch {
		r.Fatalf("a batch of %s under epoch %d, assigned is %v", b.Partition, b.Epoch, a)
	}
	if b.First != r.next[b.Partition] || b.Next <= b.First {
		r.Fatalf("a batch [%d, %d) of %s where %d should follow", b.First, b.Next, b.Partition, r.next[b.Partition])
	}
	r.next[b.Partition] = b.Next
	for i := range b.Records {
		r.values[b.Partition] = append(r.values[b.Partition], string(b.Records[i].Value))
		r.offsets[b.Partition] = append(r.offsets[b.Partition], b.Records[i].Offset)
	}
	if b.Gap != "" {
		r.gaps = append(r.gaps, fmt.Sprintf("%s [%d, %d) %s", b.Partition, b.First, b.Next, b.Gap))
	}
	r.store(b.Partition, sources.Start{Next: b.Next, LeaderEpoch: b.LeaderEpoch, Stored: true})
	b.Release()
}

// until takes events until cond holds.
func (r *consumer) until(what string, cond func() bool) {
	r.Helper()
	for start := time.Now(); !cond(); {
		r.step(time.Second)
		if time.Since(start) > 5*time.Minute {
			r.Fatalf("%s: did not come about. log %v held %v notices %v values %v", what, r.log, r.held, r.notices, r.values)
		}
	}
}

// still takes what comes within d.
func (r *consumer) still(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		r.step(d)
	}
}

// only is the one partition assigned.
func (r *consumer) only() record.Partition {
	r.Helper()
	r.until("an assignment", func() bool { return len(r.assigned) > 0 })
	for p := range r.assigned {
		return p
	}
	return record.Partition{}
}

func (r *consumer) total() (n int) {
	for _, v := range r.values {
		n += len(v)
	}
	return n
}

func (r *consumer) noticed(kind string) bool {
	return slices.ContainsFunc(r.notices, func(n sources.Notice) bool { return n.Kind == kind })
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// away cuts every connection for as long as d.
func away(d time.Duration, c *kfake.Cluster) func(kmsg.Request) (kmsg.Response, error, bool) {
	until := time.Now().Add(d)
	return func(kmsg.Request) (kmsg.Response, error, bool) {
		if time.Now().After(until) {
			return nil, nil, false
		}
		c.KeepControl()
		return nil, errors.New("cut"), true
	}
}
