package lease

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is how long to pause between attempts: twice as long after each, of that a random part between a half and the whole. The
// zero value begins with 50 ms and grows to 2 s.
type backoff struct {
	base, most time.Duration
	skip       bool // the next pause is left out
	n          int
}

// sleep pauses, at most for a time, and reports whether ctx still lives.
func (b *backoff) sleep(ctx context.Context, most time.Duration) bool {
	if b.skip {
		b.skip = false
		return ctx.Err() == nil
	}
	return sleep(ctx, min(b.next(), most))
}

func (b *backoff) next() time.Duration {
	if b.base == 0 {
		b.base, b.most = 50*time.Millisecond, 2*time.Second
	}
	d := min(b.base<<min(b.n, 16), b.most)
	b.n++
	return d/2 + rand.N(d/2+1)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// sleepUntil reports whether the time has come; it has not where something new came or ctx ended first.
func sleepUntil(ctx context.Context, news <-chan struct{}, at time.Time) bool {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-news:
		return false
	case <-t.C:
		return true
	}
}

// await waits for news, and reports whether ctx still lives.
func await(ctx context.Context, news <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-news:
		return true
	}
}
