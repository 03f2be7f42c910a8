//go:build e2e

package servers

import (
	"testing"
	"time"
)

// A word passes the proxy once each way, so the echo takes two latencies at least.
func TestTCPFaultsLatency(t *testing.T) {
	f, err := NewTCPFaults(echo(t))
	must(t, err)
	closes(t, f)
	c := dial(t, f)
	says(t, c, "fast")
	f.SetLatency(100 * time.Millisecond)
	began := time.Now()
	says(t, c, "slow")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("an echo took %v, want 200ms at least", took)
	}
}
