package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/sources/sourcetest"
)

// world is a broker in memory, in fake time, and the gate that a pipeline would be.
type world struct {
	*testing.T
	net     kfake.VirtualNetwork
	cluster *kfake.Cluster
	ctx     context.Context
	gate    *sourcetest.Gate
	closing []func()
}

// bubble runs f in a world of its own. Whatever it starts must have ended when f returns: the bubble waits for it.
func bubble(t *testing.T, f func(w *world), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := &world{T: t, ctx: ctx, gate: sourcetest.NewGate()}
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
	return Options{Client: "node~1", Brokers: []string{"localhost:9092"}, Topics: []string{"orders"}, Group: "g",
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

func (w *world) open(change ...func(*Options)) *sourcetest.Reader {
	w.Helper()
	o := w.options()
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	w.check(err)
	r := sourcetest.Read(w.T, s, w.gate)
	w.closing = append(w.closing, r.Close)
	return r
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
