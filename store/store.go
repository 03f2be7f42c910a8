// Package store keeps objects and files for the rest of the program: create-only objects in a [Bucket] (a local
// directory, S3, or memory for tests), one append-only [AppendFile] for a local chain that grows by a block a commit,
// and a [FileLock] against a second process.
//
// Everything above stands on two promises. A name is written once: of any number of creators of one key exactly one is
// told that it won, however they race. And what was acknowledged stays: a call that returns nil has its data and the
// name that leads to it on disk, or in the object store's own safe keeping. Whatever cannot be known (a reply that was
// lost, a directory that would not sync) is said to be unknown, with [ErrUnknown], and never guessed.
package store

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Bucket is a flat set of objects named by keys. All methods are safe for concurrent use, and all stop when their
// context ends, except that a file: bucket cannot interrupt a disk that hangs.
//
// Keys are relative, slash-separated paths of UTF-8; what a key must not be is in [CheckKey]. In a file: bucket (and in
// some S3 servers) a key cannot be a directory of another: where `a` is an object, `a/b` is refused.
//
// Errors are of type [*Error] and answer errors.Is for ErrExists, ErrNotFound, ErrUnknown and ErrPermission; an error
// that is none of these did nothing and may be tried again.
type Bucket interface {
	// Create stores body under key if no object has that key, and else returns ErrExists. When it returns nil, or
	// ErrExists, the object that has the key is durable. ErrExists may be the work of this very call: the client
	// library repeats a request whose reply was lost. The caller tells by reading the object back. ErrUnknown says that
	// the object may be stored, now or a little later; a repeated Create or a Read settles it. Body is not kept.
	Create(ctx context.Context, key string, body []byte) error

	// Stage begins a large object of unknown size.
	Stage(ctx context.Context) (Stage, error)

	// Replace stores body under key whether or not an object has it. Readers see the old or the new object, never a
	// mixture. It is for copies that one process owns.
	Replace(ctx context.Context, key string, body []byte) error

	// Read returns the object, or ErrNotFound.
	Read(ctx context.Context, key string) ([]byte, error)

	// ReadRange returns n bytes from offset off, fewer at the end of the object and none beyond it; n < 0 means up to
	// the end. ErrNotFound where there is no object.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)

	// List returns the objects whose key begins with prefix and is greater than after, in the byte order of their
	// keys, at most limit of them; limit 0 means all.
	List(ctx context.Context, prefix, after string, limit int) ([]Entry, error)

	// Dirs returns the names, without slashes and in byte order, of the directories directly below prefix that hold at
	// least one object at any depth. Prefix is empty or ends with a slash.
	Dirs(ctx context.Context, prefix string) ([]string, error)

	// Delete removes the object; it is no error when there is none.
	Delete(ctx context.Context, key string) error

	// Probe finds out whether the store keeps the promises of this interface, above all that creation is create-only,
	// and refuses it with a reason (an ErrPermission) if not. Its objects have names that begin with `_probe` and are deleted again.
	Probe(ctx context.Context) error

	// Local returns the directory of a file: bucket.
	Local() (dir string, ok bool)

	Close() error
}

// Stage is an object on its way: written to, then published under a key, or discarded. Nothing of it is visible in the
// bucket before Publish succeeds. It has one owner and is not safe for concurrent use.
type Stage interface {
	io.Writer

	// Publish makes what was written an object, create-only and with the errors of [Bucket.Create]. After an error it
	// may be called again, with the same or another key; after success the stage is closed.
	Publish(ctx context.Context, key string) error

	// Discard gives the stage up and frees what it holds. After a successful Publish it does nothing.
	Discard() error
}

// Entry is an object as a listing shows it.
type Entry struct {
	Key  string
	Size int64     // bytes
	Time time.Time // when it was stored, by the clock of the store
}

// DefaultTimeout is the time that one request may take where Options name none.
const DefaultTimeout = 30 * time.Second

// Options are what a URL cannot say.
type Options struct {
	// Timeout bounds each request to an object store, with the client library's own repetitions: a store that hangs
	// becomes an error. An upload in parts has it for each part, a read for each wait for more bytes. 0 means
	// DefaultTimeout. A file: bucket has no use for it.
	Timeout time.Duration

	// SpoolDir is where stages of object stores are collected before they are uploaded; empty means the system's
	// directory for temporary files. A file: bucket stages inside itself.
	SpoolDir string

	// FS is the file system of a file: bucket; nil means the operating system's.
	FS FS

	// transport is the network of an s3: bucket; nil means the real one. Tests put a server in its place.
	transport http.RoundTripper
}

// Open opens the bucket that a URL names: file:///dir, s3://bucket/prefix?region=…&endpoint=…&use_path_style=true, or
// mem://name, which is one namespace a name for the whole process. A file: directory is made when it is missing. S3
// credentials come from the environment, the shared configuration files or the machine's role, never from the URL.
// Open does not connect to an object store; [Bucket.Probe] does.
func Open(ctx context.Context, rawURL string, opt Options) (Bucket, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultTimeout
	}
	switch u.Scheme {
	case "file":
		return openFile(u.Path, opt)
	case "mem":
		return openMem(u.Host+u.Path, opt), nil
	default:
		return openS3(ctx, u, opt)
	}
}
