// Package faultbucket is a store.Bucket in memory for tests, whose every call can be made to fail, to hang, to lose its reply or
// to land late. It waits on nothing but contexts, so that it runs in the fake time of testing/synctest.
package faultbucket

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/store"
)

// Fault is what happens to one call.
type Fault int

// The faults. For calls that write nothing, Lost and Late are Refuse.
const (
	None   Fault = iota
	Refuse       // nothing is done, and the store says so
	Deny         // nothing is done, and a person must act
	Lost         // it is done, but the reply is lost
	Mine         // it is done, and the answer is that it exists: the client library has repeated a request whose reply was lost
	Vanish       // it is not done, but nobody can know
	Late         // nobody can know, and it is done when Land is called
	Hang         // nothing happens until the context ends
)

// ErrFault is the cause of what was made to fail.
var ErrFault = errors.New("a fault of the test")

// Call is one call to the bucket.
type Call struct {
	Op  string // create, replace, read, list, dirs, delete
	Key string // or prefix
}

// Bucket is the bucket. The zero value is not usable; see New.
type Bucket struct {
	mu struct {
		sync.Mutex
		objects map[string][]byte
		times   map[string]time.Time
		late    []late
		calls   map[string]int
		fault   func(Call) Fault
	}
}

type late struct {
	key  string
	body []byte
}

var _ store.Bucket = (*Bucket)(nil)

// New is an empty bucket without faults.
func New() *Bucket {
	b := &Bucket{}
	b.mu.objects, b.mu.times = map[string][]byte{}, map[string]time.Time{}
	b.mu.calls = map[string]int{}
	return b
}

// Fault decides what happens to each call from now on; nil ends all faults. f runs under the bucket's lock.
func (b *Bucket) Fault(f func(Call) Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.fault = f
}

// Script lets the next calls of an operation suffer one fault after the other, and nothing afterwards.
func (b *Bucket) Script(op string, faults ...Fault) {
	b.Fault(func(c Call) Fault {
		if c.Op != op || len(faults) == 0 {
			return None
		}
		f := faults[0]
		faults = faults[1:]
		return f
	})
}

// Calls counts the calls of an operation so far.
func (b *Bucket) Calls(op string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.calls[op]
}

// Pending is how many writes are late.
func (b *Bucket) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.late)
}

// Land lets the i-th late write arrive, or drop it. It reports whether it found its place free.
func (b *Bucket) Land(i int, drop bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.mu.late[i]
	b.mu.late = slices.Delete(b.mu.late, i, i+1)
	if _, taken := b.mu.objects[l.key]; taken || drop {
		return false
	}
	b.set(l.key, l.body)
	return true
}

// Keys lists all objects.
func (b *Bucket) Keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.mu.objects))
}

// Get is an object's body, nil where there is none. It suffers no fault.
func (b *Bucket) Get(key string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.objects[key]
}

// Put stores an object whatever is there. It suffers no fault.
func (b *Bucket) Put(key string, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(key, body)
}

// set stores an object. The mutex is held.
func (b *Bucket) set(key string, body []byte) { b.mu.objects[key], b.mu.times[key] = body, time.Now() }

// begin counts a call and finds its fault.
func (b *Bucket) begin(ctx context.Context, op, key string) (Fault, error) {
	if err := ctx.Err(); err != nil {
		return Refuse, &store.Error{Op: op, Key: key, Err: err}
	}
	b.mu.Lock()
	b.mu.calls[op]++
	f := None
	if b.mu.fault != nil {
		f = b.mu.fault(Call{op, key})
	}
	b.mu.Unlock()
	switch f {
	case Refuse:
		return f, &store.Error{Op: op, Key: key, Err: ErrFault}
	case Deny:
		return f, &store.Error{Op: op, Key: key, Kind: store.ErrPermission, Err: ErrFault}
	case Hang:
		<-ctx.Done()
		return f, &store.Error{Op: op, Key: key, Kind: store.ErrUnknown, Err: ctx.Err()}
	}
	return f, nil
}

// Create implements store.Bucket.
func (b *Bucket) Create(ctx context.Context, key string, body []byte) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	f, err := b.begin(ctx, "create", key)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	body = slices.Clone(body)
	unknown := &store.Error{Op: "create", Key: key, Kind: store.ErrUnknown, Err: ErrFault}
	switch f {
	case Vanish:
		return unknown
	case Late:
		b.mu.late = append(b.mu.late, late{key, body})
		return unknown
	}
	if _, taken := b.mu.objects[key]; taken {
		return &store.Error{Op: "create", Key: key, Kind: store.ErrExists}
	}
	b.set(key, body)
	switch f {
	case Lost:
		return unknown
	case Mine:
		return &store.Error{Op: "create", Key: key, Kind: store.ErrExists}
	}
	return nil
}

// Replace implements store.Bucket.
func (b *Bucket) Replace(ctx context.Context, key string, body []byte) error {
	f, err := b.begin(ctx, "replace", key)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if f != Vanish && f != Late {
		b.set(key, slices.Clone(body))
	}
	if f != None {
		return &store.Error{Op: "replace", Key: key, Kind: store.ErrUnknown, Err: ErrFault}
	}
	return nil
}

// reading is begin for calls that write nothing.
func (b *Bucket) reading(ctx context.Context, op, key string) error {
	f, err := b.begin(ctx, op, key)
	if err == nil && f != None {
		err = &store.Error{Op: op, Key: key, Err: ErrFault}
	}
	return err
}

// Read implements store.Bucket.
func (b *Bucket) Read(ctx context.Context, key string) ([]byte, error) {
	return b.ReadRange(ctx, key, 0, -1)
}

// ReadRange implements store.Bucket.
func (b *Bucket) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := b.reading(ctx, "read", key); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	body, ok := b.mu.objects[key]
	if !ok {
		return nil, &store.Error{Op: "read", Key: key, Kind: store.ErrNotFound}
	}
	body = body[min(off, int64(len(body))):]
	if n >= 0 {
		body = body[:min(n, int64(len(body)))]
	}
	return slices.Clone(body), nil
}

// List implements store.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	if err := b.reading(ctx, "list", prefix); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []store.Entry
	for _, k := range slices.Sorted(maps.Keys(b.mu.objects)) {
		if strings.HasPrefix(k, prefix) && k > after && (limit == 0 || len(out) < limit) {
			out = append(out, store.Entry{Key: k, Size: int64(len(b.mu.objects[k])), Time: b.mu.times[k]})
		}
	}
	return out, nil
}

// Dirs implements store.Bucket.
func (b *Bucket) Dirs(ctx context.Context, prefix string) ([]string, error) {
	if err := b.reading(ctx, "dirs", prefix); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	dirs := map[string]bool{}
	for k := range b.mu.objects {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			if d, _, ok := strings.Cut(rest, "/"); ok {
				dirs[d] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(dirs)), nil
}

// Delete implements store.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.reading(ctx, "delete", key); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.objects, key)
	return nil
}

// Stage implements store.Bucket.
func (b *Bucket) Stage(context.Context) (store.Stage, error) { return &stage{b: b}, nil }

type stage struct {
	b    *Bucket
	body []byte
}

var _ io.Writer = (*stage)(nil)

func (s *stage) Write(p []byte) (int, error) {
	s.body = append(s.body, p...)
	return len(p), nil
}

func (s *stage) Publish(ctx context.Context, key string) error { return s.b.Create(ctx, key, s.body) }

func (s *stage) Discard() error { return nil }

// Probe implements store.Bucket.
func (b *Bucket) Probe(context.Context) error { return nil }

// Local implements store.Bucket.
func (b *Bucket) Local() (string, bool) { return "", false }

// Close implements store.Bucket.
func (b *Bucket) Close() error { return nil }
