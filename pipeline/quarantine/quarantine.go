// Package quarantine shows people what was rejected and why: the records that a sink refuses for good, in files of a store of its
// own. It is a view, never the record (that is the trail), so it may shed: it has a byte budget of its own, nobody ever waits for
// it, and a store that is away costs it rows, which it counts, and nothing else.
package quarantine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// Options of a Quarantine.
type Options struct {
	Bucket store.Bucket
	Stream string
	Node   string        // <node>~<instance>, in the names of files
	Budget int64         // bytes that may wait to be written
	Bytes  int64         // after how many bytes a file is closed; 0 means 4 MiB
	Age    time.Duration // after what time at the latest; 0 means 10 s

	Retry flow.Backoff   // 0 means half a second to 30 s
	Rand  func() float64 // for the jitter; nil means a good one
}

// Quarantine takes rejects from all lanes of a stream. Methods are safe for concurrent use; Run is called once, and Flush after it
// has returned.
type Quarantine struct {
	opt  Options
	kick chan struct{} // something has changed that Run has to know
	mu   struct {
		sync.Mutex
		open     map[string]*file // by sink
		sealed   []*file          // closed, the oldest first
		held     int64            // bytes of all of them by weigh, never above the budget
		rows     int64
		sequence int64
		counts   map[Key]Count
		err      error // of the last write; nil where it succeeded
	}
}

// Key is what is counted apart.
type Key struct {
	Sink, Reason string
}

// Count of rows since the process began.
type Count struct {
	Stored int64 // durable in the quarantine
	Shed   int64 // not: there was no room, or the process ended before the store took them
}

// State is how the quarantine is now.
type State struct {
	Rows  int64 // waiting to be written
	Bytes int64 // what they take of the budget
	Err   error // of the last write; nil where it succeeded
}

// New does no I/O.
func New(opt Options) *Quarantine {
	if opt.Bytes == 0 {
		opt.Bytes = 4 << 20
	}
	if opt.Age == 0 {
		opt.Age = 10 * time.Second
	}
	if opt.Retry == (flow.Backoff{}) {
		opt.Retry = flow.Backoff{Base: 500 * time.Millisecond, Max: 30 * time.Second}
	}
	if opt.Rand == nil {
		opt.Rand = rand.Float64
	}
	q := &Quarantine{opt: opt, kick: make(chan struct{}, 1)}
	q.mu.open = map[string]*file{}
	q.mu.counts = map[Key]Count{}
	return q
}

// Offer takes rejects of a sink. It copies what it keeps and never waits: what finds no room is shed, and counted.
func (q *Quarantine) Offer(rejects []sinks.Reject, sink string) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range rejects {
		r := &rejects[i]
		n := weigh(r, sink)
		if n > q.opt.Budget-q.mu.held {
			q.count(Key{sink, r.Reason}, Count{Shed: 1})
			continue
		}
		f := q.mu.open[sink]
		if f == nil {
			f = newFile(sink, now)
			q.mu.open[sink] = f
			q.wake()
		}
		f.add(r, n, now)
		q.mu.held += n
		q.mu.rows++
		if f.bytes >= q.opt.Bytes {
			q.seal(f, now)
			q.wake()
		}
	}
}

func (q *Quarantine) count(k Key, n Count) {
	c := q.mu.counts[k]
	q.mu.counts[k] = Count{c.Stored + n.Stored, c.Shed + n.Shed}
}

func (q *Quarantine) wake() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// seal closes an open file: it gets its name, and waits to be written.
func (q *Quarantine) seal(f *file, now time.Time) {
	delete(q.mu.open, f.sink)
	f.close(now, q.mu.sequence)
	q.mu.sequence++
	q.mu.sealed = append(q.mu.sealed, f)
}

// due seals the open files that are older than age. It returns the file to write, nil where there is none, and when the next one
// becomes due, 0 where none is open.
func (q *Quarantine) due(age time.Duration) (first *file, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, f := range q.mu.open {
		if left := age - now.Sub(f.since); left <= 0 {
			q.seal(f, now)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	if len(q.mu.sealed) > 0 {
		first = q.mu.sealed[0]
	}
	return first, wait
}

// Run writes files until ctx ends, which is no error. What is left then is Flush's.
func (q *Quarantine) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		f, wait := q.due(q.opt.Age)
		if f != nil {
			q.attempt(ctx, f)
			continue
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-q.kick:
		case <-timer:
		}
	}
	return nil
}

// Flush writes all that waits, and tries as long as ctx lasts, which must have an end. What the store has not taken by then is
// shed, and that is the error.
func (q *Quarantine) Flush(ctx context.Context) error {
	for ctx.Err() == nil {
		f, _ := q.due(0)
		if f == nil {
			return nil
		}
		q.attempt(ctx, f)
	}
	return q.giveUp()
}

// attempt writes the first file once, and pauses where that failed.
func (q *Quarantine) attempt(ctx context.Context, f *file) {
	err := f.write(ctx, &q.opt)
	q.mu.Lock()
	if err == nil {
		q.opt.Retry.Reset()
		q.done(f, func(n int64) Count { return Count{Stored: n} })
	}
	q.mu.err = err
	q.mu.Unlock()
	if err == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(q.opt.Retry.Next(q.opt.Rand())):
	}
}

// done takes a sealed file out and counts its rows.
func (q *Quarantine) done(f *file, as func(int64) Count) {
	q.mu.sealed = q.mu.sealed[1:]
	q.mu.held -= f.bytes
	for reason, n := range f.reasons {
		q.mu.rows -= n
		q.count(Key{f.sink, reason}, as(n))
	}
}

func (q *Quarantine) giveUp() error {
	f, _ := q.due(0)
	if f == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	rows, err := q.mu.rows, q.mu.err
	for len(q.mu.sealed) > 0 {
		q.done(q.mu.sealed[0], func(n int64) Count { return Count{Shed: n} })
	}
	return errors.Join(fmt.Errorf("the quarantine of %s sheds %d rows at the end", q.opt.Stream, rows), err)
}

// Counts are the rows since the process began.
func (q *Quarantine) Counts() map[Key]Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make(map[Key]Count, len(q.mu.counts))
	for k, c := range q.mu.counts {
		out[k] = c
	}
	return out
}

// State is what waits now, and how the last write ended.
func (q *Quarantine) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	return State{q.mu.rows, q.mu.held, q.mu.err}
}
