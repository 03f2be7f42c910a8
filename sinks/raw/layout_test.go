package raw_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
)

// tryOpen opens a directory with or without the mark.
func tryOpen(t *testing.T, url string, readOnly bool) (*raw.Store, error) {
	t.Helper()
	return raw.Open(t.Context(), raw.Options{Bucket: openBucket(t, url), Stream: "s", Codec: "zstd", ReadOnly: readOnly, Shared: strings.HasSuffix(url, sharedMark)})
}

// TestADirectoryKeepsItsLayout: what one node has written alone is never opened as shared, nor the other way round, not even to be
// looked at; and the refusal changes nothing.
func TestADirectoryKeepsItsLayout(t *testing.T) {
	f := func(mine, other, want string) {
		t.Helper()
		s := open(t, mine)
		s.begin(0)
		s.put(0, 10)
		s.Close()
		before := files(t, strings.TrimSuffix(strings.TrimPrefix(mine, "file://"), sharedMark))
		for _, readOnly := range []bool{true, false} {
			_, err := tryOpen(t, other, readOnly)
			if !errors.Is(err, raw.ErrLayout) || !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s opened as %s: %v", mine, other, err)
			}
		}
		if after := files(t, strings.TrimSuffix(strings.TrimPrefix(mine, "file://"), sharedMark)); strings.Join(before, " ") != strings.Join(after, " ") {
			t.Errorf("the refusal has made %v out of %v", after, before)
		}
		s = open(t, mine)
		s.begin(10)
		s.put(10, 20)
		s.holds(0, 20)
	}
	alone, shared := "file://"+t.TempDir(), "file://"+t.TempDir()
	f(alone, alone+sharedMark, "one node alone")
	f(shared+sharedMark, shared, "several nodes")
}

// files are the names below a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestFirstStartsOfBothLayoutsRace: of two nodes that disagree about a new directory, at most one goes on.
func TestFirstStartsOfBothLayoutsRace(t *testing.T) {
	for range 50 {
		dir := "file://" + t.TempDir()
		var wg sync.WaitGroup
		var stores [2]*raw.Store
		for i, url := range []string{dir, dir + sharedMark} {
			b := openBucket(t, url)
			wg.Go(func() {
				s, err := raw.Open(t.Context(), raw.Options{Bucket: b, Stream: "s", Codec: "null", Shared: i == 1})
				if err != nil && !errors.Is(err, raw.ErrLayout) {
					t.Error(err)
				}
				stores[i] = s
			})
		}
		wg.Wait()
		if stores[0] != nil && stores[1] != nil {
			t.Fatal("both layouts were opened in one directory")
		}
		for _, s := range stores {
			if s != nil {
				s.Close()
			}
		}
	}
}

// TestASharedDirectoryTakesNoLock: several processes write, and each commit is a file of its own.
func TestASharedDirectoryTakesNoLock(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + dir + sharedMark
	a, b := open(t, url), open(t, url)
	a.begin(0)
	a.put(0, 10)
	b.begin(10)
	b.put(10, 20)
	a.End(orders)
	a.begin(20)
	a.put(20, 30)
	a.holds(0, 30)
	if _, err := os.Stat(filepath.Join(dir, "s", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock: %v", err)
	}
	got, err := a.Segments(t.Context(), orders)
	if err != nil || len(got) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestManyWritersOfASharedDirectory race for one chain, each as a process of its own with its own view of the directory; whoever is
// fenced begins anew at the head. In the end the chain is whole, and each commit that was acknowledged stands in it as it was.
func TestManyWritersOfASharedDirectory(t *testing.T) {
	const writers, commits = 4, 60
	url := "file://" + t.TempDir() + sharedMark
	var wg sync.WaitGroup
	var mine [writers][][2]int64
	for w := range writers {
		s := open(t, url)
		wg.Go(func() { mine[w] = race(s, w, commits) })
	}
	wg.Wait()

	s := readOnly(t, url)
	ends := map[int64]int64{}
	if err := s.Read(t.Context(), orders, checkpoint.Span{From: 0, To: 1 << 40}, func(b *record.Batch) error {
		ends[b.First] = b.Next
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	fenced := writers * commits
	for w, all := range mine {
		for _, c := range all {
			if ends[c[0]] != c[1] {
				t.Errorf("writer %d was told that [%d, %d) is stored; there is [%d, %d)", w, c[0], c[1], c[0], ends[c[0]])
			}
		}
		fenced -= len(all)
	}
	if len(ends)+fenced != writers*commits || fenced == 0 {
		t.Errorf("%d commits are stored, %d were fenced, of %d", len(ends), fenced, writers*commits)
	}
	if found := s.findings(); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// race appends n commits of different lengths and returns those that were acknowledged as its own.
func race(s *bench, w, n int) (ours [][2]int64) {
	head, err := s.Begin(s.Context(), orders, from(0))
	for i := 0; err == nil && i < n; i++ {
		next := head.Next + int64(1+(i+w)%3)
		st, aerr := s.Append(s.Context(), orders, []*record.Batch{batch(orders, head.Next, next)})
		if err = aerr; err == nil && st.Ours {
			ours = append(ours, [2]int64{head.Next, next})
			head = st.Head
			continue
		}
		s.End(orders)
		if err == nil {
			head, err = s.Begin(s.Context(), orders, from(0))
		}
	}
	if err != nil {
		s.Errorf("writer %d: %v", w, err)
	}
	return ours
}
