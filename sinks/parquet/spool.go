package parquet

import (
	"context"
	"io"

	"github.com/stream-arrow/twgd/store"
)

// spoolBuffer is how much is gathered before it goes to the staged file.
const spoolBuffer = 256 << 10

// stager is the part of a bucket that a spool needs.
type stager interface {
	Stage(ctx context.Context) (store.Stage, error)
}

// spool takes a file's bytes on their way to its staged object. Write never fails: what the disk refuses (it is full, say) stays
// in memory and is tried again with the next write and at commit. So the encoders in front of it cannot be left half-way, and a
// load is whole after every error.
type spool struct {
	bucket  stager
	stage   store.Stage // nil until something is written through
	pending []byte
	total   int64 // bytes that Write took
	err     error // of the last try
}

// Write keeps p and passes on what has gathered.
func (s *spool) Write(p []byte) (int, error) {
	s.pending = append(s.pending, p...)
	s.total += int64(len(p))
	if len(s.pending) >= spoolBuffer {
		s.err = s.drain(context.Background()) // the disk, not the network: a stage is local
	}
	return len(p), nil
}

// Tell is the position in the file.
func (s *spool) Tell() int64 { return s.total }

// drain writes all that is pending.
func (s *spool) drain(ctx context.Context) (err error) {
	if s.stage == nil {
		if s.stage, err = s.bucket.Stage(ctx); err != nil {
			s.stage = nil
			return err
		}
	}
	for len(s.pending) > 0 {
		n, err := s.stage.Write(s.pending)
		s.pending = s.pending[:copy(s.pending, s.pending[n:])]
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
	}
	if cap(s.pending) > 4*spoolBuffer {
		s.pending = nil // grown while the disk refused
	}
	return nil
}

// memory is what the spool holds.
func (s *spool) memory() int64 { return int64(cap(s.pending)) }

// discard gives the staged object up.
func (s *spool) discard() error {
	s.pending = nil
	if s.stage == nil {
		return nil
	}
	return s.stage.Discard()
}
