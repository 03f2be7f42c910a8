package flow

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	// A script of steps: +n is taken, !n is refused, -n is given.
	f := func(cap int64, script string, want int64) {
		t.Helper()
		b := Budget{Cap: cap}
		for step := range strings.FieldsSeq(script) {
			var n int64
			fmt.Sscan(step[1:], &n)
			switch step[0] {
			case '-':
				b.Give(n)
			default:
				if got := b.TryTake(n); got != (step[0] == '+') {
					t.Errorf("cap %d, %q: TryTake(%d) is %v at %q", cap, script, n, got, step)
				}
			}
		}
		if b.InFlight() != want {
			t.Errorf("cap %d, %q: %d in flight, want %d", cap, script, b.InFlight(), want)
		}
	}
	f(10, "", 0)
	f(10, "+10 !1 -4 +4 !1", 10)
	f(10, "+3 +3 +3 !2 +1", 10)
	f(10, "+11", 11)                             // larger than the budget, alone
	f(10, "+1 !11 -1 +11 !1 -11 +1", 1)          // it waits until nothing else is in flight
	f(10, "+11 +0 -11", 0)                       // nothing always passes
	f(0, "+5 !5 -5 +5", 5)                       // one at a time
	f(1<<62, "+9223372036854775807 !1", 1<<63-1) // no overflow
}

func TestBudgetPanics(t *testing.T) {
	f := func(what string, do func(*Budget)) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s is let pass", what)
			}
		}()
		b := Budget{Cap: 10}
		b.TryTake(5)
		do(&b)
	}
	f("giving more than was taken", func(b *Budget) { b.Give(6) })
	f("giving less than nothing", func(b *Budget) { b.Give(-1) })
	f("taking less than nothing", func(b *Budget) { b.TryTake(-1) })
}

func TestLineTakesTurns(t *testing.T) {
	// Waiting pieces are written a3: key and bytes. The budget has room for cap bytes each time.
	f := func(cap int64, waiting, want string) {
		t.Helper()
		b, l := Budget{Cap: cap}, Line[string]{}
		for w := range strings.FieldsSeq(waiting) {
			var n int64
			fmt.Sscan(w[1:], &n)
			l.Wait(w[:1], n)
		}
		var got []string
		for !l.Empty() {
			k, n, ok := l.Next(&b)
			if !ok {
				b.Give(b.InFlight())
				got = append(got, "|")
				continue
			}
			got = append(got, fmt.Sprint(k, n))
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%q leaves as %q, want %q", waiting, g, want)
		}
	}
	f(10, "a1 a2 a3 b4", "a1 b4 a2 a3")
	f(100, "a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3")
	f(5, "a5 b9 c1 a1", "a5 | b9 | c1 a1") // the large one goes alone, and nobody overtakes it
	f(5, "a3 b3 c1", "a3 | b3 c1")         // c would fit beside a, but it is b's turn
}

func TestLineDrop(t *testing.T) {
	b, l := Budget{Cap: 100}, Line[int]{}
	for range 3 {
		l.Wait(1, 10)
		l.Wait(2, 10)
		l.Wait(3, 10)
	}
	if n := l.Drop(2); n != 3 || l.Drop(2) != 0 || l.Waiting(2) != 0 {
		t.Errorf("%d pieces dropped", n)
	}
	var got []int
	for k, _, ok := l.Next(&b); ok; k, _, ok = l.Next(&b) {
		got = append(got, k)
	}
	if fmt.Sprint(got) != "[1 3 1 3 1 3]" || b.InFlight() != 60 {
		t.Errorf("left as %v with %d in flight", got, b.InFlight())
	}
}

// Whatever order pieces come and go in, the budget holds, everybody gets a turn, and each key's pieces keep their order.
func TestLineUnderLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b, l := Budget{Cap: 50}, Line[int]{}
	type piece struct{ n, number int64 }
	waiting, arrived := map[int][]piece{}, 0
	var flying []int64
	for i := range 20_000 {
		if arrived < 15_000 && rng.IntN(2) == 0 {
			k, n := rng.IntN(5), 1+rng.Int64N(60)
			l.Wait(k, n)
			waiting[k] = append(waiting[k], piece{n, int64(i)})
			arrived++
		}
		for k, n, ok := l.Next(&b); ok; k, n, ok = l.Next(&b) {
			if waiting[k][0].n != n {
				t.Fatalf("key %d: %d bytes leave, %d were first", k, n, waiting[k][0].n)
			}
			waiting[k] = waiting[k][1:]
			flying = append(flying, n)
			if b.InFlight() > b.Cap && len(flying) > 1 {
				t.Fatalf("%d in flight in %d pieces", b.InFlight(), len(flying))
			}
		}
		if len(flying) > 0 {
			j := rng.IntN(len(flying))
			b.Give(flying[j])
			flying = append(flying[:j], flying[j+1:]...)
		}
	}
	for !l.Empty() {
		if _, n, ok := l.Next(&b); ok {
			flying = append(flying, n)
			continue
		}
		if len(flying) == 0 {
			t.Fatal("somebody waits, nothing is in flight, and nothing moves")
		}
		b.Give(flying[0])
		flying = flying[1:]
	}
}

func TestBackoff(t *testing.T) {
	f := func(base, max time.Duration, r float64, want ...time.Duration) {
		t.Helper()
		b := Backoff{Base: base, Max: max}
		for i, w := range want {
			if got := b.Next(r); got != w {
				t.Errorf("base %v, max %v, r %v: pause %d is %v, want %v", base, max, r, i, got, w)
			}
		}
		b.Reset()
		if got := b.Next(r); got != want[0] {
			t.Errorf("base %v, max %v: %v after a success, want %v", base, max, got, want[0])
		}
	}
	ms := time.Millisecond
	f(100*ms, time.Second, 0, 50*ms, 100*ms, 200*ms, 400*ms, 500*ms, 500*ms)
	f(100*ms, time.Second, 0.5, 75*ms, 150*ms, 300*ms, 600*ms, 750*ms, 750*ms)
	f(time.Second, time.Second, 0, 500*ms, 500*ms)
	f(2*time.Second, time.Second, 0, 500*ms, 500*ms)
	b := Backoff{Base: 1, Max: 1<<63 - 1}
	for range 200 {
		if d := b.Next(0.999); d < 0 {
			t.Fatalf("the pause is %v", d)
		}
	}
}
