package quarantine

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/sinks"
)

// file is rows of one sink on their way to the store. They are encoded when they are taken, into blocks of a bounded size, so that
// a file grows without its bytes being copied again and again.
type file struct {
	sink    string
	since   time.Time // of the first row
	blocks  []avrofile.Block
	bytes   int64 // by weigh
	reasons map[string]int64

	closed   time.Time // in the name
	sequence int64     // in the name
	body     []byte    // as it was first sent: what a later attempt compares with
}

const blockSize = 256 << 10

func newFile(sink string, now time.Time) *file {
	return &file{sink: sink, since: now, reasons: map[string]int64{}}
}

// add encodes a row of weight n.
func (f *file) add(r *sinks.Reject, n int64, now time.Time) {
	last := len(f.blocks) - 1
	if last < 0 || len(f.blocks[last].Entries)+int(n) > blockSize {
		f.blocks = append(f.blocks, avrofile.Block{})
		last++
	}
	b := &f.blocks[last]
	b.Entries = appendRow(b.Entries, r, f.sink, now)
	b.Count++
	f.bytes += n
	f.reasons[r.Reason]++
}

func (f *file) close(now time.Time, sequence int64) { f.closed, f.sequence = now, sequence }

// write makes one attempt to store the file. A name that is taken is ours, after a lost reply, or that of a process with the same
// name; then the next number is tried.
func (f *file) write(ctx context.Context, opt *Options) error {
	if f.body == nil {
		c, err := avrofile.NewCodec(codec)
		if err != nil {
			return err
		}
		meta := map[string]string{"twgd.version": "1", "twgd.stream": opt.Stream, "twgd.sink": f.sink, "twgd.node": opt.Node}
		if f.body, err = avrofile.Seal(schema, c, meta, f.blocks...); err != nil {
			return fmt.Errorf("writing the quarantine: %w", err)
		}
		f.blocks = nil
	}
	for {
		key := File{Stream: opt.Stream, Sink: f.sink, Time: f.closed, Node: opt.Node, Sequence: f.sequence}.key()
		stored, _, err := chain.Once(ctx, opt.Bucket, key, f.body)
		if err != nil {
			return fmt.Errorf("writing the quarantine: %w", err)
		}
		if bytes.Equal(stored, f.body) {
			return nil
		}
		f.sequence++
	}
}
