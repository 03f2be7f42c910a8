package backup

import (
	"context"
	"fmt"
	"io"
	"os"
)

// spool is a local file without a name: whatever happens to the process, nothing is left behind.
type spool struct {
	*os.File
	size int64
}

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return nil, fmt.Errorf("making a file to read a backup into: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("making a file to read a backup into: %w", err)
	}
	return &spool{File: f}, nil
}

func (s *spool) Write(p []byte) (int, error) {
	n, err := s.WriteAt(p, s.size)
	s.size += int64(n)
	return n, err
}

// reader reads all of it.
func (s *spool) reader() io.Reader { return io.NewSectionReader(s, 0, s.size) }

// plain hands a spooled snapshot to who reads it.
type plain struct {
	io.Reader
	s *spool
}

func (p plain) Close() error { return p.s.Close() }

// chunk is how much of an object is asked for at once: a store that hangs is noticed within one of these.
const chunk = 4 << 20

// fetch reads an object into a spool, which the caller closes.
func (p *Place) fetch(ctx context.Context, name string) (*spool, error) {
	s, err := newSpool(p.opt.SpoolDir)
	if err != nil {
		return nil, err
	}
	if err := p.copyTo(ctx, s, name); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (p *Place) copyTo(ctx context.Context, s *spool, name string) error {
	for {
		b, err := p.bucket.ReadRange(ctx, p.key(name), s.size, chunk)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if _, err := s.Write(b); err != nil {
			return fmt.Errorf("keeping %s to read it: %w", name, err)
		}
		if len(b) < chunk {
			return nil
		}
	}
}

// until is r as long as ctx lasts.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
