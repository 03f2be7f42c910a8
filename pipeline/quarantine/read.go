package quarantine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/store"
)

// File is one file of a quarantine.
type File struct {
	Stream, Sink string
	Time         time.Time // when it was closed, by the clock of its writer, in milliseconds
	Node         string    // <node>~<instance>
	Sequence     int64
	Key          string
	Size         int64
}

// timeLayout sorts as time does.
const timeLayout = "20060102T150405.000Z"

const suffix = ".avro"

func (f File) key() string {
	return fmt.Sprintf("%s/%s/%s-%s-%06d%s", f.Stream, f.Sink, f.Time.UTC().Format(timeLayout), f.Node, f.Sequence, suffix)
}

// parseKey takes the name in a key apart: the node may hold dashes itself.
func parseKey(f File) (File, error) {
	name, ok := strings.CutSuffix(f.Key[strings.LastIndexByte(f.Key, '/')+1:], suffix)
	begin, rest, dash := strings.Cut(name, "-")
	i := strings.LastIndexByte(rest, '-')
	if !ok || !dash || i < 1 {
		return f, errors.New("it is not <time>-<node>-<sequence>.avro")
	}
	var err error
	f.Node = rest[:i]
	if f.Time, err = time.Parse(timeLayout, begin); err == nil {
		f.Sequence, err = strconv.ParseInt(rest[i+1:], 10, 64)
	}
	return f, err
}

// List lists the files of a sink that were closed at since or later, the oldest first; of all sinks, one after the other, where
// sink is empty. Files that the quarantine has not written are left out.
func List(ctx context.Context, bucket store.Bucket, stream, sink string, since time.Time) ([]File, error) {
	names := []string{sink}
	if sink == "" {
		var err error
		if names, err = bucket.Dirs(ctx, stream+"/"); err != nil {
			return nil, fmt.Errorf("listing the quarantine: %w", err)
		}
	}
	var out []File
	for _, sink := range names {
		dir := stream + "/" + sink + "/"
		after := ""
		if !since.IsZero() {
			after = dir + since.UTC().Format(timeLayout)
		}
		entries, err := bucket.List(ctx, dir, after, 0)
		if err != nil {
			return nil, fmt.Errorf("listing the quarantine: %w", err)
		}
		for _, e := range entries {
			if f, err := parseKey(File{Stream: stream, Sink: sink, Key: e.Key, Size: e.Size}); err == nil {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// Cat calls f with each row of a file, after the whole file has been checked. Rows share memory with each other, not with later
// calls. An error of f ends it and is returned; a file that is not whole is avrofile.ErrDamaged.
func Cat(ctx context.Context, bucket store.Bucket, key string, f func(*Row) error) error {
	body, err := bucket.Read(ctx, key)
	if err != nil {
		return fmt.Errorf("reading the quarantine: %w", err)
	}
	meta, blocks, err := avrofile.Unseal(body)
	if err == nil && meta["twgd.version"] != "1" {
		err = fmt.Errorf("it is of version %q, this program knows version 1", meta["twgd.version"])
	}
	if err != nil {
		return fmt.Errorf("reading the quarantine: %s: %w", key, err)
	}
	for _, b := range blocks {
		for d := avrofile.NewDecoder(b.Entries); d.More(); {
			var r Row
			if err := parseRow(d, &r); err != nil {
				return fmt.Errorf("reading the quarantine: %s: %w: %v", key, avrofile.ErrDamaged, err)
			}
			if err := f(&r); err != nil {
				return err
			}
		}
	}
	return nil
}
