package audit

import (
	"context"
	"slices"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// counter counts what raw has of a sink's coverage, by windows of offsets, while the chain is read.
type counter struct {
	window   int64
	spans    []checkpoint.Span // of the coverage, ascending
	rejected checkpoint.SpanSet
	at       int // the span that the last offset lay in, or the next one
	windows  map[place]*Rows
}

// place is a window of a span.
type place struct {
	span   int
	window int64
}

// counters are one for each sink; nil where rows are not asked for.
func (a *auditor) counters(f *PartitionFacts) []*counter {
	if !a.Rows {
		return nil
	}
	out := make([]*counter, len(a.Sinks))
	for i := range out {
		h := &f.Sinks[i]
		out[i] = &counter{window: a.Window, spans: h.Coverage.Within(checkpoint.Span{From: f.Chain.Genesis, To: f.Chain.Next}).Spans(), windows: map[place]*Rows{}}
		for _, set := range h.Trail {
			out[i].rejected.Union(set)
		}
	}
	return out
}

// take counts the records of a batch; batches come in order. dropped are the offsets, ascending, of those that were dropped.
func (c *counter) take(b *record.Batch, dropped []int64) {
	for i := range b.Records {
		o := b.Records[i].Offset
		for c.at < len(c.spans) && c.spans[c.at].To <= o {
			c.at++
		}
		if c.at == len(c.spans) {
			return
		}
		if o < c.spans[c.at].From {
			continue
		}
		r := c.in(o)
		r.Records++
		if c.rejected.Covers(checkpoint.Span{From: o, To: o + 1}) {
			r.Rejected++
		} else if _, found := slices.BinarySearch(dropped, o); found {
			r.Dropped++
		}
	}
}

// in is the window that holds an offset of the span at c.at.
func (c *counter) in(o int64) *Rows {
	k := o / c.window
	at := place{c.at, k}
	r := c.windows[at]
	if r == nil {
		r = &Rows{Span: checkpoint.Span{From: k * c.window, To: (k + 1) * c.window}.Intersect(c.spans[c.at])}
		c.windows[at] = r
	}
	return r
}

// whole adds up the windows of each span.
func (c *counter) whole() []Rows {
	out := make([]Rows, len(c.spans))
	for i := range out {
		out[i].Span = c.spans[i]
	}
	for at, r := range c.windows {
		out[at.span].Records += r.Records
		out[at.span].Rejected += r.Rejected
		out[at.span].Dropped += r.Dropped
	}
	return out
}

// countRows asks a sink for its rows: by whole spans, and where they do not agree with raw by windows, to find the place.
func (a *auditor) countRows(ctx context.Context, f *PartitionFacts, i int, c *counter) {
	s, h := &a.facts.Sinks[i], &f.Sinks[i]
	if s.Away != "" || s.Refuse != "" {
		h.Uncount = s.Away + s.Refuse
		return
	}
	if len(f.Chain.Damage) > 0 {
		h.Uncount = "raw is damaged, so that there is nothing to compare them with"
		return
	}
	a.Progress("counting rows of sink " + s.Name)
	rows := c.whole()
	if err := a.count(ctx, f.Partition, i, rows); err != nil {
		h.Uncount = reason(err)
		return
	}
	h.Rows = []Rows{}
	for n, r := range rows {
		if r.missing() == 0 && r.extra() == 0 {
			h.Rows = append(h.Rows, r)
			continue
		}
		parts := c.parts(n)
		if err := a.count(ctx, f.Partition, i, parts); err != nil {
			h.Uncount = reason(err)
			return
		}
		h.Rows = append(h.Rows, parts...)
	}
}

// parts are the windows of span n, with those that hold no record of raw.
func (c *counter) parts(n int) (out []Rows) {
	s := c.spans[n]
	for at := s.From; at < s.To; {
		k := at / c.window
		if r := c.windows[place{n, k}]; r != nil {
			out = append(out, *r)
		} else {
			out = append(out, Rows{Span: checkpoint.Span{From: k * c.window, To: (k + 1) * c.window}.Intersect(s)})
		}
		at = min(s.To, (k+1)*c.window)
	}
	return out
}

func (a *auditor) count(ctx context.Context, p record.Partition, i int, rows []Rows) error {
	if len(rows) == 0 {
		return nil
	}
	spans := make([]checkpoint.Span, len(rows))
	for n := range rows {
		spans[n] = rows[n].Span
	}
	counts, err := a.Sinks[i].Sink.Count(ctx, p, spans)
	if err != nil {
		return err
	}
	for n := range rows {
		rows[n].Rows = counts[n]
	}
	return nil
}
