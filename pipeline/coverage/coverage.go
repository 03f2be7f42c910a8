// Package coverage keeps copies of the sinks' coverage beside raw. A store inside a sink cannot say that the sink is down; the
// copies can, so that status, audit and autoscaling always have an answer. They lag and never lead: a span is copied after the
// sink's receipt.
//
// Each process writes one object a sink, and only its own; the truth is the union of all. For a sink that has no place of its own
// for coverage, the copies are the coverage.
package coverage

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// Set is what a sink covers, by partition.
type Set map[record.Partition]checkpoint.SpanSet

// add puts the spans of p into the set, without sharing memory with them.
func (s Set) add(p record.Partition, spans checkpoint.SpanSet) {
	have := s[p]
	have.Union(spans)
	s[p] = have
}

// object is one process's copy for one sink; docs/formats/coverage.md draws it.
type object struct {
	Version    int         `json:"version"`
	Stream     string      `json:"stream"`
	Sink       string      `json:"sink"`
	Node       string      `json:"node"`
	Written    string      `json:"written"`
	Copies     []source    `json:"copies,omitempty"` // of the cache alone: what it was made of
	Partitions []partition `json:"partitions"`
}

type partition struct {
	Cluster    string            `json:"cluster"`
	Topic      string            `json:"topic"`
	TopicID    string            `json:"topic_id"`
	Partition  int32             `json:"partition"`
	Generation int32             `json:"generation"`
	Spans      []checkpoint.Span `json:"spans"`
}

const suffix = ".json"

func dir(stream, sink string) string { return stream + "/_coverage/" + sink + "/" }

func encode(stream, sink, node string, set Set, now time.Time) ([]byte, error) {
	return json.Marshal(newObject(stream, sink, node, set, now))
}

func newObject(stream, sink, node string, set Set, now time.Time) object {
	o := object{1, stream, sink, node, now.UTC().Format(time.RFC3339Nano), nil, []partition{}}
	less := func(a, b record.Partition) int {
		switch {
		case a.Cluster != b.Cluster:
			return strings.Compare(a.Cluster, b.Cluster)
		case a.Less(b):
			return -1
		case b.Less(a):
			return 1
		}
		return 0
	}
	for _, p := range slices.SortedFunc(maps.Keys(set), less) {
		if spans := set[p].Spans(); len(spans) > 0 {
			o.Partitions = append(o.Partitions, partition{p.Cluster, p.Topic, hex.EncodeToString(p.TopicID[:]), p.Number, p.Generation, spans})
		}
	}
	return o
}

// errVersion says that another version of this program wrote an object.
var errVersion = errors.New("it is of another version")

// decode adds what an object covers to set, or nothing where it is not whole.
func decode(body []byte, set Set) error {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return fmt.Errorf("%w: it is not a copy of coverage: %v", avrofile.ErrDamaged, err)
	}
	if o.Version != 1 {
		return fmt.Errorf("%w: %d, this program knows 1", errVersion, o.Version)
	}
	got := Set{}
	for _, q := range o.Partitions {
		p := record.Partition{Cluster: q.Cluster, Topic: q.Topic, Number: q.Partition, Generation: q.Generation}
		var err error
		if p.TopicID, err = record.ParseTopicID(q.TopicID); err != nil {
			return fmt.Errorf("%w: %v", avrofile.ErrDamaged, err)
		}
		for _, s := range q.Spans {
			if s.From < 0 || s.Empty() {
				return fmt.Errorf("%w: it covers %v of %v", avrofile.ErrDamaged, s, p)
			}
		}
		got.add(p, checkpoint.NewSpanSet(q.Spans...))
	}
	for p, spans := range got {
		set.add(p, spans)
	}
	return nil
}

// Load is the union of all copies of a sink's coverage. A copy that is damaged is an error, for which errors.Is finds
// avrofile.ErrDamaged. Copies that the cache holds as they are now are not read one by one; a cache that is of no use is passed over.
func Load(ctx context.Context, bucket store.Bucket, stream, sink string) (Set, error) {
	now, err := list(ctx, bucket, stream, sink)
	if err != nil {
		return nil, err
	}
	set, m := Set{}, merged{}
	if len(now) > 1 {
		m, _ = readMerged(ctx, bucket, stream, sink)
	}
	if m.stands(now) {
		set = m.set
	} else {
		m = merged{}
	}
	for _, s := range now {
		if m.sources[s] {
			continue
		}
		own, err := readCopy(ctx, bucket, stream, sink, s.Name)
		if err != nil {
			return nil, err
		}
		for p, spans := range own {
			set.add(p, spans)
		}
	}
	return set, nil
}

// list finds the copies of a sink's coverage.
func list(ctx context.Context, bucket store.Bucket, stream, sink string) ([]source, error) {
	entries, err := bucket.List(ctx, dir(stream, sink), "", 0)
	if err != nil {
		return nil, fmt.Errorf("listing the coverage of %s: %w", sink, err)
	}
	var out []source
	for _, e := range entries {
		s := sourceOf(dir(stream, sink), e)
		if strings.HasSuffix(s.Name, suffix) && !strings.HasPrefix(s.Name, "_") && !strings.Contains(s.Name, "/") {
			out = append(out, s)
		}
	}
	return out, nil
}

func readCopy(ctx context.Context, bucket store.Bucket, stream, sink, name string) (Set, error) {
	set, key := Set{}, dir(stream, sink)+name
	body, err := bucket.Read(ctx, key)
	if err == nil {
		err = decode(body, set)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the coverage of %s: %s: %w", sink, key, err)
	}
	return set, nil
}
