package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// orders makes what a shop would write into a topic: a record for each change of an order, keyed by the order, and a tombstone
// for an order that is forgotten.
type orders struct {
	client    *kgo.Client
	rate      int // records a second
	repeat    int // percent of them that are sent a second time, as by a producer that got no answer
	rand      *rand.Rand
	next      int
	open      []int // orders that have not come to an end
	produced  atomic.Int64
	forgotten atomic.Int64
	repeated  atomic.Int64
	failed    atomic.Pointer[error]
}

// order is the value of a record.
type order struct {
	Order    string  `json:"order"`
	Customer string  `json:"customer"`
	State    string  `json:"state"`
	Items    []item  `json:"items"`
	Total    float64 `json:"total"`
	Currency string  `json:"currency"`
	Changed  string  `json:"changed"`
}

type item struct {
	Article string  `json:"article"`
	Count   int     `json:"count"`
	Price   float64 `json:"price"`
}

func newOrders(broker string, rate, repeat int) (*orders, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ClientID("demo-shop"), kgo.DefaultProduceTopic("orders"), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &orders{client: cl, rate: rate, repeat: repeat, rand: rand.New(rand.NewPCG(1, 2))}, nil
}

// run produces until ctx ends, then waits for what is on its way.
func (o *orders) run(ctx context.Context) error {
	const steps = 20 // a second
	tick := time.NewTicker(time.Second / steps)
	defer tick.Stop()
	for due := 0; ; {
		select {
		case <-ctx.Done():
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			err := o.client.Flush(flush)
			o.client.Close()
			if failed := o.failed.Load(); failed != nil {
				return *failed
			}
			return err
		case <-tick.C:
		}
		for due += o.rate; due >= steps; due -= steps {
			o.send(context.WithoutCancel(ctx))
		}
	}
}

// send produces the next record, and now and then the one before once more.
func (o *orders) send(ctx context.Context) {
	r := o.record()
	o.client.Produce(ctx, r, o.produceDone)
	if r.Value == nil || o.rand.IntN(100) >= o.repeat {
		return
	}
	o.client.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value, Headers: r.Headers}, func(r *kgo.Record, err error) {
		if o.produceDone(r, err); err == nil {
			o.repeated.Add(1)
		}
	})
}

func (o *orders) produceDone(r *kgo.Record, err error) {
	switch {
	case err != nil:
		o.failed.Store(&err)
		return
	case r.Value == nil:
		o.forgotten.Add(1)
	}
	o.produced.Add(1)
}

// record is the next change.
func (o *orders) record() *kgo.Record {
	state := "placed"
	n := o.next
	if len(o.open) > 50 || len(o.open) > 0 && o.rand.IntN(3) > 0 {
		i := o.rand.IntN(len(o.open))
		n = o.open[i]
		state = []string{"paid", "packed", "shipped", "returned", "delivered", "forgotten"}[o.rand.IntN(6)]
		if state == "delivered" || state == "forgotten" {
			o.open[i] = o.open[len(o.open)-1]
			o.open = o.open[:len(o.open)-1]
		}
	} else {
		o.next++
		o.open = append(o.open, n)
	}
	r := &kgo.Record{Key: fmt.Appendf(nil, "order-%06d", n), Headers: []kgo.RecordHeader{
		{Key: "source", Value: []byte("shop")}, {Key: "trace", Value: fmt.Appendf(nil, "%016x", o.rand.Uint64())}}}
	if state != "forgotten" {
		r.Value = o.value(n, state)
	}
	return r
}

func (o *orders) value(n int, state string) []byte {
	v := order{Order: fmt.Sprintf("order-%06d", n), Customer: fmt.Sprintf("customer-%04d", n*7919%5000), State: state, Currency: "EUR",
		Changed: time.Now().UTC().Format(time.RFC3339Nano)}
	cents := 0
	for range 1 + o.rand.IntN(3) {
		count, price := 1+o.rand.IntN(3), 199+o.rand.IntN(9900)
		cents += count * price
		v.Items = append(v.Items, item{fmt.Sprintf("article-%03d", o.rand.IntN(400)), count, float64(price) / 100})
	}
	v.Total = float64(cents) / 100
	b, err := json.Marshal(v)
	if err != nil {
		panic("demo: " + err.Error())
	}
	return b
}
