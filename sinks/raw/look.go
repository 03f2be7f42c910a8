package raw

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// HeadFrom is Head for who has seen the chain before and found it to end at was: on object storage that is one listing where little was
// added since, and nothing is read where nothing was.
func (s *Store) HeadFrom(ctx context.Context, p record.Partition, was sinks.Head) (sinks.Head, error) {
	o, ok := s.medium.(*objects)
	if known := s.chain(p).head.Load(); !ok || known != nil || was.Next <= was.Genesis {
		return s.Head(ctx, p)
	}
	id := s.id(p)
	id.genesis = was.Genesis
	head, err := o.headFrom(ctx, id, was)
	if err != nil {
		return was, fmt.Errorf("finding the head of %v: %w", p, err)
	}
	return head, nil
}

func (o *objects) headFrom(ctx context.Context, c chainID, was sinks.Head) (sinks.Head, error) {
	var s stored
	log := o.log(c, &s)
	first, found, err := log.Last(ctx, was.Last)
	if err != nil || !found || first == was.Last {
		return was, err
	}
	link, err := log.Link(ctx, first)
	if err == nil && link == nil {
		err = fmt.Errorf("%s is listed but cannot be read", log.Key(first))
	}
	if err != nil {
		return was, err
	}
	was.Last, was.Next, was.LeaderEpoch = first, s.Next, s.epoch
	return was, nil
}

// written is when the commit that holds offset was stored, out of its header alone. False where the chain ends in front of it.
func (o *objects) written(ctx context.Context, c chainID, offset int64) (at time.Time, ok bool, err error) {
	var s stored
	log := o.log(c, &s)
	first, found, err := log.Before(ctx, c.genesis, max(offset, c.genesis))
	if err != nil || !found {
		return at, false, err
	}
	link, err := log.Link(ctx, first)
	if err != nil || link == nil {
		return at, false, err
	}
	if offset >= s.Next {
		return at, false, nil
	}
	return s.written, true, nil
}

// sample is how many segments stand for a span.
const sample = 1000

// Weigh estimates the compressed bytes that a span takes, from the sizes of segments as a listing shows them: nothing is read. The first
// thousand segments of the span, which one request lists, stand for all of it; an offset counts as the mean of its segment.
func (s *Store) Weigh(ctx context.Context, p record.Partition, span checkpoint.Span) (int64, error) {
	head, err := s.Head(ctx, p)
	if err != nil {
		return 0, err
	}
	span = span.Intersect(checkpoint.Span{From: head.Genesis, To: head.Next})
	if span.Empty() {
		return 0, nil
	}
	segments, err := s.segmentsAround(ctx, p, span.From, head.Genesis)
	if err != nil {
		return 0, err
	}
	return weigh(segments, span, head.Next), nil
}

// segmentsAround lists up to sample segments from the one that holds from on, and one more where there is one.
func (s *Store) segmentsAround(ctx context.Context, p record.Partition, from, genesis int64) ([]Segment, error) {
	dir := s.id(p).dir + "/"
	names := chain.Log{Bucket: s.opt.Bucket, Dir: s.id(p).dir, Suffix: suffix} // of files as well: only names are asked for
	begin, found, err := names.Before(ctx, genesis, from)
	if err != nil {
		return nil, err
	}
	if !found {
		begin = from
	}
	after := dir
	if begin > 0 {
		after = dir + record.OffsetName(begin-1) + suffix
	}
	entries, err := s.opt.Bucket.List(ctx, dir, after, sample+1)
	if err != nil {
		return nil, fmt.Errorf("listing the segments of %v: %w", p, err)
	}
	var out []Segment
	for _, e := range entries {
		if first, ok := fileOffset(strings.TrimPrefix(e.Key, dir)); ok {
			out = append(out, Segment{first, e.Key, e.Size})
		}
	}
	return out, nil
}

// weigh is the bytes of span by the segments that were listed, of which each ends where the next one begins and the last one of the
// chain at head. What lies behind them counts as their mean.
func weigh(segments []Segment, span checkpoint.Span, head int64) int64 {
	var bytes, offsets float64
	for i, g := range segments {
		of := checkpoint.Span{From: g.First, To: head}
		switch {
		case i+1 < len(segments):
			of.To = segments[i+1].First
		case len(segments) > sample: // where this one ends was not listed
			continue
		}
		part := of.Intersect(span)
		if part.Empty() {
			continue
		}
		bytes += float64(g.Size) * float64(part.Len()) / float64(of.Len())
		offsets += float64(part.Len())
	}
	if offsets == 0 {
		return 0
	}
	return int64(bytes / offsets * float64(span.Len()))
}
