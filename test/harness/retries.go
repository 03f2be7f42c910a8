package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Retries are what a producer does that waits too little for its acknowledgements: some records it sends a second time, to another
// partition, although the first copy arrived.
type Retries struct {
	Every  int                // every so manieth record; 20 makes 5 %
	Within time.Duration      // the second copy follows after up to this
	Record func(n int) Record // the nth record; nil: Unique
}

// Unique is the nth of a row of records whose values are JSON and no two of which are equal.
func Unique(n int, partitions int32) Record {
	return Record{Partition: int32(n) % partitions, Key: fmt.Appendf(nil, "k%d", n%1000),
		Value: fmt.Appendf(nil, `{"order":%d,"amount":%d.50,"note":"%s"}`, n, n%97, strings.Repeat("x", n%120))}
}

// repeated is a second copy that is due at some time after the beginning.
type repeated struct {
	at time.Duration
	r  Record
}

// retrying makes the records of a producer that repeats itself, told the time. It belongs to one goroutine.
type retrying struct {
	Retries
	partitions int32
	n          int
	due        []repeated // by time
}

// first is the next record that was not sent before.
func (r *retrying) first(now time.Duration) (out Record) {
	if r.Record != nil {
		out = r.Record(r.n)
	} else {
		out = Unique(r.n, r.partitions)
	}
	if r.n%r.Every == 0 {
		copied := out
		copied.Partition = (out.Partition + 1 + int32(r.n/r.Every)%(r.partitions-1)) % r.partitions
		at := now + r.Within*time.Duration(1+(r.n/r.Every*37)%100)/100
		i, _ := slices.BinarySearchFunc(r.due, at, func(c repeated, at time.Duration) int { return int(c.at - at) })
		r.due = slices.Insert(r.due, i, repeated{at, copied})
	}
	r.n++
	return out
}

// again are the second copies that are due.
func (r *retrying) again(now time.Duration) (out []Record) {
	for len(r.due) > 0 && r.due[0].at <= now {
		out, r.due = append(out, r.due[0].r), r.due[1:]
	}
	return out
}

// BeginRetrying is Begin with records that are sent twice. End sends those second copies at once that were still to come.
func (p *Producer) BeginRetrying(rate int, retries Retries) {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	r := &retrying{Retries: retries, partitions: p.topic.Partitions}
	p.done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for begin := time.Now(); ; {
			now := time.Since(begin)
			for r.n < int(now.Seconds()*float64(rate)) {
				p.begin(r.first(now))
			}
			p.beginAll(r.again(now))
			select {
			case <-tick.C:
			case <-ctx.Done():
				p.beginAll(r.again(now + r.Within))
				return
			}
		}
	})
}

func (p *Producer) beginAll(records []Record) {
	for _, r := range records {
		p.begin(r)
	}
}

// SendRetrying produces n records and the second copies of some of them at about rate a second, and returns when all are acknowledged.
func (p *Producer) SendRetrying(n, rate int, retries Retries) []Record {
	p.t.Helper()
	p.BeginRetrying(rate, retries)
	Await(p.t, fmt.Sprintf("%d records to be acknowledged", n), 30*time.Second+time.Duration(n/rate)*time.Second, func() (string, bool) {
		return fmt.Sprint(p.Count()), p.Count() >= int64(n)
	})
	return p.End()
}
