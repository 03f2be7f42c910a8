// Package storetest checks that a bucket keeps the promises of [store.Bucket], and has a file system in memory on which
// disks fill up, syncs fail and power is lost.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stream-arrow/twgd/store"
)

// Run runs the conformance suite. Open returns a bucket that is empty, and another one at each call; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) store.Bucket) {
	for name, f := range map[string]func(*suite){
		"create":        (*suite).create,
		"racing create": (*suite).racingCreate,
		"replace":       (*suite).replace,
		"ranges":        (*suite).ranges,
		"list":          (*suite).list,
		"pages":         (*suite).pages,
		"dirs":          (*suite).dirs,
		"delete":        (*suite).delete,
		"keys":          (*suite).keys,
		"stage":         (*suite).stage,
		"large stages":  (*suite).largeStages,
		"ended context": (*suite).endedContext,
		"probe":         (*suite).probe,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			defer b.Close()
			f(&suite{t, t.Context(), b})
		})
	}
}

type suite struct {
	*testing.T
	ctx context.Context
	b   store.Bucket
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) is(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("error %v, want %v", err, want)
	}
}

func (s *suite) holds(key, want string) {
	s.Helper()
	got, err := s.b.Read(s.ctx, key)
	s.must(err)
	if string(got) != want {
		s.Fatalf("%s holds %q, want %q", key, cut(got), cut([]byte(want)))
	}
}

func cut(p []byte) string { return string(p[:min(len(p), 60)]) }

func (s *suite) put(keys ...string) {
	s.Helper()
	for _, k := range keys {
		s.must(s.b.Create(s.ctx, k, []byte("object "+k)))
	}
}

func (s *suite) create() {
	_, err := s.b.Read(s.ctx, "a/b/c")
	s.is(err, store.ErrNotFound)
	s.must(s.b.Create(s.ctx, "a/b/c", []byte("one")))
	s.is(s.b.Create(s.ctx, "a/b/c", []byte("two")), store.ErrExists)
	s.holds("a/b/c", "one")
	s.must(s.b.Create(s.ctx, "empty", nil))
	s.is(s.b.Create(s.ctx, "empty", []byte("two")), store.ErrExists)
	s.holds("empty", "")
	_, err = s.b.Read(s.ctx, "a/b")
	s.is(err, store.ErrNotFound)
}

// racers is how many creators race in the suite, and rounds how often.
const racers, rounds = 8, 10

func (s *suite) racingCreate() {
	for round := range rounds {
		key := fmt.Sprintf("race/%d", round)
		s.race(key, func(who string) error { return s.b.Create(s.ctx, key, []byte(who)) })
	}
}

// race lets creators race for a key and checks that one wins, whose content it is, and that the others are told.
func (s *suite) race(key string, create func(who string) error) {
	s.Helper()
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { errs[i] = create(fmt.Sprint("racer ", i)) })
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			s.Fatalf("%s: racers %d and %d both won", key, winner, i)
		case err == nil:
			winner = i
		default:
			s.is(err, store.ErrExists)
		}
	}
	if winner < 0 {
		s.Fatalf("%s: nobody won", key)
	}
	got, err := s.b.ReadRange(s.ctx, key, 0, 7)
	s.must(err)
	if want := fmt.Sprint("racer ", winner); string(got) != want {
		s.Fatalf("%s begins %q, but %q won", key, got, want)
	}
}

func (s *suite) replace() {
	s.must(s.b.Replace(s.ctx, "d/copy", []byte("long first")))
	s.holds("d/copy", "long first")
	s.must(s.b.Replace(s.ctx, "d/copy", []byte("second")))
	s.holds("d/copy", "second")
	s.is(s.b.Create(s.ctx, "d/copy", nil), store.ErrExists)
}

func (s *suite) ranges() {
	s.must(s.b.Create(s.ctx, "r", []byte("0123456789")))
	s.must(s.b.Create(s.ctx, "none", nil))
	f := func(key string, off, n int64, want string) {
		s.Helper()
		got, err := s.b.ReadRange(s.ctx, key, off, n)
		s.must(err)
		if string(got) != want {
			s.Fatalf("%s from %d, %d bytes: %q, want %q", key, off, n, got, want)
		}
	}
	f("r", 0, 3, "012")
	f("r", 4, 3, "456")
	f("r", 8, 5, "89")
	f("r", 8, -1, "89")
	f("r", 0, -1, "0123456789")
	f("r", 10, 5, "")
	f("r", 100, -1, "")
	f("r", 5, 0, "")
	f("none", 0, 5, "")
	f("none", 0, 0, "")
	_, err := s.b.ReadRange(s.ctx, "absent", 0, 5)
	s.is(err, store.ErrNotFound)
}

func (s *suite) lists(prefix, after string, limit int, want ...string) {
	s.Helper()
	got, err := s.b.List(s.ctx, prefix, after, limit)
	s.must(err)
	var keys []string
	for _, e := range got {
		keys = append(keys, e.Key)
		if e.Size != int64(len("object "+e.Key)) {
			s.Fatalf("%s is listed with %d bytes", e.Key, e.Size)
		}
		if e.Time.IsZero() {
			s.Fatalf("%s is listed without a time", e.Key)
		}
	}
	if !slices.Equal(keys, want) {
		s.Fatalf("list of %q after %q, at most %d: %q, want %q", prefix, after, limit, keys, want)
	}
}

func (s *suite) list() {
	s.lists("", "", 0)
	s.put("a/c", "a-b", "a0", "a/b/x", "b/1", "b/3", "b/2", "ä/ö")
	s.lists("", "", 0, "a-b", "a/b/x", "a/c", "a0", "b/1", "b/2", "b/3", "ä/ö")
	s.lists("a", "", 0, "a-b", "a/b/x", "a/c", "a0")
	s.lists("a/", "", 0, "a/b/x", "a/c")
	s.lists("a/b", "", 0, "a/b/x")
	s.lists("b/", "b/1", 1, "b/2")
	s.lists("b/", "b/1", 0, "b/2", "b/3")
	s.lists("b/", "b/11", 0, "b/2", "b/3")
	s.lists("b/", "a/c", 1, "b/1")
	s.lists("b/", "b/3", 1)
	s.lists("", "a/b/x", 2, "a/c", "a0")
	s.lists("", "a", 2, "a-b", "a/b/x")
	s.lists("", "a/", 1, "a/b/x")
	s.lists("nothing/", "", 0)
	s.lists("b/1/", "", 0)
}

// pages has more objects than one page of an object store holds.
func (s *suite) pages() {
	const n = 1005
	var want []string
	var wg sync.WaitGroup
	room := make(chan struct{}, 16)
	for i := range n {
		key := fmt.Sprintf("p/%020d", i)
		want = append(want, key)
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if err := s.b.Create(s.ctx, key, []byte("object "+key)); err != nil {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	s.lists("p/", "", 0, want...)
	s.lists("p/", want[1], 0, want[2:]...)
	s.lists("p/", want[1], 1002, want[2:1004]...)
	s.lists("p/", want[n-2], 1, want[n-1])
}

func (s *suite) dirs() {
	s.put("top", "x/1", "x-y/1", "x/sub/deep/1", "z/1")
	f := func(prefix string, want ...string) {
		s.Helper()
		got, err := s.b.Dirs(s.ctx, prefix)
		s.must(err)
		if !slices.Equal(got, want) {
			s.Fatalf("directories below %q: %q, want %q", prefix, got, want)
		}
	}
	f("", "x", "x-y", "z")
	f("x/", "sub")
	f("x/sub/", "deep")
	f("none/")
	s.must(s.b.Delete(s.ctx, "z/1"))
	f("", "x", "x-y")
	if _, err := s.b.Dirs(s.ctx, "x"); err == nil {
		s.Fatal("a prefix without a slash was taken")
	}
}

func (s *suite) delete() {
	s.must(s.b.Delete(s.ctx, "never/was"))
	s.put("d/1", "d/2")
	s.must(s.b.Delete(s.ctx, "d/1"))
	s.must(s.b.Delete(s.ctx, "d/1"))
	_, err := s.b.Read(s.ctx, "d/1")
	s.is(err, store.ErrNotFound)
	s.lists("d/", "", 0, "d/2")
	s.must(s.b.Delete(s.ctx, "d")) // a directory is no object
	s.lists("d/", "", 0, "d/2")
	s.put("d/1")
}

func (s *suite) keys() {
	bad := []string{"", "/abs", "a//b", "a/", "..", "../a", "a/../b", "a/..", ".", "./a", "a\nb", "a\x00b", "\xff", ".tmp-x", "a/.tmp-x/b", strings.Repeat("k", 1025)}
	for _, key := range bad {
		s.is(s.b.Create(s.ctx, key, nil), store.ErrPermission)
		s.is(s.b.Replace(s.ctx, key, nil), store.ErrPermission)
		s.is(s.b.Delete(s.ctx, key), store.ErrPermission)
		_, err := s.b.Read(s.ctx, key)
		s.is(err, store.ErrPermission)
	}
	s.put("_genesis", "%5Fodd~00000000/P.1/x y+z&?#=", "a.b..c/d", "ünïcödé/ключ", "-", "~")
	s.lists("%5Fodd~00000000/P.1/", "", 0, "%5Fodd~00000000/P.1/x y+z&?#=")
	s.holds("ünïcödé/ключ", "object ünïcödé/ключ")
}

func (s *suite) stage() {
	st, err := s.b.Stage(s.ctx)
	s.must(err)
	for range 3 {
		_, err = st.Write([]byte("abc"))
		s.must(err)
	}
	s.lists("", "", 0)
	s.put("taken")
	s.is(st.Publish(s.ctx, "taken"), store.ErrExists)
	s.holds("taken", "object taken")
	s.is(st.Publish(s.ctx, "../up"), store.ErrPermission)
	s.must(st.Publish(s.ctx, "dir/free"))
	s.holds("dir/free", "abcabcabc")
	s.must(st.Discard())
	if st.Publish(s.ctx, "again") == nil {
		s.Fatal("a stage was published twice")
	}
	s.discarded()
	s.emptyStage()
}

func (s *suite) discarded() {
	st, err := s.b.Stage(s.ctx)
	s.must(err)
	_, err = st.Write([]byte("unwanted"))
	s.must(err)
	s.must(st.Discard())
	s.must(st.Discard())
	if st.Publish(s.ctx, "discarded") == nil {
		s.Fatal("a discarded stage was published")
	}
	if _, err := st.Write([]byte("x")); err == nil {
		s.Fatal("a discarded stage was written to")
	}
}

func (s *suite) emptyStage() {
	st, err := s.b.Stage(s.ctx)
	s.must(err)
	s.must(st.Publish(s.ctx, "empty"))
	s.holds("empty", "")
}

// largeStages is above the size from which object stores take an upload in parts, with the last part short.
func (s *suite) largeStages() {
	body := bytes.Repeat([]byte("0123456789abcdef"), (20<<20)/16)
	s.race("large", func(who string) error {
		st, err := s.b.Stage(s.ctx)
		if err != nil {
			return err
		}
		defer st.Discard()
		if _, err := st.Write(append([]byte(who), body...)); err != nil {
			return err
		}
		return st.Publish(s.ctx, "large")
	})
	got, err := s.b.ReadRange(s.ctx, "large", 7, -1)
	s.must(err)
	if !bytes.Equal(got, body) {
		s.Fatalf("a large object came back with %d bytes, or others", len(got))
	}
	s.is(s.b.Create(s.ctx, "large", body), store.ErrExists)
	s.must(s.b.Create(s.ctx, "large too", body))
	s.must(s.b.Replace(s.ctx, "large too", body[1:]))
	got, err = s.b.Read(s.ctx, "large too")
	s.must(err)
	if !bytes.Equal(got, body[1:]) {
		s.Fatal("a large object was not replaced")
	}
}

func (s *suite) endedContext() {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	s.is(s.b.Create(ctx, "k", nil), context.Canceled)
	_, err := s.b.Read(s.ctx, "k")
	s.is(err, store.ErrNotFound)
	_, err = s.b.Read(ctx, "k")
	s.is(err, context.Canceled)
	_, err = s.b.Stage(ctx)
	s.is(err, context.Canceled)
	st, err := s.b.Stage(s.ctx)
	s.must(err)
	s.is(st.Publish(ctx, "k"), context.Canceled)
	s.must(st.Publish(s.ctx, "k"))
}

func (s *suite) probe() {
	s.put("kept")
	s.must(s.b.Probe(s.ctx))
	s.lists("", "", 0, "kept")
}
