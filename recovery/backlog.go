package recovery

import (
	"context"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Backlog is what is left to do.
type Backlog struct {
	Windows, Records int64
	Bytes            int64         // compressed, in raw; an estimate
	Oldest           time.Duration // age of the oldest segment that is missing
	Working          string        // the window under way
	LastError        string
}

// Backlog is what was left when the agent looked last.
func (a *Agent) Backlog() Backlog {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.backlog
}

// Found reports whether the agent has looked: before, the backlog is not known.
func (a *Agent) Found() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found
}

// Coverage is what is known to be in the sink, by its own word and by the copies of other processes. ok is false while the sink has not
// been asked.
func (a *Agent) Coverage(p record.Partition) (set checkpoint.SpanSet, ok bool) {
	set, ok = a.opt.Lane.Coverage(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	set.Union(a.hints.set[p])
	return set, ok
}

// Speak lets the metrics show this agent's backlog until ctx ends. Where recovery is shared every agent knows the whole of it, and one
// speaks, so that a sum over nodes is right.
func (a *Agent) Speak(ctx context.Context) {
	a.speak(true)
	<-ctx.Done()
	a.speak(false)
}

func (a *Agent) speak(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.speaking = on
	if !on {
		a.opt.Metrics.silent(a.opt.Stream, a.opt.Lane.Name())
		return
	}
	a.publish()
}

// publish puts the backlog into the metrics. The mutex is held.
func (a *Agent) publish() {
	if a.speaking && a.found {
		a.opt.Metrics.backlog(a.opt.Stream, a.opt.Lane.Name(), a.backlog)
	}
}

// show publishes the backlog as it was found.
func (a *Agent) show(ctx context.Context, f found) {
	all := append(append([]window(nil), f.due...), f.supposed...)
	b := Backlog{Windows: int64(len(all)), Oldest: a.oldest(ctx, all), Bytes: a.weigh(ctx, all)}
	for _, w := range all {
		b.Records += w.s.Len()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	b.Working, b.LastError = a.backlog.Working, a.backlog.LastError
	a.backlog, a.found = b, true
	a.publish()
}

// filled takes one window off the backlog. The age stays until gaps are looked for again.
func (a *Agent) filled(w window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.backlog.Records > 0 {
		a.backlog.Bytes -= int64(float64(a.backlog.Bytes) * float64(w.s.Len()) / float64(a.backlog.Records))
	}
	a.backlog.Windows--
	a.backlog.Records -= w.s.Len()
	a.publish()
}

// lookups bounds the requests that are made at once only to show an age, or a size.
const lookups = 8

// oldest is the age of the oldest window, as far as it is known: of each partition the first one counts, and its segment is read once.
func (a *Agent) oldest(ctx context.Context, all []window) (age time.Duration) {
	ages, asked := map[window]time.Time{}, 0
	for _, w := range firsts(all) {
		at, known := a.ages[w]
		if !known && asked < lookups {
			asked++
			var err error
			at, known, err = a.opt.Raw.Written(ctx, w.p, w.s.From)
			known = known && err == nil
		}
		if known {
			ages[w] = at
			age = max(age, time.Since(at))
		}
	}
	a.ages = ages
	return age
}

// firsts are the first windows of their partitions.
func firsts(all []window) (out []window) {
	first := map[record.Partition]int{}
	for _, w := range all {
		i, seen := first[w.p]
		switch {
		case !seen:
			first[w.p] = len(out)
			out = append(out, w)
		case w.s.From < out[i].s.From:
			out[i] = w
		}
	}
	return out
}

// mean is how many compressed bytes an offset of a partition takes in raw, where its backlog begins.
type mean struct {
	bytes float64
	at    time.Time
}

// meansLast is how long a mean is good for.
const meansLast = time.Minute

// weigh estimates the compressed bytes of windows in raw, from the sizes of segments alone: of each partition some are listed where its
// backlog begins, and stand for the rest. A partition that could not be asked yet counts with the mean of the others.
func (a *Agent) weigh(ctx context.Context, all []window) int64 {
	if a.opt.Weigh == nil || len(all) == 0 {
		return 0
	}
	spans := map[record.Partition]checkpoint.Span{}
	missing := map[record.Partition]int64{}
	for _, w := range all {
		s, seen := spans[w.p]
		if !seen {
			s = w.s
		}
		spans[w.p] = checkpoint.Span{From: min(s.From, w.s.From), To: max(s.To, w.s.To)}
		missing[w.p] += w.s.Len()
	}
	a.learnMeans(ctx, spans)
	var bytes, of, rest float64
	for p, n := range missing {
		if m, known := a.means[p]; known {
			bytes += m.bytes * float64(n)
			of += float64(n)
		} else {
			rest += float64(n)
		}
	}
	if of == 0 {
		return 0
	}
	return int64(bytes + bytes/of*rest)
}

func (a *Agent) learnMeans(ctx context.Context, spans map[record.Partition]checkpoint.Span) {
	asked, now := 0, time.Now()
	for p, s := range spans {
		m, known := a.means[p]
		if known && now.Sub(m.at) < meansLast || asked == lookups {
			continue
		}
		asked++
		if n, err := a.opt.Weigh(ctx, p, s); err == nil {
			a.means[p] = mean{float64(n) / float64(s.Len()), now}
		}
	}
	for p := range a.means {
		if _, missing := spans[p]; !missing {
			delete(a.means, p)
		}
	}
}
