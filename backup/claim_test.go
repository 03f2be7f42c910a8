package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/store"
)

func claimOf(n byte) Claim { return Claim{ServerID: fmt.Sprintf("n%d~abc", n), Founding: [16]byte{n}} }

// TestCaseK26AClaimIsResumed: a node that was killed between its claim and what it claimed for comes back, with another founding id
// in mind; it gets its own claim and the founding id of then. Another node gets the claim told and does not win it.
func TestCaseK26AClaimIsResumed(t *testing.T) {
	buckets(t, func(t *testing.T, b store.Bucket) {
		f := func(c Claim, want Claim, won bool) {
			t.Helper()
			got, w, err := place(t, b, Options{}).Claim(t.Context(), 1, c)
			if err != nil || w != won || got != want {
				t.Errorf("%+v got %+v, %v, %v", c, got, w, err)
			}
		}
		f(claimOf(1), claimOf(1), true)
		f(claimOf(1), claimOf(1), true)
		f(Claim{claimOf(1).ServerID, [16]byte{9}}, claimOf(1), true)
		f(claimOf(2), claimOf(1), false)
	})
}

// TestLostRepliesOfClaims: whatever becomes of the requests, a claim that says it won is stored, and asking again settles the rest.
func TestLostRepliesOfClaims(t *testing.T) {
	f := func(won, failed bool, faults ...faultbucket.Fault) {
		t.Helper()
		b := faultbucket.New()
		p := place(t, b, Options{})
		b.Script("create", faults...)
		got, w, err := p.Claim(t.Context(), 1, claimOf(1))
		if w != won || (err != nil) != failed || w && got != claimOf(1) {
			t.Errorf("%v: %+v, %v, %v", faults, got, w, err)
		}
		for b.Pending() > 0 {
			b.Land(0, false)
		}
		if got, w, err := p.Claim(t.Context(), 1, claimOf(1)); err != nil || !w || got != claimOf(1) {
			t.Errorf("%v, and asked again: %+v, %v, %v", faults, got, w, err)
		}
		if n := len(b.Keys()); n != 1 {
			t.Errorf("%v: %d objects", faults, n)
		}
	}
	const none, refuse, lost, mine, vanish, late = faultbucket.None, faultbucket.Refuse, faultbucket.Lost, faultbucket.Mine, faultbucket.Vanish, faultbucket.Late
	f(true, false, none)
	f(true, false, lost)
	f(true, false, mine)
	f(true, false, vanish, none)
	f(true, false, vanish, vanish, lost)
	f(true, false, late, none)
	f(true, false, late, late, mine)
	f(false, true, refuse)
	f(false, true, vanish, refuse)
	f(false, true, vanish, vanish, vanish)
	f(false, true, late, late, late)
}

// TestALateClaimIsTheOthers: our claim lands after another node has been told that it won. It stays the other's.
func TestALateClaimIsTheOthers(t *testing.T) {
	b := faultbucket.New()
	p := place(t, b, Options{})
	b.Script("create", faultbucket.Late, faultbucket.Refuse)
	if _, won, err := p.Claim(t.Context(), 1, claimOf(1)); won || err == nil {
		t.Fatalf("a claim that nobody can know of: %v, %v", won, err)
	}
	if _, won, err := p.Claim(t.Context(), 1, claimOf(2)); !won || err != nil {
		t.Fatalf("the other: %v, %v", won, err)
	}
	if b.Land(0, false) {
		t.Fatal("the late claim found its place free")
	}
	if got, won, err := p.Claim(t.Context(), 1, claimOf(1)); won || err != nil || got != claimOf(2) {
		t.Errorf("%+v, %v, %v", got, won, err)
	}
}

func TestOneOfManyGetsTheClaim(t *testing.T) {
	buckets(t, func(t *testing.T, b store.Bucket) {
		p := place(t, b, Options{})
		var wg sync.WaitGroup
		var wins [16]bool
		var told [16]Claim
		for i := range wins {
			wg.Go(func() {
				var err error
				if told[i], wins[i], err = p.Claim(t.Context(), 3, claimOf(byte(i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		winner := slices.Index(wins[:], true)
		if winner < 0 || slices.Contains(wins[winner+1:], true) {
			t.Fatalf("winners: %v", wins)
		}
		for i, c := range told {
			if c != claimOf(byte(winner)) {
				t.Errorf("%d was told %+v", i, c)
			}
		}
	})
}

func TestLatestIsTheGreatestNumber(t *testing.T) {
	buckets(t, func(t *testing.T, b store.Bucket) {
		p := place(t, b, Options{})
		f := func(want uint64) {
			t.Helper()
			n, c, ok, err := p.Latest(t.Context())
			if err != nil || n != want || ok != (want > 0) || ok && c != claimOf(byte(want)) {
				t.Errorf("%d, %+v, %v, %v", n, c, ok, err)
			}
		}
		f(0)
		for _, n := range []uint64{1, 2, 9, 10} {
			if _, won, err := p.Claim(t.Context(), n, claimOf(byte(n))); !won || err != nil {
				t.Fatal(won, err)
			}
			f(n)
		}
		for _, other := range []string{"incarnation-11x", "incarnation-012", "incarnation-", "incarnation--3"} {
			if err := b.Create(t.Context(), "prod/"+other, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		f(10)
	})
}

// TestDamagedClaimsAndNotes: a claim or a note of which one bit is flipped, or that is cut, is nobody's.
func TestDamagedClaimsAndNotes(t *testing.T) {
	b := faultbucket.New()
	p := place(t, b, Options{})
	ctx := t.Context()
	if _, won, err := p.Claim(ctx, 1, claimOf(1)); !won || err != nil {
		t.Fatal(won, err)
	}
	if err := p.WriteNote(ctx, []string{"n1", "n2"}); err != nil {
		t.Fatal(err)
	}
	for key, read := range map[string]func() error{
		"prod/incarnation-1": func() error { _, _, err := p.Claim(ctx, 1, claimOf(1)); return err },
		"prod/voters":        func() error { _, err := p.Note(ctx); return err },
	} {
		whole := b.Get(key)
		for i := range whole {
			for bit := range 8 {
				bad := bytes.Clone(whole)
				bad[i] ^= 1 << bit
				b.Put(key, bad)
				if err := read(); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
					t.Errorf("%s flipped at %d: %v", key, i, err)
				}
			}
			b.Put(key, whole[:i])
			if err := read(); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s cut at %d: %v", key, i, err)
			}
		}
		b.Put(key, whole)
		if err := read(); err != nil {
			t.Error(err)
		}
	}
}

func TestClaimsOfAnotherPlaceAreNotOurs(t *testing.T) {
	b := faultbucket.New()
	p := place(t, b, Options{})
	if _, _, err := p.Claim(t.Context(), 1, claimOf(1)); err != nil {
		t.Fatal(err)
	}
	b.Put("prod/incarnation-2", b.Get("prod/incarnation-1"))
	b.Put("test/incarnation-1", b.Get("prod/incarnation-1"))
	if _, won, err := p.Claim(t.Context(), 2, claimOf(1)); won || !errors.Is(err, ErrDamaged) {
		t.Errorf("a claim under another number: %v, %v", won, err)
	}
	other, err := Open(b, "test", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := other.Latest(t.Context()); ok || !errors.Is(err, ErrDamaged) {
		t.Errorf("a claim of another cluster: %v, %v", ok, err)
	}
}

func TestTheNoteIsReplacedWhole(t *testing.T) {
	buckets(t, func(t *testing.T, b store.Bucket) {
		p := place(t, b, Options{})
		f := func(want ...string) {
			t.Helper()
			if got, err := p.Note(t.Context()); err != nil || !slices.Equal(got, want) {
				t.Errorf("the note says %v, %v; want %v", got, err, want)
			}
		}
		write := func(names ...string) {
			t.Helper()
			if err := p.WriteNote(t.Context(), names); err != nil {
				t.Fatal(err)
			}
		}
		f()
		write("n2", "n1", "n2")
		f("n1", "n2")
		write("n3")
		f("n3")
		write()
		f()
	})
}

// TestLostRepliesOfTheNote: success means that the note stands.
func TestLostRepliesOfTheNote(t *testing.T) {
	f := func(ok bool, fault faultbucket.Fault, want string) {
		t.Helper()
		b := faultbucket.New()
		p := place(t, b, Options{})
		if err := p.WriteNote(t.Context(), []string{"old"}); err != nil {
			t.Fatal(err)
		}
		b.Script("replace", fault)
		err := p.WriteNote(t.Context(), []string{"new"})
		got, rerr := p.Note(t.Context())
		if (err == nil) != ok || rerr != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("fault %d: %v, and the note says %v, %v", fault, err, got, rerr)
		}
	}
	f(true, faultbucket.None, "new")
	f(true, faultbucket.Lost, "new")
	f(false, faultbucket.Vanish, "old")
	f(false, faultbucket.Refuse, "old")
}

func TestClaimsNeedTheirWords(t *testing.T) {
	p := place(t, faultbucket.New(), Options{})
	for n, c := range map[uint64]Claim{0: claimOf(1), 1: {}} {
		if _, _, err := p.Claim(t.Context(), n, c); err == nil {
			t.Errorf("incarnation %d of %+v was claimed", n, c)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, won, err := p.Claim(ctx, 1, claimOf(1)); won || !errors.Is(err, context.Canceled) {
		t.Errorf("a claim after the end: %v, %v", won, err)
	}
}
