package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/unit"
)

// stores is raw of one stream, open for looking in: no lock is taken and nothing is written.
type stores struct {
	cfg    *config.Stream
	bucket store.Bucket
	raw    *raw.Store
}

func openStores(ctx context.Context, s *config.Stream) (*stores, error) {
	if err := mustExist(s.Raw.To, "raw of stream "+s.Name); err != nil {
		return nil, err
	}
	bucket, err := store.Open(ctx, string(s.Raw.To), store.Options{})
	if err != nil {
		return nil, fmt.Errorf("opening raw of stream %s: %w", s.Name, err)
	}
	r, err := raw.Open(ctx, raw.Options{Bucket: bucket, Stream: s.Name, Codec: s.Raw.Compression, Shared: s.Raw.Shared, ReadOnly: true})
	if err != nil {
		return nil, errors.Join(err, bucket.Close())
	}
	return &stores{s, bucket, r}, nil
}

// mustExist keeps looking from making a directory.
func mustExist(l unit.Location, what string) error {
	u, err := url.Parse(string(l))
	if err != nil || u.Scheme != "file" {
		return err
	}
	if _, err := os.Stat(u.Path); err != nil {
		return fmt.Errorf("%s: %w; either nothing was stored yet, or the disk is not mounted", what, err)
	}
	return nil
}

func (s *stores) close() error { return errors.Join(s.raw.Close(), s.bucket.Close()) }

// which are the flags that choose partitions.
type which struct {
	topic     string
	partition int32
}

// partitions are those that were chosen, in order.
func (s *stores) partitions(ctx context.Context, w which) ([]record.Partition, error) {
	all, err := s.raw.Partitions(ctx)
	if err != nil {
		return nil, damagedExit(err)
	}
	set := map[record.Partition]bool{}
	for _, p := range all {
		if (w.topic == "" || w.topic == p.Topic) && (w.partition < 0 || w.partition == p.Number) {
			set[p] = true
		}
	}
	if len(set) == 0 && (w.topic != "" || w.partition >= 0) {
		return nil, fail(exitUsage, fmt.Errorf("raw of stream %s has no such partition; `twgd raw ls` lists what it has", s.cfg.Name))
	}
	return sorted(set), nil
}

// damagedExit gives damage its exit code.
func damagedExit(err error) error {
	if errors.Is(err, avrofile.ErrDamaged) {
		return fail(exitDamaged, err)
	}
	return err
}
