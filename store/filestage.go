package store

import (
	"context"
	"errors"
	"io/fs"
)

// fileStage is a Stage of a directory: a temporary file that a link makes an object. No byte is copied. A write that
// failed has left a part of itself; the stage then ends at the last complete write and the write may be repeated.
type fileStage struct {
	b *fileBucket
	t *temp // nil once published or discarded
}

func (b *fileBucket) Stage(ctx context.Context) (Stage, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: "stage", Err: context.Cause(ctx)}
	}
	t, err := createTemp(b.fs, b.root)
	if err != nil {
		return nil, refuseMissing("stage", "", err)
	}
	return &fileStage{b: b, t: t}, nil
}

func (s *fileStage) Write(p []byte) (int, error) {
	if s.t == nil {
		return 0, errStageClosed("write")
	}
	n, err := s.t.write(p)
	if err != nil {
		s.t.size -= int64(n)
		return 0, refuseMissing("stage", "", err)
	}
	return n, nil
}

func (s *fileStage) Publish(ctx context.Context, key string) error {
	if s.t == nil {
		return errStageClosed("publish")
	}
	if err := begin(ctx, "publish", key); err != nil {
		return err
	}
	if err := s.trim(); err != nil {
		return refuseMissing("publish", key, err)
	}
	if err := s.b.publish("publish", key, s.t, s.b.link); err != nil {
		return err
	}
	return s.Discard()
}

// trim cuts what a failed write left behind the last complete one.
func (s *fileStage) trim() error {
	info, err := s.t.file.Stat()
	if err != nil || info.Size() == s.t.size {
		return err
	}
	return s.t.file.Truncate(s.t.size)
}

func (s *fileStage) Discard() error {
	if s.t != nil {
		s.t.discard()
		s.t = nil
	}
	return nil
}

func errStageClosed(op string) error {
	return &Error{Op: op, Err: errors.Join(errors.New("the stage has been published or discarded"), fs.ErrClosed)}
}
