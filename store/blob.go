package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/gcerrors"
)

// blobBucket is an object store behind gocloud.dev/blob. What that package cannot say for S3 (uploads in parts whose
// completion is create-only, a listing that starts after a key, a delete without a look first) goes through the client
// below it; see s3.go. Every request has its own time limit.
type blobBucket struct {
	b       *blob.Bucket
	prefix  string // empty, or ends with a slash; stands before every key
	timeout time.Duration
	spool   string
	s3      *s3Uploads // nil for memory
	close   func() error
}

// memBuckets are the namespaces of mem:, which live as long as the process.
var memBuckets struct {
	sync.Mutex
	byName map[string]*blob.Bucket
}

func openMem(name string, opt Options) Bucket {
	memBuckets.Lock()
	defer memBuckets.Unlock()
	if memBuckets.byName == nil {
		memBuckets.byName = map[string]*blob.Bucket{}
	}
	b := memBuckets.byName[name]
	if b == nil {
		b = memblob.OpenBucket(&memblob.Options{NoMD5: true})
		memBuckets.byName[name] = b
	}
	return &blobBucket{b: b, timeout: opt.Timeout, spool: opt.SpoolDir, close: func() error { return nil }}
}

func (b *blobBucket) Local() (string, bool) { return "", false }

func (b *blobBucket) Close() error { return b.close() }

func (b *blobBucket) Create(ctx context.Context, key string, body []byte) error {
	if err := begin(ctx, "create", key); err != nil {
		return err
	}
	return b.put(ctx, "create", key, newByteSource(body), createOnly)
}

func (b *blobBucket) Replace(ctx context.Context, key string, body []byte) error {
	if err := begin(ctx, "replace", key); err != nil {
		return err
	}
	return b.put(ctx, "replace", key, newByteSource(body), overwrite)
}

// mode says whether an upload may replace an object.
type mode bool

const (
	createOnly mode = true
	overwrite  mode = false
)

// source is the content of an object to upload, which can be read again when a request has to be repeated.
type source struct {
	io.ReaderAt
	size int64
}

func newByteSource(p []byte) source { return source{bytes.NewReader(p), int64(len(p))} }

func (b *blobBucket) put(ctx context.Context, op, key string, src source, m mode) error {
	if b.s3 != nil {
		return b.s3.put(ctx, op, key, src, m)
	}
	ctx, cancel := limit(ctx, b.timeout)
	defer cancel()
	err := b.b.Upload(ctx, b.prefix+key, io.NewSectionReader(src, 0, src.size), &blob.WriterOptions{
		IfNotExist: m == createOnly, ContentType: contentType,
	})
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return &Error{Op: op, Key: key, Kind: ErrExists}
	}
	return b.wrap(ctx, op, key, err)
}

// contentType is what all objects are to the store; what they are to us stands in their names.
const contentType = "application/octet-stream"

// errTimeout is the cause of a context that a request's own time limit has ended.
var errTimeout = errors.New("the store has not answered in time")

func limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errTimeout)
}

// wrap classifies what a request other than an upload ended with; nil stays nil.
func (b *blobBucket) wrap(ctx context.Context, op, key string, err error) error {
	if err == nil {
		return nil
	}
	err = withCause(ctx, err)
	return &Error{Op: op, Key: key, Kind: b.kind(err), Err: err}
}

// withCause tells a time limit of ours from an end that the caller has set.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (b *blobBucket) kind(err error) error {
	if b.s3 != nil {
		return s3Kind(err)
	}
	if gcerrors.Code(err) == gcerrors.NotFound {
		return ErrNotFound
	}
	return nil
}

func (b *blobBucket) Read(ctx context.Context, key string) ([]byte, error) {
	return b.ReadRange(ctx, key, 0, -1)
}

func (b *blobBucket) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := begin(ctx, "read", key); err != nil {
		return nil, err
	}
	ctx, alive, cancel := idleLimit(ctx, b.timeout)
	defer cancel()
	p, err := b.read(ctx, key, off, n, alive)
	if err != nil && beyondEnd(err) {
		return nil, nil
	}
	if err != nil {
		return nil, b.wrap(ctx, "read", key, err)
	}
	return p, nil
}

func (b *blobBucket) read(ctx context.Context, key string, off, n int64, alive func()) ([]byte, error) {
	r, err := b.b.NewRangeReader(ctx, b.prefix+key, off, n, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p := make([]byte, rangeLen(r.Size(), off, n))
	for got := 0; got < len(p); {
		alive()
		k, err := r.Read(p[got:])
		got += k
		if err != nil && got < len(p) {
			return nil, shortBody(err)
		}
	}
	return p, nil
}

// shortBody keeps the end of a connection from passing for the end of an object.
func shortBody(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// idleLimit ends a context when alive has not been called for a time. An object may be large; only a store that sends
// nothing more is hanging.
func idleLimit(ctx context.Context, d time.Duration) (_ context.Context, alive func(), cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	t := time.AfterFunc(d, func() { end(errTimeout) })
	return ctx, func() { t.Reset(d) }, func() { t.Stop(); end(nil) }
}

func (b *blobBucket) Delete(ctx context.Context, key string) error {
	if err := begin(ctx, "delete", key); err != nil {
		return err
	}
	ctx, cancel := limit(ctx, b.timeout)
	defer cancel()
	if b.s3 != nil {
		return b.wrap(ctx, "delete", key, b.s3.delete(ctx, key))
	}
	err := b.b.Delete(ctx, b.prefix+key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return b.wrap(ctx, "delete", key, err)
}

func (b *blobBucket) Probe(ctx context.Context) error {
	if err := probe(ctx, b); err != nil || b.s3 == nil {
		return err
	}
	return probeParts(ctx, b)
}
