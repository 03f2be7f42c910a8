package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Ranges asks for the start and the end of the log of every partition that a stream of these options reads, as its isolation sees
// them. What could be learned is returned also beside an error.
func Ranges(ctx context.Context, o Options) (map[record.Partition]checkpoint.Span, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	w, err := newWire(&o)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	defer w.Close()
	reach, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := w.Ping(reach); err != nil {
		return nil, fmt.Errorf("kafka: the brokers cannot be reached: %w", err)
	}
	seen, err := w.topology(ctx, o.names())
	if err != nil {
		return nil, fmt.Errorf("kafka: asking for the topics: %w", err)
	}
	if o.ClusterID != "" {
		seen.cluster = o.ClusterID
	}
	out := map[record.Partition]checkpoint.Span{}
	wanted := o.wanted()
	for _, name := range slices.Sorted(maps.Keys(seen.topics)) {
		if !wanted(name) {
			continue
		}
		t := seen.topics[name]
		err = errors.Join(err, t.err)
		for n, l := range t.partitions {
			if t.err == nil && o.pinned(name, n) {
				p := record.Partition{Cluster: seen.cluster, Topic: name, TopicID: t.id, Number: n}
				err = errors.Join(err, w.rangeOf(ctx, spot{name, n, l}, p, out))
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("kafka: %w", err)
	}
	return out, err
}

// rangeOf adds one partition.
func (w *wire) rangeOf(ctx context.Context, at spot, p record.Partition, out map[record.Partition]checkpoint.Span) error {
	start, err := w.offset(ctx, at, askEarliest, 0)
	if err != nil {
		return fmt.Errorf("asking where %v begins: %w", p, err)
	}
	end, err := w.offset(ctx, at, askLatest, w.isolation)
	if err != nil {
		return fmt.Errorf("asking where %v ends: %w", p, err)
	}
	out[p] = checkpoint.Span{From: start, To: end}
	return nil
}
