package pipeline

import (
	"errors"
	"time"

	"github.com/stream-arrow/twgd/sinks"
)

// Why a load is left to recovery.
const (
	tooLate = "the deadline has passed"
	ending  = "the process ends, and the sink does not take it"
)

// expire gives up what is older than the deadline and not under way.
func (l *Lane) expire(now time.Time) {
	l.mu.Lock()
	hopeless := l.mu.draining && l.mu.health.state != "live" // the process ends, and the destination is away
	l.mu.Unlock()
	why := tooLate
	if hopeless {
		why = ending
	}
	old := func(stored time.Time) bool { return hopeless || !now.Before(stored.Add(l.opt.Deadline)) }
	for _, ld := range l.loads {
		if old(ld.oldest) {
			delete(l.loads, ld.key)
			l.giveUp(ld, why)
		}
	}
	kept := l.ready[:0]
	for _, ld := range l.ready {
		if old(ld.oldest) {
			l.giveUp(ld, why)
		} else {
			kept = append(kept, ld)
		}
	}
	l.ready = kept
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.queue) > 0 && old(l.mu.queue[0].Stored) {
		o := l.dequeue()
		l.unhold(o.Batch.Partition, span(o.Batch))
		l.mu.counts.Dropped += int64(len(o.Batch.Records))
		o.Batch.Release()
	}
}

// fail notes what the destination said, and when to ask it again.
func (l *Lane) fail(err error, now time.Time) {
	if l.stopped {
		return
	}
	wait := l.backoff.Next(jitter())
	l.retryAt = now.Add(wait)
	if sinks.KindOf(err) == sinks.Blocked {
		l.opened = false
	}
	l.show(err, wait)
}

// show makes a fault visible.
func (l *Lane) show(err error, wait time.Duration) {
	h := health{state: stateOf(err), reason: reasonOf(err), backoff: wait}
	l.mu.Lock()
	changed := l.mu.health.state != h.state || l.mu.health.reason != h.reason
	l.mu.health = h
	l.mu.counts.Retries++
	l.mu.Unlock()
	if changed {
		l.opt.Log.Warn("the sink does not take rows", "sink", l.opt.Name, "state", h.state, "reason", h.reason)
	}
	l.opt.Metrics.sinkFailed(l.opt.Stream, l.opt.Name, h.state, wait)
}

func stateOf(err error) string {
	if sinks.KindOf(err) == sinks.Blocked {
		return "blocked"
	}
	return "retrying"
}

// reasonOf is the line for a status page.
func reasonOf(err error) string {
	var fault *sinks.Error
	if errors.As(err, &fault) {
		return fault.Reason
	}
	return err.Error()
}

func (l *Lane) healthy() {
	l.backoff.Reset()
	l.retryAt = time.Time{}
	l.mu.Lock()
	l.showLive()
	l.mu.Unlock()
}

// showLive makes it visible that a fault has ended. The mutex is held.
func (l *Lane) showLive() {
	if l.mu.health.state != "live" {
		l.opt.Log.Info("the sink takes rows again", "sink", l.opt.Name)
	}
	l.mu.health = health{state: "live"}
	l.opt.Metrics.sinkLive(l.opt.Stream, l.opt.Name)
}

// carryFailed shows a fault that recovery met, unless the lane itself has one to show.
func (l *Lane) carryFailed(err error) {
	var fault *sinks.Error
	if !errors.As(err, &fault) {
		return
	}
	l.mu.Lock()
	own := l.mu.health.state != "live" && !l.mu.health.carried
	l.mu.Unlock()
	if own {
		return
	}
	l.show(err, 0)
	l.mu.Lock()
	l.mu.health.carried = true
	l.mu.Unlock()
}

// Recovered says that recovery reached the destination. A fault of its own the lane looks into again at once: only its own success
// counts while it has work.
func (l *Lane) Recovered() {
	l.mu.Lock()
	if l.mu.health.state != "live" {
		if l.mu.health.carried || l.mu.bytes == 0 {
			l.showLive()
		}
		l.mu.again = true
	}
	l.mu.Unlock()
	l.nudge()
}

// Complete says that recovery finds nothing missing: a fault that it met does not matter any more.
func (l *Lane) Complete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.health.carried {
		l.showLive()
	}
}

// tryAgain ends a pause when the destination is known to answer.
func (l *Lane) tryAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.again {
		l.mu.again, l.retryAt = false, time.Time{}
	}
}

// next is when the lane has to look again though nothing happens.
func (l *Lane) next(now time.Time) time.Time {
	at := now.Add(time.Minute)
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(at) {
			at = t
		}
	}
	for _, t := range []time.Time{l.retryAt, l.asking.until, l.beginning.until} {
		sooner(t)
	}
	for _, ld := range l.loads {
		sooner(ld.begun.Add(l.opt.Roll.Age))
		sooner(ld.oldest.Add(l.opt.Deadline))
	}
	for _, ld := range l.ready {
		sooner(ld.oldest.Add(l.opt.Deadline))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.queue) > 0 {
		sooner(l.mu.queue[0].Stored.Add(l.opt.Deadline))
	}
	return at
}
