package store

import (
	"context"
	"os"
)

// blobStage collects an object in a local file, so that its upload can be repeated. The file loses its name as soon as
// it is made: whatever happens to the process, nothing is left behind.
type blobStage struct {
	b    *blobBucket
	file *os.File // nil once published or discarded
	size int64
}

func (b *blobBucket) Stage(ctx context.Context) (Stage, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: "stage", Err: context.Cause(ctx)}
	}
	f, err := os.CreateTemp(b.spool, tempPrefix+"*")
	if err != nil {
		return nil, refuseMissing("stage", "", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, refuseMissing("stage", "", err)
	}
	return &blobStage{b: b, file: f}, nil
}

func (s *blobStage) Write(p []byte) (int, error) {
	if s.file == nil {
		return 0, errStageClosed("write")
	}
	n, err := s.file.WriteAt(p, s.size)
	if err != nil {
		return 0, refuseMissing("stage", "", err)
	}
	s.size += int64(n)
	return n, nil
}

func (s *blobStage) Publish(ctx context.Context, key string) error {
	if s.file == nil {
		return errStageClosed("publish")
	}
	if err := begin(ctx, "publish", key); err != nil {
		return err
	}
	if err := s.b.put(ctx, "publish", key, source{s.file, s.size}, createOnly); err != nil {
		return err
	}
	return s.Discard()
}

func (s *blobStage) Discard() error {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
	return nil
}
