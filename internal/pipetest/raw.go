package pipetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Raw is a raw store whose appends a test delays or lets fail, and which watches over what it is given.
type Raw struct {
	sinks.Raw
	mu     sync.Mutex
	before func(context.Context, []*record.Batch) error
	after  func(sinks.Stored) (sinks.Stored, error)
	loose  bool
	flying map[record.Partition]bool
	turns  map[record.Partition]chan struct{} // what happens to one chain happens in turns
	log    []string
	wrong  []string
}

// ErrDown is what is said by what a test has switched off.
var ErrDown = errors.New("down")

// Watch stands in front of r.
func Watch(r sinks.Raw) *Raw {
	return &Raw{Raw: r, flying: map[record.Partition]bool{}, turns: map[record.Partition]chan struct{}{}}
}

// turn waits for the turn of a call that concerns p; its result ends it.
func (r *Raw) turn(p record.Partition) (end func()) {
	r.mu.Lock()
	if r.turns[p] == nil {
		r.turns[p] = make(chan struct{}, 1)
	}
	turn, loose := r.turns[p], r.loose
	r.mu.Unlock()
	if loose {
		return func() {}
	}
	turn <- struct{}{}
	return func() { <-turn }
}

// Loose takes away what keeps two calls for one chain apart: then only its callers do.
func (r *Raw) Loose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loose = true
}

// Begin implements sinks.Raw.
func (r *Raw) Begin(ctx context.Context, p record.Partition, genesis func(context.Context) (int64, error)) (sinks.Head, error) {
	defer r.turn(p)()
	return r.Raw.Begin(ctx, p, genesis)
}

// Before runs in front of every append: it may wait, and what it returns is the append's failure.
func (r *Raw) Before(f func(context.Context, []*record.Batch) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = f
}

// After runs behind every append that was stored and decides what is answered.
func (r *Raw) After(f func(sinks.Stored) (sinks.Stored, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.after = f
}

// Append implements sinks.Raw.
func (r *Raw) Append(ctx context.Context, p record.Partition, batches []*record.Batch) (sinks.Stored, error) {
	r.mu.Lock()
	before, after := r.before, r.after
	if r.flying[p] {
		r.wrong = append(r.wrong, fmt.Sprintf("two appends of %v at once", p))
	}
	r.flying[p] = true
	r.log = append(r.log, fmt.Sprintf("%d-%d", batches[0].First, batches[len(batches)-1].Next))
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.flying[p] = false
	}()
	defer r.turn(p)()
	if before != nil {
		if err := before(ctx, batches); err != nil {
			return sinks.Stored{}, err
		}
	}
	for _, b := range batches {
		for i := range b.Records {
			if err := Check(&b.Records[i]); err != nil {
				r.fault(err)
			}
		}
	}
	st, err := r.Raw.Append(ctx, p, batches)
	if err == nil && after != nil {
		return after(st)
	}
	return st, err
}

// End implements sinks.Raw: it waits for an append that is under way.
func (r *Raw) End(p record.Partition) {
	defer r.turn(p)()
	r.Raw.End(p)
}

func (r *Raw) fault(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, err.Error())
}

// Appends lists the appends that were begun as first-next, and forgets them.
func (r *Raw) Appends() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.log
	r.log = nil
	return log
}

// Wrong lists what callers did that they must not do.
func (r *Raw) Wrong() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrong
}
