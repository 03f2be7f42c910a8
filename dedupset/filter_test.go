package dedupset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClaimNamesWhatOthersHold(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter()
		ask := func(text, want string) {
			t.Helper()
			if got := claim(t, f, text); got != want {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
		ask("a1b2c3", "")
		ask("a1b2c3", "") // a retry, or a redelivery
		ask("a4d5b2", "0:1")
		ask("d6", "0:5")
		ask("e7e8e7", "1:7") // equal in one call: the first holds, and is not its own twin
		ask("a8a1a9", "0:1 2:1")
		ask("a1a8", "1:1")
		ask("", "")
		if asked, keys := d.counts(); asked != 8 || keys != 2 { // one of each is the declaration
			t.Errorf("%d proposals and %d questions for the key", asked, keys)
		}
		if s := d.stats(); len(s) != 1 || s[0].Entries != 5 || s[0].Window != time.Hour || s[0].Cap != 1_000_000 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSift(t *testing.T) {
	f := func(text string, held map[int]uint64, wantRows int, want string) {
		t.Helper()
		all := rows(text)
		s := sift(all)
		if len(s.rows) != wantRows || s.copies != len(all)-wantRows {
			t.Errorf("%s: %d contents, %d copies", text, len(s.rows), s.copies)
		}
		var of []Held
		for place := range s.rows {
			if by, ok := held[place]; ok {
				of = append(of, Held{Row: place, By: tail(by)})
			}
		}
		if got := shown(s.verdict(all, of)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	f("", nil, 0, "")
	f("a1b2", nil, 2, "")
	f("a1b2", map[int]uint64{1: 9}, 2, "1:9")
	f("a1a2a3", nil, 1, "1:1 2:1")
	f("a1a2a1", nil, 1, "1:1")
	f("a1a2a3", map[int]uint64{0: 9}, 1, "0:9 1:9 2:9")
	f("a1a2a3", map[int]uint64{0: 2}, 1, "0:2 2:2") // the second is the holder itself
	f("a1b2a3b2b4", map[int]uint64{1: 8}, 2, "1:8 2:1 3:8 4:8")
}

func TestPartsAreEven(t *testing.T) {
	f := func(n, most int, want ...int) {
		t.Helper()
		s := sifted{rows: make([][24]byte, n)}
		var got []int
		for _, p := range s.parts(most) {
			got = append(got, len(p))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d in pieces of %d: %v, want %v", n, most, got, want)
		}
	}
	f(1, 10, 1)
	f(10, 10, 10)
	f(11, 10, 5, 6)
	f(100, 33, 25, 25, 25, 25)
}

// A call of more rows than an entry holds is several commands, of which a few are under way at once; the rows keep their numbers.
func TestLargeCallsAreSplit(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter(func(o *FilterOptions) { o.InFlight = 3 })
		n := 5*MaxRows("s") + 1
		all := make([][24]byte, n)
		for i := range all {
			all[i] = row(uint64(i), uint64(i))
		}
		key, _ := f.Key(t.Context())
		if held, err := f.Claim(t.Context(), &key, all); err != nil || len(held) != 0 {
			t.Fatal(len(held), err)
		}
		if asked, _ := d.counts(); asked != 7 || d.openMost != 3 {
			t.Errorf("%d proposals, %d at once", asked, d.openMost)
		}
		for i := range all {
			all[i] = row(uint64(i), uint64(i+i%2)) // each second one is another record
		}
		held, err := f.Claim(t.Context(), &key, all)
		if err != nil || len(held) != n/2 {
			t.Fatal(len(held), err)
		}
		for i, h := range held {
			if h.Row != 2*i+1 || h.By != tail(uint64(h.Row)) {
				t.Fatalf("%d: %+v", i, h)
			}
		}
	})
}

// Nothing waits longer than the timeout, and after the first failure nothing waits, but for one call now and then that finds out.
func TestCallsPassWhileNobodyAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		var log bytes.Buffer
		f := d.filter(func(o *FilterOptions) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		claim(t, f, "a1")
		ask := func(want string, took time.Duration) {
			t.Helper()
			if got, d := reason(t, f, "b2"); got != want || d != took {
				t.Fatalf("%q after %v, want %q after %v", got, d, want, took)
			}
		}
		d.does(fate{lost: true})
		ask("timeout", 250*time.Millisecond)
		for _, pause := range []time.Duration{1, 2, 4, 8, 10, 10} {
			ask("circuit", 0)
			if s := f.Status(); s.Circuit != "open" || s.Reason != "timeout" {
				t.Fatalf("%+v", s)
			}
			if _, err := f.Key(t.Context()); err == nil {
				t.Fatal("contents are hashed for nobody")
			}
			time.Sleep(pause * time.Second * 79 / 100) // the pause is up to a fifth shorter
			ask("circuit", 0)
			time.Sleep(pause * time.Second * 22 / 100)
			ask("timeout", 250*time.Millisecond)
		}
		d.does(fate{})
		time.Sleep(10 * time.Second)
		ask("", 0)
		if s := f.Status(); s != (FilterStatus{Circuit: "closed"}) {
			t.Errorf("%+v", s)
		}
		ask("", 0)
		opened, closed := strings.Count(log.String(), "records pass"), strings.Count(log.String(), "looked for again")
		if lines := strings.Count(log.String(), "\n"); opened != 1 || closed != 1 || lines != 2 {
			t.Errorf("the log says:\n%s", log.String())
		}
	})
}

// While one call finds out, others pass.
func TestOneProbeAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter()
		claim(t, f, "a1")
		d.does(fate{err: ErrNoLeader})
		if got, _ := reason(t, f, "b2"); got != "no_leader" {
			t.Fatal(got)
		}
		time.Sleep(time.Second)
		d.does(fate{takes: 100 * time.Millisecond})
		d.counts()
		var all sync.WaitGroup
		got := make([]string, 20)
		for i := range got {
			all.Go(func() { got[i], _ = reason(t, f, "c3") })
		}
		time.Sleep(50 * time.Millisecond)
		if s := f.Status(); s.Circuit != "probing" {
			t.Errorf("%+v", s)
		}
		all.Wait()
		if n := strings.Count(fmt.Sprint(got), "circuit"); n != 19 {
			t.Errorf("%d calls were turned away: %v", n, got)
		}
		if asked, _ := d.counts(); asked != 1 {
			t.Errorf("%d proposals", asked)
		}
		if s := f.Status(); s.Circuit != "closed" {
			t.Errorf("%+v", s)
		}
	})
}

// A caller that goes away says nothing of the quorum, also if its call was the one that was to find out.
func TestCallersThatLeaveOpenNothing(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter()
		claim(t, f, "a1")
		d.does(fate{lost: true})
		leave := func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			key := [32]byte{1}
			_, err := f.Claim(ctx, &key, rows("b2"))
			var un *Unavailable
			if !errors.As(err, &un) || un.Reason != "timeout" {
				t.Fatal(err)
			}
		}
		leave()
		if s := f.Status(); s.Circuit != "closed" {
			t.Errorf("%+v", s)
		}
		if got, _ := reason(t, f, "b2"); got != "timeout" {
			t.Fatal(got)
		}
		time.Sleep(time.Second)
		leave()
		d.does(fate{})
		if got, _ := reason(t, f, "b2"); got != "" {
			t.Fatalf("after a probe that left: %s", got)
		}
	})
}

// Commands that hold all places are judged themselves; who gets none of them in time passes, and opens nothing.
func TestWhoGetsNoTurnPasses(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter(func(o *FilterOptions) { o.InFlight = 1 })
		claim(t, f, "a1")
		d.does(fate{takes: 200 * time.Millisecond})
		var all sync.WaitGroup
		var passed int
		var mu sync.Mutex
		for range 4 {
			all.Go(func() {
				got, _ := reason(t, f, "b2")
				mu.Lock()
				defer mu.Unlock()
				if got == "timeout" {
					passed++
				} else if got != "" {
					t.Error(got)
				}
			})
		}
		all.Wait()
		if s := f.Status(); passed != 3 || s.Circuit != "closed" {
			t.Errorf("%d passed, %+v", passed, s)
		}
	})
}

// A set that is gone is declared again, by whoever finds out first, and the claim comes through within the same call.
func TestUndeclaredIsDeclaredAgain(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter()
		claim(t, f, "a1")
		d.mu.Lock()
		d.table = Table{}
		d.mu.Unlock()
		d.counts()
		key, _ := f.Key(t.Context())
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				if held, err := f.Claim(t.Context(), &key, rows(string([]byte{'b' + byte(i), '2'}))); err != nil || len(held) > 0 {
					t.Error(held, err)
				}
			})
		}
		all.Wait()
		if asked, keys := d.counts(); asked != 4+1+4 || keys != 1 {
			t.Errorf("%d proposals, %d questions for the key", asked, keys)
		}
	})
}

// Contents that were hashed with the key of another founding are not claimed, neither in a set of the right key nor by taking that set
// over. The batch passes; the next one has the right key.
func TestKeyOfAnotherFounding(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		right, wrong := d.filter(), d.filter()
		d.key = [32]byte{9}
		old, _ := wrong.Key(t.Context())
		d.key = [32]byte{1}
		claim(t, right, "a1")
		before := d.stats()
		_, err := wrong.Claim(t.Context(), &old, rows("a2b3"))
		var un *Unavailable
		if !errors.As(err, &un) || un.Reason != "key" {
			t.Fatal(err)
		}
		if after := d.stats(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the set has changed: %+v", after)
		}
		if got := claim(t, wrong, "a2b3"); got != "0:1" {
			t.Errorf("with the right key: %q", got)
		}
		if s := wrong.Status(); s.Circuit != "closed" {
			t.Errorf("%+v", s)
		}
		// The cluster is founded anew while both run: sets and key are others.
		d.key, d.table = [32]byte{7}, Table{}
		key := [32]byte{1}
		if _, err := right.Claim(t.Context(), &key, rows("a1")); !errors.As(err, &un) || un.Reason != "key" {
			t.Fatal(err)
		}
		if got := claim(t, right, "a1"); got != "" {
			t.Errorf("with the new key: %q", got)
		}
	})
}

func TestAnUnknownKeyOpensTheCircuit(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter(func(o *FilterOptions) {
			o.Key = func(ctx context.Context) (k [32]byte, err error) { <-ctx.Done(); return k, ctx.Err() }
		})
		ask := func(want string, took time.Duration) {
			t.Helper()
			begin := time.Now()
			_, err := f.Key(t.Context())
			var un *Unavailable
			if !errors.As(err, &un) || un.Reason != want || time.Since(begin) != took {
				t.Fatal(err, time.Since(begin))
			}
		}
		ask("key", 250*time.Millisecond)
		ask("circuit", 0)
		time.Sleep(time.Second)
		ask("key", 250*time.Millisecond)
	})
}

// The last node to declare a set decides its terms. It says so where they were others, once.
func TestAnotherWindowIsSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		var log bytes.Buffer
		claim(t, d.filter(), "a1")
		f := d.filter(func(o *FilterOptions) {
			o.Window, o.Log = 2*time.Hour, slog.New(slog.NewTextHandler(&log, nil))
		})
		if got := claim(t, f, "a2"); got != "0:1" {
			t.Errorf("claims are lost with the old window: %q", got)
		}
		claim(t, d.filter(), "a1")
		f.undeclared(1)
		claim(t, f, "a2")
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "window_before=1h0m0s") {
			t.Errorf("the log says:\n%s", log.String())
		}
		if s := d.stats(); s[0].Window != 2*time.Hour {
			t.Errorf("%+v", s)
		}
	})
}

func TestWhatTheTableRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		f := d.filter(func(o *FilterOptions) { o.Stream = strings.Repeat("x", 300) })
		if got, _ := reason(t, f, "a1"); got != "refused" {
			t.Fatal(got)
		}
		for i := range MaxSets {
			d.apply(Declare(fmt.Sprint("stream", i), [8]byte{}, time.Hour, 1000))
		}
		f = d.filter()
		if got, _ := reason(t, f, "a1"); got != "refused" || f.Status().Circuit != "open" {
			t.Fatal(got, f.Status())
		}
	})
}
