// Package trail keeps the dq-audit trail of a stream: what was rejected, shed or skipped is written there, durably, before
// that sink's coverage passes it. The quarantine is a view for people and may shed; a counter is forgotten at a restart; the
// trail is the record that audit reads.
//
// Each process appends to a folder of its own beside raw, one object an append. Entries are a set: one that was written twice,
// because a reply was lost or a process died in between, counts once.
package trail

import (
	"context"
	"fmt"
	"math"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/store"
)

// All calls f with every entry of all writers of the stream, those of one writer in the order in which they were stored. An
// error of f ends it and is returned. An object that is not whole is an error for which errors.Is finds avrofile.ErrDamaged.
func All(ctx context.Context, bucket store.Bucket, stream string, f func(Entry) error) error {
	return since(ctx, bucket, stream, map[string]int64{}, f)
}

// since reads what writers have stored from the sequence numbers in next on, and moves them past each object that was read whole.
func since(ctx context.Context, bucket store.Bucket, stream string, next map[string]int64, f func(Entry) error) error {
	writers, err := bucket.Dirs(ctx, dir(stream))
	if err != nil {
		return fmt.Errorf("listing the trail's writers: %w", err)
	}
	for _, w := range writers {
		l := chain.Log{Bucket: bucket, Dir: dir(stream) + w, Suffix: suffix}
		names, err := l.Names(ctx, next[w], math.MaxInt64, 0)
		if err != nil {
			return fmt.Errorf("listing the trail: %w", err)
		}
		for _, n := range names {
			if err := read(ctx, bucket, l.Key(n), f); err != nil {
				return err
			}
			next[w] = n + 1
		}
	}
	return nil
}

// read calls f with the entries of one object, after all of it has been checked.
func read(ctx context.Context, bucket store.Bucket, key string, f func(Entry) error) error {
	body, err := bucket.Read(ctx, key)
	if err != nil {
		return fmt.Errorf("reading the trail: %w", err)
	}
	entries, err := decode(body)
	if err != nil {
		return fmt.Errorf("reading the trail: %s: %w", key, err)
	}
	for i := range entries {
		if err := f(entries[i]); err != nil {
			return err
		}
	}
	return nil
}

func decode(body []byte) ([]Entry, error) {
	meta, blocks, err := avrofile.Unseal(body)
	if err != nil {
		return nil, err
	}
	if v := meta["twgd.version"]; v != "1" {
		return nil, fmt.Errorf("the trail is of version %q, this program knows version 1", v)
	}
	var entries []Entry
	for _, b := range blocks {
		for d := avrofile.NewDecoder(b.Entries); d.More(); {
			var e Entry
			if err := parseEntry(d, &e); err != nil {
				return nil, fmt.Errorf("%w: %v", avrofile.ErrDamaged, err)
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}
