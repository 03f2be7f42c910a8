package lease

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

const ttl = 10 * time.Second

func must(t *testing.T, m *member, name string) *Held {
	t.Helper()
	h, held, err := m.Try(t.Context(), name, ttl)
	if err != nil || !held {
		t.Fatalf("%q was not acquired: %v", name, err)
	}
	return h
}

func bubble(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newCluster()) })
}

func TestHeldIsRenewedUntilItIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		h := must(t, a, "w")
		time.Sleep(time.Hour)
		if h.Context().Err() != nil || c.info("w").Token != h.Token() {
			t.Fatalf("not held any more: %v, %+v", context.Cause(h.Context()), c.info("w"))
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(context.Cause(h.Context()), ErrReleased) || c.info("w").Held {
			t.Fatalf("still held: %v, %+v", context.Cause(h.Context()), c.info("w"))
		}
		if err := h.Release(t.Context()); err != nil {
			t.Error("a second release: ", err)
		}
		if s := a.Stats(); s.Held != 0 || s.Acquired != 1 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestRenewalsAreOneCommandARound(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		for i := range 200 {
			must(t, a, fmt.Sprint("w", i))
		}
		time.Sleep(5 * time.Minute)
		if n := c.sent(opRenew); n < 50 || n > 110 { // one in three seconds
			t.Errorf("%d renewals in five minutes", n)
		}
		if s := a.Stats(); s.Held != 200 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestTrustEndsInTime cuts the client off at some moment: its trust ends before the lease does, counted from when it asked, not from
// when it heard.
func TestTrustEndsInTime(t *testing.T) {
	f := func(slow, after time.Duration) {
		t.Helper()
		bubble(t, func(t *testing.T, c *cluster) {
			a := c.member(t, "a")
			defer c.end(a)
			a.set(func([]byte) fate { return fate{there: slow, back: slow} })
			h := must(t, a, "w")
			time.Sleep(after)
			a.set(cut)
			<-h.Context().Done()
			ended := time.Now()
			if !errors.Is(context.Cause(h.Context()), ErrLost) {
				t.Errorf("the cause is %v", context.Cause(h.Context()))
			}
			if i := c.info("w"); !i.Held || i.Token != h.Token() {
				t.Errorf("slow %v, cut after %v: trusted although the lease was over", slow, after)
			}
			for c.info("w").Held {
				time.Sleep(10 * time.Millisecond)
			}
			if margin := time.Since(ended); margin < time.Second || margin > time.Second+slow+10*time.Millisecond {
				t.Errorf("slow %v, cut after %v: the lease ended %v after the trust", slow, after, margin)
			}
		})
	}
	f(0, 0)
	f(0, time.Minute)
	f(1200*time.Millisecond, 0)
	f(1200*time.Millisecond, 61*time.Second)
	f(10*time.Millisecond, 3*time.Second)
}

func TestLostByTheClustersWord(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		h := must(t, a, "w")
		c.apply(releaseCommand("w", h.Token(), false))
		time.Sleep(4 * time.Second) // a renewal comes before
		if !errors.Is(context.Cause(h.Context()), ErrLost) || a.Stats().Lost != 1 {
			t.Errorf("the context says %v", context.Cause(h.Context()))
		}
		if err := h.Done(t.Context()); err != nil && !errors.Is(err, ErrStale) {
			t.Error(err)
		}
	})
}

func TestLostRepliesChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		a.set(only(opAcquire, fate{mute: true}))
		h := must(t, a, "w")
		if h.Token() != 1<<tokenBits|1 {
			t.Errorf("token %s: the lost reply's lease was not the attempt's", showToken(h.Token()))
		}
		a.set(only(opRenew, fate{mute: true}))
		time.Sleep(time.Minute)
		a.set(only(opRelease, fate{mute: true}))
		if err := h.Done(t.Context()); err != nil {
			t.Error("done, with the reply lost: ", err)
		}
		if s := a.Stats(); s.Lost != 0 || s.Failures == 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestAnAnswerThatIsTooLate: the grant comes when there is nothing left to trust; asking on gives it its time.
func TestAnAnswerThatIsTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		a.set(only(opAcquire, fate{back: 25 * time.Second}))
		h := must(t, a, "w")
		if h.Context().Err() != nil || c.info("w").Token != h.Token() {
			t.Errorf("%v, %+v", h.Context().Err(), c.info("w"))
		}
	})
}

func TestCaseK17PausedForTwiceItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.member(t, "a"), c.member(t, "b")
		defer c.end(a, b)
		mine := must(t, a, "window")
		a.set(cut) // a paused process hears nothing, sends nothing, and does not look at its context
		time.Sleep(2 * ttl)
		its := must(t, b, "window")
		if its.Token() <= mine.Token() {
			t.Errorf("token %s after %s", showToken(its.Token()), showToken(mine.Token()))
		}
		if err := its.Done(t.Context()); err != nil {
			t.Error(err)
		}
		a.set(nil)
		if err := mine.Done(t.Context()); !errors.Is(err, ErrStale) {
			t.Errorf("completing with a stale token: %v", err)
		}
	})
}

func TestCaseK18ClientReleasesLate(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.member(t, "a"), c.member(t, "b")
		defer c.end(a, b)
		mine := must(t, a, "w")
		a.set(cut)
		time.Sleep(2 * ttl)
		its := must(t, b, "w")
		a.set(nil)
		if err := mine.Release(t.Context()); err != nil {
			t.Error(err)
		}
		c.apply(releaseCommand("w", mine.Token(), false)) // and a copy of one that was sent in time
		if c.info("w").Token != its.Token() || its.Context().Err() != nil {
			t.Errorf("%+v", c.info("w"))
		}
	})
}

func TestCaseK18WaiterDiesInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, d := c.member(t, "a"), c.member(t, "b"), c.member(t, "d")
		defer c.end(a, b, d)
		mine := must(t, a, "w")
		dead, die := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { _, err := b.Acquire(dead, "w", ttl); gone <- err }()
		time.Sleep(time.Second)
		var its *Held
		got := make(chan time.Time)
		go func() { its, _ = d.Acquire(t.Context(), "w", ttl); got <- time.Now() }()
		time.Sleep(time.Minute)
		if i := c.info("w"); i.Waiting != 2 {
			t.Fatalf("%+v", i)
		}
		b.set(cut) // it dies: nothing of it is heard any more
		die()
		<-gone
		released := time.Now()
		if err := mine.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := (<-got).Sub(released); its == nil || waited > ttl+2*time.Second {
			t.Errorf("the next was served after %v", waited)
		}
	})
}

func TestWhoStopsWaitingLeavesTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.member(t, "a"), c.member(t, "b")
		defer c.end(a, b)
		mine := must(t, a, "w")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if h, err := b.Acquire(ctx, "w", ttl); h != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, %v", h, err)
		}
		time.Sleep(time.Second)
		if i := c.info("w"); i.Waiting != 0 || i.Token != mine.Token() {
			t.Errorf("%+v", i)
		}
	})
}

// TestServedSoon: who waits is served within a second or so of a release, without filling the log by asking.
func TestServedSoon(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.member(t, "a"), c.member(t, "b")
		defer c.end(a, b)
		mine := must(t, a, "w")
		got := make(chan *Held)
		go func() { h, _ := b.Acquire(t.Context(), "w", ttl); got <- h }()
		time.Sleep(10 * time.Minute)
		if n := c.sent(opAcquire); n > 200 {
			t.Errorf("%d commands to wait ten minutes", n)
		}
		released := time.Now()
		if err := mine.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h := <-got; h == nil || time.Since(released) > 1100*time.Millisecond {
			t.Errorf("served after %v", time.Since(released))
		}
	})
}

func TestReleaseWithoutAnAnswerIsToldLater(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		h := must(t, a, "w")
		a.set(cut)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Release(ctx); err == nil {
			t.Error("released without an answer")
		}
		if h.Context().Err() == nil {
			t.Error("still trusted")
		}
		a.set(nil)
		time.Sleep(5 * time.Second)
		if c.info("w").Held {
			t.Error("the lease was not given up")
		}
	})
}

func TestRefused(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		f := func(name string, ttl time.Duration) {
			t.Helper()
			if h, err := a.Acquire(t.Context(), name, ttl); h != nil || err == nil {
				t.Errorf("%q, %v: %v, %v", name, ttl, h, err)
			}
		}
		f("", ttl)
		f(string(make([]byte, MaxName+1)), ttl)
		f("w", MinTTL-1)
		f("w", MaxTTL+1)
		f("\xff", ttl)
	})
}

func TestElection(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		ctx, stop := context.WithCancel(t.Context())
		serving := map[string]uint64{} // by holder; guarded by the cluster's lock
		last := uint64(0)
		candidate := func(m *member, holder string) chan error {
			out := make(chan error)
			go func() {
				out <- m.Elect("leader", ttl).Run(ctx, func(ctx context.Context, token uint64) {
					c.mu.Lock()
					serving[holder] = token
					if len(serving) > 1 || token <= last {
						t.Errorf("serving: %v, after %d", serving, last)
					}
					last = token
					c.mu.Unlock()
					<-ctx.Done()
					c.mu.Lock()
					delete(serving, holder)
					c.mu.Unlock()
				})
			}()
			return out
		}
		a, b := c.member(t, "a"), c.member(t, "b")
		defer c.end(a, b)
		endA, endB := candidate(a, "a"), candidate(b, "b")
		for range 20 { // each is cut off in turn, and the other follows
			time.Sleep(time.Minute)
			i := c.info("leader")
			if !i.Held {
				t.Fatal("nobody is elected")
			}
			cutOff := map[string]*member{"a": a, "b": b}[i.Holder]
			cutOff.set(cut)
			time.Sleep(2*ttl + 2*time.Second)
			if next := c.info("leader"); !next.Held || next.Holder == i.Holder {
				t.Fatalf("%+v after %+v", next, i)
			}
			cutOff.set(nil)
		}
		stop()
		for _, end := range []chan error{endA, endB} {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		if i := c.info("leader"); i.Held || i.Waiting > 0 {
			t.Errorf("nobody resigned: %+v", i)
		}
	})
}

// TestDoneIsKeptUntilItIsHeard: the cluster hears of the completion late; until then nobody else begins, and the holder itself does not
// go on.
func TestDoneIsKeptUntilItIsHeard(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		h := must(t, a, "w")
		deaf := time.Now().Add(3 * ttl)
		a.set(func(cmd []byte) fate {
			return fate{lost: cmd != nil && cmd[1] == opRelease && time.Now().Before(deaf)}
		})
		answer := make(chan error)
		go func() { answer <- h.Done(t.Context()) }()
		for time.Now().Before(deaf) {
			time.Sleep(time.Second)
			if !errors.Is(context.Cause(h.Context()), ErrReleased) || time.Now().Before(deaf) && c.info("w").Token != h.Token() {
				t.Fatalf("%v, %+v", context.Cause(h.Context()), c.info("w"))
			}
		}
		if err := <-answer; err != nil || c.info("w").Held || a.Stats().Held != 0 {
			t.Errorf("%v, %+v", err, c.info("w"))
		}
	})
}

// TestTrustThatIsOverStaysOver: a renewal is heard after the trust has ended, but before the timer has said so.
func TestTrustThatIsOverStaysOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.member(t, "a")
		defer c.end(a)
		h := must(t, a, "w")
		a.Client.mu.Lock()
		held := h.asked.Add(-ttl)
		h.asked = held
		h.prolong(time.Now())
		if h.asked != held {
			t.Error("trusted again")
		}
		a.Client.mu.Unlock()
		if h.ring(); !errors.Is(context.Cause(h.Context()), ErrLost) {
			t.Errorf("the context says %v", context.Cause(h.Context()))
		}
	})
}
