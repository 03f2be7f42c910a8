package pipeline

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	f := func(took time.Duration, active int, want time.Duration) {
		t.Helper()
		var p pace
		for range 100 {
			p.observe(took)
		}
		if got := p.age(100*ms, active, 16); got != want {
			t.Errorf("commits of %v, %d chains: %v, want %v", took, active, got, want)
		}
	}
	f(ms, 1, 100*ms)
	f(time.Second, 16, 100*ms) // each has a writer of its own
	f(5*ms, 160, 100*ms)
	f(5*ms, 1600, time.Second)
	f(10*ms, 1601, 2020*ms)

	var p pace
	now := time.Unix(1_000_000, 0)
	if p.tell(100*ms, 100*ms, now) || !p.tell(100*ms, 200*ms, now) || p.tell(100*ms, 300*ms, now.Add(59*time.Second)) || !p.tell(100*ms, 300*ms, now.Add(time.Minute)) {
		t.Error("it is not said once a minute")
	}
}
