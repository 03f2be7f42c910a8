package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/pipeline/trail"
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
	pairs := make([][]pair, len(f.Sinks))
	err := a.notes.Each(ctx, f.Partition, checkpoint.Span{From: f.Chain.Genesis, To: f.Chain.Next}, func(named []duplicates.Dropped) {
		for i := range named {
			if i == 0 || named[i].Offset != named[i-1].Offset {
				count++
			}
			a.twins(f, &named[i], pairs)
		}
	})
	a.notesFault(err)
	f.Dropped = count
	for i := range f.Sinks {
		f.Sinks[i].Twins = a.twinsOf(ctx, f.Partition, i, pairs[i])
	}
}

func (a *auditor) anyRejects() bool {
	return slices.ContainsFunc(a.Sinks, func(s Sink) bool { return a.trail.RejectsAny(s.Name) })
}

// pair is a record that a sink was not given, and the one that stands for it, which the sink rejected.
type pair struct {
	twin   int64
	stands trail.Rejected
}

// twins notes the sinks that were not given a record although they once rejected the one that stands for it.
func (a *auditor) twins(f *PartitionFacts, d *duplicates.Dropped, pairs [][]pair) {
	for i := range a.Sinks {
		h := &f.Sinks[i]
		at, ok := a.trail.Rejected(a.Sinks[i].Name, d.Stands)
		if !ok || !h.Coverage.Covers(only(d.Offset)) {
			continue
		}
		rejected := false // itself, when recovery wrote it
		for _, set := range h.Trail {
			rejected = rejected || set.Covers(only(d.Offset))
		}
		if !rejected {
			pairs[i] = append(pairs[i], pair{d.Offset, at})
		}
	}
}

func only(offset int64) checkpoint.Span { return checkpoint.Span{From: offset, To: offset + 1} }

// twinsOf are those whose content a sink lacks: it has neither them, which recovery may have written, nor one that stands for them, which it
// may have taken at a later attempt. Into a file nothing comes later. Where the sink cannot be asked, all are left.
func (a *auditor) twinsOf(ctx context.Context, p record.Partition, i int, pairs []pair) (twins checkpoint.SpanSet) {
	s := &a.facts.Sinks[i]
	for _, of := range pairs {
		twins.Add(only(of.twin))
	}
	if len(pairs) == 0 || s.Away != "" || s.Refuse != "" {
		return twins
	}
	for _, had := range a.there(ctx, i, p, twins).Spans() {
		twins.Remove(had)
	}
	if s.Files || twins.Len() == 0 {
		return twins
	}
	standing := map[record.Partition]checkpoint.SpanSet{}
	for _, of := range pairs {
		if at := of.stands; at != (trail.Rejected{}) && twins.Covers(only(of.twin)) {
			set := standing[at.Partition]
			set.Add(only(at.Offset))
			standing[at.Partition] = set
		}
	}
	for q, set := range standing {
		standing[q] = a.there(ctx, i, q, set)
	}
	var lacking checkpoint.SpanSet
	for _, of := range pairs {
		if twins.Covers(only(of.twin)) && !standing[of.stands.Partition].Covers(only(of.stands.Offset)) {
			lacking.Add(only(of.twin))
		}
	}
	return lacking
}

// spansAtOnce bounds how many spans a sink is asked about at once.
const spansAtOnce = 1000

// there are the offsets of a set that sink i has: none where it does not answer.
func (a *auditor) there(ctx context.Context, i int, p record.Partition, set checkpoint.SpanSet) (there checkpoint.SpanSet) {
	var ones []checkpoint.Span
	for _, s := range set.Spans() {
		for o := s.From; o < s.To; o++ {
			ones = append(ones, only(o))
		}
	}
	for some := range slices.Chunk(ones, spansAtOnce) {
		rows, err := a.Sinks[i].Sink.Count(ctx, p, some)
		if err != nil {
			a.facts.Sinks[i].fault(err)
			return there
		}
		for n := range some {
			if rows[n] > 0 {
				there.Add(some[n])
			}
		}
	}
	return there
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
