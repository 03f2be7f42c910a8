package pipeline

import (
	"slices"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
)

// load is a sink's load with what the lane knows about it.
type load struct {
	sink    sinks.Load
	key     record.Partition // the partition, or zero where it takes all
	begun   time.Time        // when its first batch was added
	oldest  time.Time        // when raw had the first of its batches: the deadline counts from here
	next    int64            // with cuts: the offset that must follow
	held    int64            // bytes counted against the lane's queue
	rejects []sinks.Reject   // found by the lane, not yet reported
	extra   int64            // bytes of rejects
}

func (ld *load) reject(rejects []sinks.Reject) {
	ld.rejects = append(ld.rejects, rejects...)
	for i := range rejects {
		ld.extra += rejects[i].Record.Size()
	}
}

// gather moves queued batches into loads. It adds rows without the mutex: whoever offers never waits for a sink. Only this goroutine
// takes batches out of the queue.
func (l *Lane) gather(now time.Time) {
	for l.opened && len(l.ready) <= 2 && l.beginning.over(now) {
		o := l.first()
		if o == nil {
			return
		}
		ld, err := l.loadFor(o, now)
		if err != nil { // it stays in the queue
			l.beginning.failed(now)
			l.fail(err, now)
			return
		}
		l.beginning.Reset()
		l.add(ld, o, now)
	}
}

// first is the batch at the front of the queue.
func (l *Lane) first() *Offered {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.queue) == 0 {
		return nil
	}
	return l.mu.queue[0]
}

// dequeue takes the first batch out of the queue. The mutex is held.
func (l *Lane) dequeue() *Offered {
	o := l.mu.queue[0]
	l.mu.queue[0] = nil
	l.mu.queue = l.mu.queue[1:]
	l.mu.bytes -= o.Batch.Bytes
	l.gathered++
	return o
}

// add puts the first batch of the queue into its load. A load that cannot take it is in no known state, and is left to recovery whole.
func (l *Lane) add(ld *load, o *Offered, now time.Time) {
	rejects, err := l.fill(ld.sink, o.Rows())
	if err == nil {
		ld.reject(rejects)
		ld.next = o.Batch.Next
	}
	if o.Stored.Before(ld.oldest) { // partitions overtake each other where batches are screened
		ld.oldest = o.Stored
	}
	l.reweigh(ld)
	l.mu.Lock()
	l.dequeue()
	if err != nil {
		l.unhold(o.Batch.Partition, span(o.Batch))
	}
	l.mu.Unlock()
	o.Batch.Release()
	switch {
	case err != nil:
		delete(l.loads, ld.key)
		l.fail(err, now)
		l.giveUp(ld, "the load does not take a batch")
	case full(ld, l.opt.Roll):
		l.closeLoad(ld)
	}
}

// loadFor is the open load that the batch goes into. A file's rows follow each other: where the batch does not follow, what is
// open is closed first.
func (l *Lane) loadFor(o *Offered, now time.Time) (*load, error) {
	var key record.Partition
	if l.opt.Cuts != nil {
		key = o.Batch.Partition
	}
	ld := l.loads[key]
	if ld != nil && l.opt.Cuts != nil && ld.next != o.Batch.First {
		l.closeLoad(ld)
		ld = nil
	}
	if ld != nil {
		return ld, nil
	}
	sink, err := l.opt.Sink.Begin()
	if err != nil {
		return nil, err
	}
	ld = &load{sink: sink, key: key, begun: now, oldest: o.Stored, next: o.Batch.First}
	l.loads[key] = ld
	return ld, nil
}

// fill takes the rows of a batch, sets aside what this sink does not take, and adds the rest to a load. It is the same for what is
// offered and for what recovery carries.
func (l *Lane) fill(to sinks.Load, all *row.Batch) ([]sinks.Reject, error) {
	rows, oversize := all.Filter(func(r *record.Record) bool { return l.opt.MaxRecord > 0 && r.Payload() > l.opt.MaxRecord })
	var rejects []sinks.Reject
	if len(oversize) > 0 {
		rejects = oversized(all, oversize, l.opt.MaxRecord)
	}
	return rejects, to.Add(rows)
}

// preview is how much of a value a reject keeps: raw has the whole.
const preview = 4 << 10

func oversized(rows *row.Batch, which []int, limit int64) []sinks.Reject {
	out := make([]sinks.Reject, 0, len(which))
	for _, i := range which {
		r := rows.Records[i]
		out = append(out, sinks.Reject{Partition: rows.Partition, Offset: r.Offset, ID: rows.IDs[i], Reason: sinks.ReasonOversize,
			Detail: sizeDetail(r.Payload(), limit), Record: cut(r), Whole: sinks.Whole{Key: len(r.Key), Value: len(r.Value), Headers: len(r.Headers)}})
	}
	return out
}

// full reports whether a load has reached a limit of size.
func full(ld *load, roll Roll) bool {
	s := ld.sink.Size()
	return roll.Rows > 0 && s.Rows >= roll.Rows || roll.Bytes > 0 && s.Out >= roll.Bytes || len(ld.rejects) >= manyRejects
}

// manyRejects bounds what a load keeps of records that it does not write.
const manyRejects = 1000

// reweigh counts what a load holds now.
func (l *Lane) reweigh(ld *load) {
	held := ld.sink.Size().Held + ld.extra
	l.mu.Lock()
	l.mu.bytes += held - ld.held
	l.mu.Unlock()
	ld.held = held
}

// closeDue closes loads whose time has come, and the largest while the lane is nearly full.
func (l *Lane) closeDue(now time.Time) {
	asked := l.askedToClose()
	l.mu.Lock()
	draining := l.mu.draining && len(l.mu.queue) == 0
	tight := l.mu.bytes > l.opt.Queue/10*7
	l.mu.Unlock()
	var largest *load
	for _, ld := range l.loads {
		if draining || ld.holdsAny(asked) || !now.Before(ld.begun.Add(l.opt.Roll.Age)) {
			l.closeLoad(ld)
		} else if largest == nil || ld.held > largest.held {
			largest = ld
		}
	}
	if tight && largest != nil && len(l.ready) == 0 && l.inflight == 0 {
		l.closeLoad(largest)
	}
}

// askedToClose lists the revoked partitions of which nothing is queued any more.
func (l *Lane) askedToClose() (out []record.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, offered := range l.mu.close {
		if l.gathered >= offered {
			out = append(out, p)
			delete(l.mu.close, p)
		}
	}
	return out
}

func (ld *load) holdsAny(partitions []record.Partition) bool {
	if len(partitions) == 0 {
		return false
	}
	spans := ld.sink.Spans()
	return slices.ContainsFunc(partitions, func(p record.Partition) bool { return spans[p].Len() > 0 })
}

func (l *Lane) closeLoad(ld *load) {
	delete(l.loads, ld.key)
	l.ready = append(l.ready, ld)
}
