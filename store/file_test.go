package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
)

// creators plays two processes that create objects in one directory whose disk fails and loses power, and holds them to
// this: whoever has been told nil or ErrExists, or has read the object after ErrUnknown, finds it again after any power
// loss, with the content of the one winner.
type creators struct {
	t     *testing.T
	disk  *storetest.Disk
	rng   *rand.Rand
	b     [2]store.Bucket
	known map[string]string // what somebody was told is there; "" in it: content not known yet
	seen  map[string]int
}

func (c *creators) open() {
	c.disk.Fault(nil)
	for i := range c.b {
		c.b[i] = open(c.t, "file:///raw", store.Options{FS: c.disk})
	}
}

func (c *creators) faults() {
	c.disk.Fault(func(op storetest.Op) error {
		// Directories fail to sync more often: what is believed meanwhile is what this test is about.
		if c.rng.IntN(10) > 0 && !(op.Name == "syncdir" && c.rng.IntN(2) == 0) {
			return nil
		}
		switch op.Name {
		case "write":
			return storetest.Partial{N: c.rng.IntN(op.Size), Err: syscall.ENOSPC}
		case "link":
			if c.rng.IntN(2) == 0 {
				return storetest.Late{Err: syscall.EIO}
			}
			return syscall.EIO
		case "sync", "syncdir", "mkdir", "create", "remove":
			return syscall.EIO
		}
		return nil
	})
}

func (c *creators) create(n int) {
	b, other := c.b[n%2], c.b[1-n%2]
	key := fmt.Sprintf("s/t%d/%d", c.rng.IntN(3), c.rng.IntN(40))
	body := fmt.Sprintf("attempt %d %s", n, strings.Repeat("x", c.rng.IntN(3*storetest.Page)))
	c.attempt(b, n, key, body)
	// The other process wants the same key, and must not win once the first has.
	c.attempt(other, n, key, "second "+body)
}

// attempt creates an object and learns from the answer what is there, as a chain would.
func (c *creators) attempt(b store.Bucket, n int, key, body string) {
	err := c.put(b, n, key, body)
	switch {
	case err == nil:
		c.learn(key, body)
		c.seen["won"]++
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrUnknown):
		c.seen[fmt.Sprint("unknown: ", errors.Is(err, store.ErrUnknown))]++
		if got, err := b.Read(c.t.Context(), key); err == nil {
			c.learn(key, string(got))
		}
	default:
		c.seen["failed"]++
	}
}

func (c *creators) put(b store.Bucket, n int, key, body string) error {
	if n%3 > 0 {
		return b.Create(c.t.Context(), key, []byte(body))
	}
	st, err := b.Stage(c.t.Context())
	if err != nil {
		return err
	}
	defer st.Discard()
	if _, err := st.Write([]byte(body)); err != nil {
		c.seen["stage write failed"]++
		if _, err := st.Write([]byte(body)); err != nil {
			return err
		}
	}
	err = st.Publish(c.t.Context(), key)
	if err != nil && !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrUnknown) {
		return st.Publish(c.t.Context(), key)
	}
	return err
}

func (c *creators) learn(key, body string) {
	if was, ok := c.known[key]; ok && was != body {
		c.t.Fatalf("%s was %q and is now %q", key, was, body)
	}
	c.known[key] = body
}

func (c *creators) check() {
	c.t.Helper()
	c.disk.Fault(nil)
	b := open(c.t, "file:///raw", store.Options{FS: c.disk})
	for key, want := range c.known {
		got, err := b.Read(c.t.Context(), key)
		if err != nil || string(got) != want {
			c.t.Fatalf("%s holds %q, error %v; want %q", key, got, err, want)
		}
	}
	list, err := b.List(c.t.Context(), "", "", 0)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range list {
		if e.Size == 0 || strings.Contains(e.Key, ".tmp-") {
			c.t.Fatalf("the listing shows %+v", e)
		}
	}
}

func TestFileBucketKeepsWhatItSaid(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := &creators{t: t, disk: storetest.NewDisk(seed), rng: rand.New(rand.NewPCG(seed, 3)), known: map[string]string{}, seen: seen}
			c.open()
			for n := range 150 {
				c.faults()
				c.create(n)
				if c.rng.IntN(10) == 0 {
					c.disk.PowerLoss()
					c.check()
					c.open()
				}
			}
		})
	}
	for _, what := range []string{"won", "failed", "unknown: true", "unknown: false", "stage write failed"} {
		if seen[what] == 0 {
			t.Errorf("%q never happened: the test does not test it", what)
		}
	}
}

// TestOrphansAreSwept tells a temporary file whose owner is alive from one whose owner is dead.
func TestOrphansAreSwept(t *testing.T) {
	disk := storetest.NewDisk(1)
	opt := store.Options{FS: disk}
	alive := stage(t, open(t, "file:///raw", opt), []byte("living"))
	open(t, "file:///raw", opt)
	if err := alive.Publish(t.Context(), "k"); err != nil {
		t.Fatalf("another process has taken the stage away: %v", err)
	}
	stage(t, open(t, "file:///raw", opt), []byte("dead"))
	if len(disk.Files()) != 2 {
		t.Fatalf("before: %q", disk.Files())
	}
	disk.Kill()
	open(t, "file:///raw", opt)
	if !slices.Equal(disk.Files(), []string{"raw/k"}) {
		t.Fatalf("after: %q", disk.Files())
	}
}

func TestOrphansAreSweptOnTheRealFileSystem(t *testing.T) {
	dir := t.TempDir()
	orphan := filepath.Join(dir, ".tmp-0123456789abcdef")
	if err := os.WriteFile(orphan, []byte("dead"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, "file://"+dir, store.Options{})
	if _, err := os.Stat(orphan); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the orphan is still there: %v", err)
	}
	st := stage(t, b, []byte("living"))
	open(t, "file://"+dir, store.Options{})
	if err := st.Publish(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".tmp-*"))
	if err != nil || len(left) > 0 {
		t.Fatalf("left behind: %q, %v", left, err)
	}
}

func TestFileErrors(t *testing.T) {
	f := func(errno syscall.Errno, want error) {
		t.Helper()
		disk := storetest.NewDisk(1)
		b := open(t, "file:///raw", store.Options{FS: disk})
		disk.Fault(func(op storetest.Op) error {
			if op.Name == "create" {
				return errno
			}
			return nil
		})
		err := b.Create(t.Context(), "k", nil)
		wantIs(t, err, errno)
		if want == nil {
			wantRetry(t, err)
		} else {
			wantIs(t, err, want)
		}
	}
	f(syscall.EACCES, store.ErrPermission)
	f(syscall.EPERM, store.ErrPermission)
	f(syscall.EROFS, store.ErrPermission)
	f(syscall.ENOSPC, nil)
	f(syscall.EDQUOT, nil)
	f(syscall.EIO, nil)
	f(syscall.ENOENT, nil)
}

func TestDirectoryThatIsAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(t.Context(), "file://"+dir+"/f", store.Options{})
	wantIs(t, err, store.ErrPermission)
	_, err = store.Open(t.Context(), "file://"+dir+"/f/g", store.Options{})
	wantIs(t, err, store.ErrPermission)
	b := open(t, "file://"+dir, store.Options{})
	wantIs(t, b.Create(t.Context(), "f/g", nil), store.ErrPermission)
	_, err = b.Read(t.Context(), "f/g")
	wantIs(t, err, store.ErrNotFound)
}

func TestRootMayBeASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/real", 0o755), os.Symlink("real", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	b := open(t, "file://"+dir+"/link", store.Options{})
	if err := b.Create(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/real/a/b"); err != nil {
		t.Fatal(err)
	}
}

// TestRemovedDirectoryIsMadeAgain covers an operator who removes a directory under a running process.
func TestRemovedDirectoryIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	b := open(t, "file://"+dir, store.Options{})
	for range 2 {
		if err := b.Create(t.Context(), "a/b/c", nil); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir + "/a"); err != nil {
			t.Fatal(err)
		}
	}
}
