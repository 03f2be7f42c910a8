package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
)

// countNotes asks the notes of dropped duplicates for their counts. They are asked after the sinks: what a sink's coverage has passed
// without a row was noted before.
func (a *auditor) countNotes(ctx context.Context) {
	a.Progress("counting dropped duplicates")
	totals, err := a.notes.Totals(ctx)
	a.notesFault(err)
	for i := range a.facts.Partitions {
		f := &a.facts.Partitions[i]
		f.Dropped = totals[f.Partition]
	}
}

// notesFault takes an error of the notes: damage is damage, and all else keeps an audit from knowing what was dropped.
func (a *auditor) notesFault(err error) {
	switch {
	case err == nil:
	case !errors.Is(err, avrofile.ErrDamaged):
		a.facts.Notes = err.Error()
	case !slices.Contains(a.facts.Damage, err.Error()):
		a.facts.Damage = append(a.facts.Damage, err.Error())
	}
}

// readNotes reads all notes of a partition where their counts are not enough: because everything is to be read, or because a sink has
// rejected something that they may say stands for others.
func (a *auditor) readNotes(ctx context.Context, f *PartitionFacts) {
	if !a.Full && !a.Rows && (f.Dropped == 0 || !a.anyRejects()) {
		return
	}
	var count int64
	err := a.notes.Each(ctx, f.Partition, checkpoint.Span{From: f.Chain.Genesis, To: f.Chain.Next}, func(named []duplicates.Dropped) {
		for i := range named {
			if i == 0 || named[i].Offset != named[i-1].Offset {
				count++
			}
			a.twins(f, &named[i])
		}
	})
	a.notesFault(err)
	f.Dropped = count
	for i := range f.Sinks {
		a.askForTwins(ctx, f.Partition, i, &f.Sinks[i])
	}
}

func (a *auditor) anyRejects() bool {
	return slices.ContainsFunc(a.Sinks, func(s Sink) bool { return a.trail.MissesAny(s.Name) })
}

// twins notes the sinks that were not given a record although they have rejected the one that stands for it.
func (a *auditor) twins(f *PartitionFacts, d *duplicates.Dropped) {
	one := checkpoint.Span{From: d.Offset, To: d.Offset + 1}
	for i := range a.Sinks {
		h := &f.Sinks[i]
		if !a.trail.Misses(a.Sinks[i].Name, d.Stands) || !h.Coverage.Covers(one) {
			continue
		}
		rejected := false // itself, when recovery wrote it
		for _, set := range h.Trail {
			rejected = rejected || set.Covers(one)
		}
		if !rejected {
			h.Twins.Add(one)
		}
	}
}

// spansAtOnce bounds how many spans a sink is asked about at once.
const spansAtOnce = 1000

// askForTwins takes out those that the sink has all the same: recovery writes them. Where it cannot be asked, all are left.
func (a *auditor) askForTwins(ctx context.Context, p record.Partition, i int, h *Holding) {
	if s := &a.facts.Sinks[i]; h.Twins.Len() == 0 || s.Away != "" || s.Refuse != "" {
		return
	}
	var ones []checkpoint.Span
	for _, s := range h.Twins.Spans() {
		for o := s.From; o < s.To; o++ {
			ones = append(ones, checkpoint.Span{From: o, To: o + 1})
		}
	}
	for some := range slices.Chunk(ones, spansAtOnce) {
		rows, err := a.Sinks[i].Sink.Count(ctx, p, some)
		if err != nil {
			a.facts.Sinks[i].fault(err)
			return
		}
		for n := range some {
			if rows[n] > 0 {
				h.Twins.Remove(some[n])
			}
		}
	}
}

// notesAhead is of how many offsets notes are read ahead.
const notesAhead = 100_000

// dropping knows which records of a chain that is being read were dropped. It looks ahead, so that notes are not asked for each batch.
type dropping struct {
	notes *duplicates.Reader
	p     record.Partition
	ids   *record.Hasher
	to    int64 // up to where named reaches
	named []duplicates.Dropped
}

// in lists the offsets of the records of b that were dropped. Batches come in order.
func (d *dropping) in(ctx context.Context, b *record.Batch) (offsets []int64, err error) {
	if b.Next > d.to {
		d.to = max(b.Next, b.First+notesAhead)
		d.named, err = d.notes.Within(ctx, d.p, checkpoint.Span{From: b.First, To: d.to})
		if err != nil && !errors.Is(err, avrofile.ErrDamaged) {
			return nil, fmt.Errorf("reading what was dropped: %w", err)
		}
	}
	for i := range b.Records {
		r := &b.Records[i]
		for len(d.named) > 0 && d.named[0].Offset < r.Offset {
			d.named = d.named[1:]
		}
		for n := 0; n < len(d.named) && d.named[n].Offset == r.Offset; n++ {
			if d.named[n].ID == d.ids.ID(r) {
				offsets = append(offsets, r.Offset)
				break
			}
		}
	}
	return offsets, nil
}
