package pipeline

import (
	"sync"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Flush says when an open segment is stored: at the first limit it reaches. A limit of size that is 0 is none.
type Flush struct {
	Bytes   int64
	Records int
	Age     time.Duration
}

// full reports whether a limit of size is reached.
func (f Flush) full(bytes int64, records int) bool {
	return f.Bytes > 0 && bytes >= f.Bytes || f.Records > 0 && records >= f.Records
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
	begin   int64 // what lies below was stored, and offered to lanes, by others

	open    []admitted
	bytes   int64 // of open
	records int   // of open
	gaps    int   // lost ranges in open
	flying  []admitted

	backoff flow.Backoff
	retryAt time.Time // not before this after a failed commit
	failed  string    // why the last commit failed, empty after a success
	early   bool      // flush what is open: the budget is nearly full
	urgent  bool      // flush whatever is open: the partition is being revoked, or the process ends
	closed  bool      // nothing is admitted until the next assignment

	released []func()  // to be called when nothing is open and the source knows: it waits for that
	bound    time.Time // of this wait
	told     int64     // the source has answered a commit of this position, well or not; -1 where it was not tried
	refused  bool      // the source did not take the last one it was told

	place int       // in the agenda, -1 where it is not there
	at    time.Time // when it is due, while it is there
}

// admitted is a batch that has taken its bytes from the budget.
type admitted struct {
	batch *record.Batch
	ack   *checkpoint.Ack
	taken int64 // bytes to give back to the budget
}

// admit puts a batch behind what is open.
func (p *part) admit(a admitted) {
	p.open = append(p.open, a)
	p.weigh(a.batch, 1)
}

func (p *part) weigh(b *record.Batch, sign int) {
	p.bytes += int64(sign) * b.Bytes
	p.records += sign * len(b.Records)
	if b.Gap != "" {
		p.gaps += sign
	}
}

// idle reports whether nothing is open or under way.
func (p *part) idle() bool { return len(p.open) == 0 && len(p.flying) == 0 }

// due is when the next commit should begin: at once is the zero time. ok is false where only an event can change it. A lost range
// does not wait for others, and what failed waits only for its backoff.
func (p *part) due(f Flush) (at time.Time, ok bool) {
	if len(p.open) == 0 || len(p.flying) > 0 {
		return time.Time{}, false
	}
	if !p.urgent && !p.early && p.failed == "" && p.gaps == 0 && !f.full(p.bytes, p.records) {
		at = p.open[0].ack.Since.Add(f.Age)
	}
	if p.retryAt.After(at) {
		at = p.retryAt
	}
	return at, true
}

// take moves the batches of the next commit from open to flying: until a limit is reached, at least one, and a gap alone.
func (p *part) take(f Flush) []*record.Batch {
	n, bytes, records := 0, int64(0), 0
	for n < len(p.open) && !f.full(bytes, records) {
		b := p.open[n].batch
		if b.Gap != "" {
			n = max(n, 1)
			break
		}
		bytes += b.Bytes
		records += len(b.Records)
		n++
	}
	p.flying = append([]admitted(nil), p.open[:n]...)
	batches := make([]*record.Batch, n)
	for i, a := range p.flying {
		p.weigh(a.batch, -1)
		batches[i] = a.batch
	}
	p.open = append([]admitted(nil), p.open[n:]...) // not a slice of it: that would keep what was stored in memory
	p.early = false
	return batches
}

// reopen makes what is given the open segment.
func (p *part) reopen(all []admitted) {
	p.open, p.flying, p.bytes, p.records, p.gaps = all, nil, 0, 0, 0
	for _, a := range all {
		p.weigh(a.batch, 1)
	}
}

// stored takes the batches below next out of flying and open. What lies above stays open, in front: the store may hold a shorter
// commit than the last one asked for, or a longer one of an earlier assignment. A batch across next is split, and its ack with it.
func (p *part) stored(next int64) (done []admitted) {
	all := append(p.flying, p.open...)
	n := 0
	for n < len(all) && all[n].batch.Next <= next {
		n++
	}
	done, rest := all[:n:n], append([]admitted(nil), all[n:]...)
	if len(rest) > 0 && rest[0].batch.First < next {
		a := rest[0]
		a.ack.Split(1)
		done = append(done, admitted{batch: a.batch.Retain().Slice(a.batch.First, next), ack: a.ack})
		rest[0] = admitted{batch: a.batch.From(next), ack: a.ack, taken: a.taken}
	}
	p.reopen(rest)
	p.failed, p.retryAt = "", time.Time{}
	p.backoff.Reset()
	return done
}

// unstored puts a failed commit back in front of open, to be tried again at retryAt.
func (p *part) unstored(reason string, retryAt time.Time) {
	p.reopen(append(p.flying, p.open...))
	p.failed, p.retryAt = reason, retryAt
}

// abandon gives up all that is open or under way.
func (p *part) abandon() (all []admitted) {
	all = append(p.flying, p.open...)
	p.reopen(nil)
	return all
}

// pieces cuts a batch that alone is more than a segment should hold, and calls f for each part; the hold passes to f. A record is
// never cut.
func pieces(b *record.Batch, limit Flush, f func(*record.Batch)) {
	for b.Bytes > limit.Bytes && limit.Bytes > 0 || len(b.Records) > limit.Records && limit.Records > 0 {
		bytes, n := int64(0), 0
		for n < len(b.Records) && !limit.full(bytes, n) {
			bytes += b.Records[n].Size()
			n++
		}
		if n == len(b.Records) {
			break
		}
		at := b.Records[n].Offset
		f(b.Retain().Slice(b.First, at))
		b = b.From(at)
	}
	f(b)
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
