package pipeline

import (
	"sync"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Flush says when an open segment is stored: at the first limit it reaches.
type Flush struct {
	Bytes   int64
	Records int
	Age     time.Duration
}

// part is one assigned partition on its way through the gate: what was admitted and waits for a commit, and what the commit under
// way holds. It decides and never waits; the controller, which owns it, tells it the time.
//
// Invariants: open and flying together follow each other without a hole, flying first. There is at most one commit under way.
type part struct {
	id      record.Partition
	epoch   uint64
	tracker *checkpoint.Tracker
	ids     *idMaker
	head    sinks.Head
	begin   int64 // where this assignment began

	open    []admitted
	bytes   int64
	records int
	since   time.Time // when the first of open was admitted
	flying  []admitted

	backoff  flow.Backoff
	retryAt  time.Time // not before this after a failed commit
	failed   string    // why the last commit failed, empty after a success
	urgent   bool      // flush whatever is open: the partition is being revoked, or the process ends
	fenced   bool      // another writer owns the chain: nothing is admitted until the next assignment
	released func()    // to be called when nothing is open: the source waits for it
}

// admitted is a batch that has taken its bytes from the budget.
type admitted struct {
	batch *record.Batch
	ack   *checkpoint.Ack
	taken int64 // bytes to give back to the budget
}

// admit puts a batch behind what is open.
func (p *part) admit(a admitted, now time.Time) {
	if len(p.open) == 0 {
		p.since = now
	}
	p.open = append(p.open, a)
	p.bytes += a.batch.Bytes
	p.records += len(a.batch.Records)
}

// idle reports whether nothing is open or under way.
func (p *part) idle() bool { return len(p.open) == 0 && len(p.flying) == 0 }

// due reports whether a commit should begin now; else wake is when to ask again, zero where only an event can change it.
func (p *part) due(now time.Time, f Flush) (ok bool, wake time.Time) {
	if len(p.open) == 0 || len(p.flying) > 0 {
		return false, time.Time{}
	}
	if now.Before(p.retryAt) {
		return false, p.retryAt
	}
	if p.urgent || p.failed != "" || p.bytes >= f.Bytes || p.records >= f.Records || p.gapOpen() {
		return true, time.Time{}
	}
	if at := p.since.Add(f.Age); now.Before(at) {
		return false, at
	}
	return true, time.Time{}
}

// gapOpen reports whether a lost range waits: it is stored at once, as a commit of its own.
func (p *part) gapOpen() bool {
	return p.open[0].batch.Gap != "" || p.open[len(p.open)-1].batch.Gap != ""
}

// take moves the batches of the next commit from open to flying: up to the limits, at least one, and a gap alone.
func (p *part) take(f Flush, now time.Time) []*record.Batch {
	n, bytes, records := 0, int64(0), 0
	for n < len(p.open) && (n == 0 || bytes < f.Bytes && records < f.Records) {
		b := p.open[n].batch
		if b.Gap != "" {
			if n == 0 {
				n = 1
			}
			break
		}
		bytes += b.Bytes
		records += len(b.Records)
		n++
	}
	p.flying = append(p.flying, p.open[:n]...)
	p.reopen(p.open[n:], now)
	batches := make([]*record.Batch, n)
	for i, a := range p.flying {
		batches[i] = a.batch
	}
	return batches
}

// reopen makes what remains the open segment.
func (p *part) reopen(rest []admitted, now time.Time) {
	p.open, p.bytes, p.records, p.since = nil, 0, 0, now
	for _, a := range rest {
		p.admit(a, p.since)
	}
}

// stored takes the batches below next out of flying; what lies above goes back to the front of open, since a shorter commit than
// the last one asked for is what the store holds. A batch across next is split, and its ack with it.
func (p *part) stored(next int64, now time.Time) (done []admitted) {
	var rest []admitted
	for _, a := range p.flying {
		switch {
		case a.batch.Next <= next:
			done = append(done, a)
		case a.batch.First >= next:
			rest = append(rest, a)
		default:
			a.ack.Split(1)
			below := admitted{batch: a.batch.Retain().Slice(a.batch.First, next), ack: a.ack}
			rest = append(rest, admitted{batch: a.batch.From(next), ack: a.ack, taken: a.taken})
			done = append(done, below)
		}
	}
	p.flying = nil
	if len(rest) > 0 {
		p.reopen(append(rest, p.open...), now)
	}
	p.failed, p.retryAt = "", time.Time{}
	p.backoff.Reset()
	return done
}

// dropBelow takes what another writer has stored already, up to next, out of flying and open.
func (p *part) dropBelow(next int64, now time.Time) (done []admitted) {
	p.flying = append(p.flying, p.open...)
	p.open = nil
	return p.stored(next, now)
}

// unstored puts a failed commit back in front of open, to be tried again at retryAt.
func (p *part) unstored(reason string, retryAt, now time.Time) {
	since := p.since
	if len(p.open) == 0 {
		since = now
	}
	p.reopen(append(p.flying, p.open...), since)
	p.flying = nil
	p.failed, p.retryAt = reason, retryAt
}

// abandon gives up all that is open or under way.
func (p *part) abandon() (all []admitted) {
	all = append(p.flying, p.open...)
	p.flying, p.open, p.bytes, p.records = nil, nil, 0, 0
	return all
}

// idMaker computes the ids of one partition's records, for whichever lane asks first.
type idMaker struct {
	mu sync.Mutex
	h  *record.Hasher
}

func newIDMaker(p record.Partition) *idMaker { return &idMaker{h: record.NewHasher(p)} }

func (m *idMaker) ids(records []record.Record) []record.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.h.IDs(make([]record.ID, 0, len(records)), records)
}
