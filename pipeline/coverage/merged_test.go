package coverage

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/internal/faultbucket"
)

const cache = "s/_coverage/db/_merged.json"

// merging runs a Merger in fake time, and f beside it.
func merging(t *testing.T, f func(t *testing.T, b *faultbucket.Bucket)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := faultbucket.New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Merger{Bucket: b, Stream: "s", Sinks: []string{"db"}}.Run(ctx) }()
		f(t, b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func put(b *faultbucket.Bucket, node string, s Set) {
	body, err := encode("s", "db", node, s, time.Now())
	if err != nil {
		panic(err)
	}
	b.Put("s/_coverage/db/"+node+".json", body)
}

func reads(b *faultbucket.Bucket, f func()) int {
	before := b.Calls("read")
	f()
	return b.Calls("read") - before
}

// What is merged is read once instead of copy by copy, and what has changed since is read beside it.
func TestMergedIsACache(t *testing.T) {
	merging(t, func(t *testing.T, b *faultbucket.Bucket) {
		for i := range 50 {
			put(b, fmt.Sprintf("n%02d~1", i), Set{orders: set(int64(i), int64(i)+1)})
		}
		time.Sleep(2 * time.Minute)
		wants := func(what string, want string, most int) {
			t.Helper()
			n := reads(b, func() {
				if got := load(t, b, "db")[orders].String(); got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
			})
			if n > most {
				t.Errorf("%s: %d reads", what, n)
			}
		}
		wants("all is merged", "[0, 50)", 1)
		put(b, "n07~1", Set{orders: set(7, 8, 100, 200)})
		wants("one has changed", "[0, 50) [100, 200)", 2)
		put(b, "late~1", Set{orders: set(300, 301)})
		wants("one has come", "[0, 50) [100, 200) [300, 301)", 3)
		hint, err := Merged(t.Context(), b, "s", "db")
		if got := hint[orders].String(); err != nil || got != "[0, 50)" {
			t.Errorf("the cache lags: %s, %v", got, err)
		}
		time.Sleep(2 * time.Minute)
		wants("all is merged again", "[0, 50) [100, 200) [300, 301)", 1)
		if err := b.Delete(t.Context(), "s/_coverage/db/late~1.json"); err != nil {
			t.Fatal(err)
		}
		wants("one was taken away", "[0, 50) [100, 200)", 60)
	})
}

// A cache that is damaged, of another version, or says nothing of its sources changes no answer.
func TestMergedIsNeverTheTruth(t *testing.T) {
	f := func(body string) {
		t.Helper()
		b := faultbucket.New()
		put(b, "a~1", Set{orders: set(0, 5)})
		put(b, "b~1", Set{orders: set(5, 9)})
		b.Put(cache, []byte(body))
		if got := load(t, b, "db")[orders].String(); got != "[0, 9)" {
			t.Errorf("with %s: %s", body, got)
		}
	}
	other := `{"version":1,"partitions":[{"topic":"orders","topic_id":"` + strings.Repeat("0", 32) + `","spans":[{"from":1,"to":2000}]}]}`
	f("")
	f("{")
	f(other)
	f(`{"version":2,"copies":[{"name":"a~1.json"}]}`)
	f(`{"version":1,"copies":[{"name":"gone~1.json"}],` + other[len(`{"version":1,`):])
}

func TestMergerWritesSeldom(t *testing.T) {
	merging(t, func(t *testing.T, b *faultbucket.Bucket) {
		put(b, "a~1", Set{orders: set(0, 5)})
		time.Sleep(2 * time.Minute)
		writes, lists := b.Calls("replace"), b.Calls("list")
		time.Sleep(time.Hour)
		if n, l := b.Calls("replace")-writes, b.Calls("list")-lists; n > 0 || l > 61 {
			t.Errorf("%d writes and %d listings in an idle hour", n, l)
		}
		for i := range int64(360) {
			put(b, "a~1", Set{orders: set(0, 10+i*1000)})
			time.Sleep(10 * time.Second)
		}
		if n := b.Calls("replace") - writes; n < 30 || n > 360 {
			t.Errorf("%d writes in a busy hour", n)
		}
	})
}

// One copy that cannot be read is left to who reads; the others are merged. The next who is elected writes nothing anew.
func TestMergerBesideDamage(t *testing.T) {
	merging(t, func(t *testing.T, b *faultbucket.Bucket) {
		put(b, "a~1", Set{orders: set(0, 5)})
		b.Put("s/_coverage/db/b~1.json", []byte("?"))
		time.Sleep(2 * time.Minute)
		hint, err := Merged(t.Context(), b, "s", "db")
		if err != nil || hint[orders].String() != "[0, 5)" {
			t.Errorf("%v, %v", hint, err)
		}
		if _, err := Load(t.Context(), b, "s", "db"); !errors.Is(err, avrofile.ErrDamaged) {
			t.Errorf("the damage is not seen: %v", err)
		}
		put(b, "b~1", Set{orders: set(5, 6)})
		time.Sleep(2 * time.Minute)
		body, writes := b.Get(cache), b.Calls("replace")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := (Merger{Bucket: b, Stream: "s", Sinks: []string{"db"}}).Run(ctx); err != nil || b.Calls("replace") != writes || !reflect.DeepEqual(b.Get(cache), body) {
			t.Errorf("%v, %d writes", err, b.Calls("replace")-writes)
		}
	})
}

func TestNewerCacheIsNotReplaced(t *testing.T) {
	merging(t, func(t *testing.T, b *faultbucket.Bucket) {
		b.Put(cache, []byte(`{"version":2}`))
		put(b, "a~1", Set{orders: set(0, 5)})
		time.Sleep(time.Hour)
		if got := string(b.Get(cache)); got != `{"version":2}` {
			t.Error(got)
		}
	})
}

func TestMergerWhileTheStoreIsAway(t *testing.T) {
	merging(t, func(t *testing.T, b *faultbucket.Bucket) {
		b.Fault(func(faultbucket.Call) faultbucket.Fault { return faultbucket.Refuse })
		put(b, "a~1", Set{orders: set(0, 5)})
		time.Sleep(time.Hour)
		if n := b.Calls("list"); n > 70 {
			t.Errorf("%d tries in an hour", n)
		}
		b.Fault(nil)
		time.Sleep(2 * time.Minute)
		if hint, err := Merged(t.Context(), b, "s", "db"); err != nil || hint[orders].String() != "[0, 5)" {
			t.Errorf("%v, %v", hint, err)
		}
	})
}
