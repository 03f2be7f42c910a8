// Package parquet is the sink that writes Parquet files: one load, one file of one partition's contiguous span, created once
// and never changed. docs/formats/parquet.md draws the files.
package parquet

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// DefaultRowGroup is the memory of a load at which a row group is written out.
const DefaultRowGroup = 32 << 20

// Options of a sink.
type Options struct {
	Bucket      store.Bucket
	Stream      string // the first folder of every key
	Compression string // zstd (default), snappy or none
	Target      string // the destination without secrets, for Traits
	RowGroup    int64  // bytes of memory at which a load writes a row group to its staged file; 0: DefaultRowGroup
}

// Sink writes Parquet files below <stream>/ of a bucket. It closes the bucket.
type Sink struct {
	options Options
	layout  layout
	pools   *pools
	ratio   ratio // of file to raw bytes, of the last row group written by any load

	mu     sync.Mutex
	probed bool
}

// New makes a sink; it does no I/O.
func New(o Options) (*Sink, error) {
	if o.Compression == "" {
		o.Compression = "zstd"
	}
	if o.RowGroup <= 0 {
		o.RowGroup = DefaultRowGroup
	}
	codec, ok := codecs[o.Compression]
	if !ok {
		return nil, fmt.Errorf("the compression %q is not zstd, snappy or none", o.Compression)
	}
	sc, err := newSchema()
	if err != nil {
		return nil, err
	}
	s := &Sink{options: o, pools: newPools(), layout: layout{stream: o.Stream, schema: sc, props: properties(codec)}}
	if o.Compression == "zstd" {
		s.layout.zstd, err = newEncoderPool()
	}
	return s, err
}

// Traits of the sink.
func (s *Sink) Traits() sinks.Traits {
	return sinks.Traits{Kind: "parquet", Cuts: true, Target: s.options.Target}
}

// Open proves once that the store is create-only, and again after a load was blocked.
func (s *Sink) Open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probed {
		return nil
	}
	if err := s.options.Bucket.Probe(ctx); err != nil {
		return classify("probe the store", err)
	}
	s.probed = true
	return nil
}

// block makes the next Open probe again.
func (s *Sink) block() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probed = false
}

// Begin opens an empty load.
func (s *Sink) Begin() (sinks.Load, error) {
	l := &load{sink: s, group: newGroup(s.pools)}
	l.spool.bucket = s.options.Bucket
	return l, nil
}

// Close closes the bucket. No load may be open.
func (s *Sink) Close() error {
	if s.layout.zstd != nil {
		s.layout.zstd.Close()
	}
	return s.options.Bucket.Close()
}

// ratio is how many bytes of a file one raw byte becomes; 1 until something is known.
type ratio struct{ bits atomic.Uint64 }

func (r *ratio) observe(raw, out int64) {
	if raw > 0 {
		r.bits.Store(math.Float64bits(float64(out) / float64(raw)))
	}
}

// of estimates what raw bytes will have in the file.
func (r *ratio) of(raw int64) int64 {
	f := math.Float64frombits(r.bits.Load())
	if f <= 0 {
		return raw
	}
	return int64(math.Ceil(float64(raw) * f))
}
