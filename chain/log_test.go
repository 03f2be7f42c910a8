package chain

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// listing is a bucket that holds a chain of any length, without bodies, and counts the requests.
type listing struct {
	store.Bucket
	dir      string
	offsets  []int64
	requests int
}

func (b *listing) List(_ context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	b.requests++
	if prefix != b.dir+"/" || limit > 1000 {
		return nil, errors.New("more than one listing can give")
	}
	name, _ := strings.CutSuffix(strings.TrimPrefix(after, prefix), ".avro")
	from := 0
	if o, err := record.ParseOffset(name); err == nil {
		from = sort.Search(len(b.offsets), func(i int) bool { return b.offsets[i] > o })
	}
	var out []store.Entry
	for ; from < len(b.offsets) && len(out) < limit; from++ {
		out = append(out, store.Entry{Key: prefix + record.OffsetName(b.offsets[from]) + ".avro"})
	}
	if len(out) < limit {
		out = append(out, store.Entry{Key: prefix + "_genesis"})
	}
	return out, nil
}

func newListing(offsets []int64) (*listing, *Log) {
	b := &listing{dir: "s/t/0", offsets: offsets}
	return b, &Log{Bucket: b, Dir: b.dir, Suffix: ".avro"}
}

// chainOf is a chain of n links that each cover up to most offsets, from a genesis on.
func chainOf(n int, most int64, rng *rand.Rand) []int64 {
	out := make([]int64, n)
	at := rng.Int64N(1 << 40)
	for i := range out {
		out[i] = at
		at += 1 + rng.Int64N(most)
	}
	return out
}

func TestLastCountsRequests(t *testing.T) {
	f := func(links int, most int64, want int) {
		t.Helper()
		offsets := chainOf(links, most, rand.New(rand.NewPCG(1, uint64(links))))
		b, log := newListing(offsets)
		first, found, err := log.Last(t.Context(), offsets[0])
		if err != nil || !found || first != offsets[links-1] {
			t.Fatalf("Last of %d links is %d, %v, %v, want %d", links, first, found, err, offsets[links-1])
		}
		t.Logf("%d links of up to %d offsets: %d requests", links, most, b.requests)
		if b.requests > want {
			t.Errorf("Last of %d links of up to %d offsets took %d requests, more than %d", links, most, b.requests, want)
		}
	}
	f(1, 100, 1)
	f(999, 100_000, 1)
	f(1000, 100_000, 36)
	f(1001, 100_000, 36)
	f(100_000, 1, 36)
	f(100_000, 100_000, 36)
	f(5_000_000, 1, 36)
	f(5_000_000, 100_000, 36)
}

func TestLastOfNothing(t *testing.T) {
	b, log := newListing(nil)
	if _, found, err := log.Last(t.Context(), 0); found || err != nil || b.requests != 1 {
		t.Fatal(found, err, b.requests)
	}
}

// TestSearchAgainstPlainSearch compares Last and Before with a search through all names, over chains of random shapes.
func TestSearchAgainstPlainSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range 60 {
		offsets := chainOf(1+rng.IntN(4000), 1+rng.Int64N(1<<rng.IntN(30)), rng)
		for range rng.IntN(5) { // some links cover very much
			i := rng.IntN(len(offsets))
			wide := rng.Int64N(1 << (20 + rng.IntN(30)))
			for j := i; j < len(offsets); j++ {
				offsets[j] += wide
			}
		}
		_, log := newListing(offsets)
		last, found, err := log.Last(t.Context(), offsets[0])
		if err != nil || !found || last != offsets[len(offsets)-1] {
			t.Fatalf("round %d: Last %d, %v, %v", round, last, found, err)
		}
		for range 10 {
			o := offsets[0] - 5 + rng.Int64N(last-offsets[0]+1000)
			got, found, err := log.Before(t.Context(), offsets[0], o)
			i := sort.Search(len(offsets), func(i int) bool { return offsets[i] > o }) - 1
			if err != nil || found != (i >= 0) || found && got != offsets[i] {
				t.Fatalf("round %d: Before(%d) = %d, %v, %v; want index %d", round, o, got, found, err, i)
			}
		}
	}
}

func TestSearchAtTheGreatestOffsets(t *testing.T) {
	var offsets []int64
	for i := range int64(62) { // gaps that double, so that steps would overflow
		for j := range int64(1500) {
			if o := int64(1)<<i + j; len(offsets) == 0 || o > offsets[len(offsets)-1] {
				offsets = append(offsets, o)
			}
		}
	}
	want := offsets[len(offsets)-1]
	b, log := newListing(offsets)
	if first, found, err := log.Last(t.Context(), 0); err != nil || !found || first != want {
		t.Fatal(first, found, err, b.requests)
	}
	if first, found, err := log.Before(t.Context(), 0, maxOffset-1); err != nil || !found || first != want {
		t.Fatal(first, found, err, b.requests)
	}
	if _, found, err := log.Before(t.Context(), 0, 0); found || err != nil {
		t.Fatal(found, err)
	}
}

func TestBeforeDoesNotListWhatLiesBetween(t *testing.T) {
	offsets := make([]int64, 1_000_000)
	for i := range offsets {
		offsets[i] = int64(i)
	}
	b, log := newListing(append(offsets, 500_000_000)) // the last dense link covers half a billion
	if first, _, err := log.Before(t.Context(), 0, 400_000_000); err != nil || first != 999_999 {
		t.Fatal(first, err)
	}
	t.Logf("%d requests", b.requests)
	if b.requests > 36 {
		t.Errorf("Before took %d requests", b.requests)
	}
}

// faults is a bucket that answers as its script says, one word a Create: "" stores, "lost" stores and does not know, "exists"
// stores and says exists, "gone" does not store and does not know, "late" does so and stores at the next Create, "no" refuses.
type faults struct {
	store.Bucket
	script []string
	late   func()
}

var errNo = errors.New("no room")

func (b *faults) Create(ctx context.Context, key string, body []byte) error {
	if b.late != nil {
		b.late()
		b.late = nil
	}
	word := ""
	if len(b.script) > 0 {
		word, b.script = b.script[0], b.script[1:]
	}
	body = slices.Clone(body)
	switch word {
	case "lost":
		b.Bucket.Create(ctx, key, body)
		return &store.Error{Op: "create", Key: key, Kind: store.ErrUnknown}
	case "exists":
		b.Bucket.Create(ctx, key, body)
		return &store.Error{Op: "create", Key: key, Kind: store.ErrExists}
	case "gone":
		return &store.Error{Op: "create", Key: key, Kind: store.ErrUnknown}
	case "late":
		b.late = func() { b.Bucket.Create(ctx, key, body) }
		return &store.Error{Op: "create", Key: key, Kind: store.ErrUnknown}
	case "no":
		return &store.Error{Op: "create", Key: key, Err: errNo}
	}
	return b.Bucket.Create(ctx, key, body)
}

// newLog is a chain of JSON links in memory.
func newLog(t *testing.T, script ...string) (*Log, *faults) {
	mem, err := store.Open(t.Context(), "mem://chain-"+t.Name(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &faults{Bucket: mem, script: script}
	return &Log{Bucket: b, Dir: "c", Parse: func(first int64, begin []byte) (l Link, err error) {
		err = json.Unmarshal(begin, &l)
		return l, err
	}}, b
}

func body(l Link) ([]byte, error) { return json.Marshal(l) }

func TestCommit(t *testing.T) {
	type want struct {
		next int64
		ours bool
		fail bool
	}
	f := func(name string, script string, nexts []int64, wants ...want) {
		t.Run(name, func(t *testing.T) {
			log, _ := newLog(t, strings.Split(script, " ")...)
			w := NewWriter(0)
			for i, next := range nexts {
				l, ours, err := log.Commit(t.Context(), w, next, body)
				if got := (want{l.Next, ours, err != nil}); got != wants[i] {
					t.Fatalf("commit %d: %+v, %v, want %+v", i, got, err, wants[i])
				}
			}
			// What is stored is what the writer believes.
			last, found, err := log.Last(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if l, err := log.Link(t.Context(), last); found && (err != nil || l.Next != w.Head()) {
				t.Fatalf("the chain ends at %v, the writer's head is %d: %v", l, w.Head(), err)
			}
		})
	}
	ok := func(next int64) want { return want{next, true, false} }
	failed := want{0, false, true}
	f("stored", "", []int64{2, 5}, ok(2), ok(5))
	f("D10 stored, the answer lost", "lost", []int64{2, 5}, ok(2), ok(5))
	f("D10 stored by a repeated request", "exists", []int64{2, 5}, ok(2), ok(5))
	f("not stored, no answer", "gone", []int64{2, 3}, failed, ok(3))
	f("refused", "no", []int64{2, 3}, failed, ok(3))
	f("D30 late, met by a longer one", "late", []int64{2, 3, 3}, failed, ok(2), ok(3))
	f("two late ones", "late late", []int64{2, 3, 4}, failed, ok(2), ok(4))
}

func TestCommitMeetsAnother(t *testing.T) {
	log, _ := newLog(t)
	a, b := NewWriter(0), NewWriter(0)
	if l, ours, err := log.Commit(t.Context(), a, 7, body); err != nil || !ours || l.Next != 7 {
		t.Fatal(l, ours, err)
	}
	if l, ours, err := log.Commit(t.Context(), b, 9, body); err != nil || ours || l.Next != 7 || b.Head() != 7 {
		t.Fatal(l, ours, err)
	}
	if l, ours, err := log.Commit(t.Context(), b, 9, body); err != nil || !ours || l.Next != 9 {
		t.Fatal(l, ours, err)
	}
}

func TestCommitThatCannotReadBack(t *testing.T) {
	log, _ := newLog(t, "lost")
	parse := log.Parse
	log.Parse = func(int64, []byte) (Link, error) { return Link{}, errNo }
	w := NewWriter(0)
	if _, _, err := log.Commit(t.Context(), w, 2, body); !errors.Is(err, errNo) || !w.InDoubt() {
		t.Fatal(err, w.InDoubt())
	}
	log.Parse = parse
	if l, ours, err := log.Commit(t.Context(), w, 5, body); err != nil || !ours || l.Next != 2 {
		t.Fatal("the next commit has to settle the doubt first:", l, ours, err)
	}
}

func TestLinkRefusesWhatCannotBe(t *testing.T) {
	log, b := newLog(t)
	f := func(first int64, l Link) {
		t.Helper()
		content, _ := body(l)
		if err := b.Replace(t.Context(), log.Key(first), content); err != nil {
			t.Fatal(err)
		}
		if got, err := log.Link(t.Context(), first); err == nil {
			t.Errorf("a link %+v under the name %d was taken: %+v", l, first, got)
		}
	}
	f(3, Link{First: 4, Next: 5})
	f(3, Link{First: 3, Next: 3})
	f(3, Link{First: 3, Next: 2})
	if l, err := log.Link(t.Context(), 8); l != nil || err != nil {
		t.Error(l, err)
	}
}

func TestOnce(t *testing.T) {
	f := func(word string) {
		t.Run("answer "+word, func(t *testing.T) {
			_, b := newLog(t, word)
			got, mine, err := Once(t.Context(), b, "k", []byte("first"))
			if err != nil || !mine || string(got) != "first" {
				t.Fatal(string(got), mine, err)
			}
			if got, mine, err = Once(t.Context(), b, "k", []byte("second")); err != nil || mine || string(got) != "first" {
				t.Fatal(string(got), mine, err)
			}
		})
	}
	f("")
	f("lost")
	f("exists")
	_, b := newLog(t, "gone", "no")
	if _, _, err := Once(t.Context(), b, "k", nil); !errors.Is(err, store.ErrUnknown) {
		t.Error("an answer that was lost must be reported:", err)
	}
	if _, _, err := Once(t.Context(), b, "k", nil); !errors.Is(err, errNo) {
		t.Error(err)
	}
}
