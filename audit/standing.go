package audit

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
)

// standing proves for each record that was dropped that raw has one of its content which was not. No failure of the program keeps it from that;
// somebody who takes a part of raw away does, or who leaves the notes where records are read anew: then the one that stands is gone, or two
// stand for each other. Sinks without them would look right otherwise.
//
// The notes are read before raw's heads are, since a record that stands was in raw when the note was made.
type standing struct {
	of    []record.Partition
	twins []twin // by stands
	there map[[8]byte]bool
	meant map[record.Partition]*checkpoint.SpanSet // dropped records that are in raw
}

// twin is a record that notes name. In standing.there is who stands, once raw has shown it: true where it was not dropped itself, or
// somebody stands for it in turn.
type twin struct {
	stands, tail [8]byte
	partition    int32 // of standing.of
	offset       int64
}

// gather reads the notes of all partitions; nil where there are none, or where they cannot be read, which is said elsewhere.
func gather(ctx context.Context, notes *duplicates.Reader, partitions []record.Partition) *standing {
	s := &standing{of: partitions, there: map[[8]byte]bool{}, meant: map[record.Partition]*checkpoint.SpanSet{}}
	for i, p := range partitions {
		err := notes.Each(ctx, p, checkpoint.Span{From: 0, To: Never}, func(named []duplicates.Dropped) {
			for n := range named {
				s.twins = append(s.twins, twin{named[n].Stands, named[n].ID.Tail(), int32(i), named[n].Offset})
			}
		})
		if err != nil && !errors.Is(err, avrofile.ErrDamaged) {
			return nil
		}
	}
	if len(s.twins) == 0 {
		return nil
	}
	slices.SortFunc(s.twins, func(a, b twin) int { return bytes.Compare(a.stands[:], b.stands[:]) })
	return s
}

// see takes the records of a batch of raw. dropped are the offsets, ascending, of those that notes name.
func (s *standing) see(p record.Partition, ids *record.Hasher, b *record.Batch, dropped []int64) {
	for i := range b.Records {
		r := &b.Records[i]
		tail := ids.ID(r).Tail()
		_, named := slices.BinarySearch(dropped, r.Offset)
		if named {
			s.mean(p, r.Offset)
		}
		if _, asked := slices.BinarySearchFunc(s.twins, tail, func(t twin, tail [8]byte) int { return bytes.Compare(t.stands[:], tail[:]) }); asked {
			s.there[tail] = s.there[tail] || !named
		}
	}
}

func (s *standing) mean(p record.Partition, offset int64) {
	if s.meant[p] == nil {
		s.meant[p] = &checkpoint.SpanSet{}
	}
	s.meant[p].Add(checkpoint.Span{From: offset, To: offset + 1})
}

// orphans are the dropped records for whom nobody stands, by the place of their partition. All of raw has been seen.
func (s *standing) orphans() []checkpoint.SpanSet {
	s.follow()
	out := make([]checkpoint.SpanSet, len(s.of))
	for _, stood := range []bool{false, true} { // one that two stand for is an orphan only without either
		for _, t := range s.twins {
			one := checkpoint.Span{From: t.offset, To: t.offset + 1}
			switch meant := s.meant[s.of[t.partition]]; {
			case s.there[t.stands] != stood || meant == nil || !meant.Covers(one):
			case stood:
				out[t.partition].Remove(one)
			default:
				out[t.partition].Add(one)
			}
		}
	}
	return out
}

// follow lets those stand that were dropped themselves, where somebody stands for them: two that only have each other never do.
func (s *standing) follow() {
	for changed := true; changed; {
		changed = false
		for _, t := range s.twins {
			if stands, asked := s.there[t.tail]; asked && !stands && s.there[t.stands] {
				s.there[t.tail], changed = true, true
			}
		}
	}
}

// findOrphans looks whom nobody stands for. Where raw is damaged nobody can tell, and damage is worse.
func (a *auditor) findOrphans() {
	if a.standing == nil || slices.ContainsFunc(a.facts.Partitions, func(f PartitionFacts) bool { return f.Chain != nil && len(f.Chain.Damage) > 0 }) {
		return
	}
	for i, set := range a.standing.orphans() {
		a.partition(a.standing.of[i]).Orphans = set
	}
}
