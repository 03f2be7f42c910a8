package dedupset

import (
	"testing"
	"time"
)

// Only what a call says in the epoch in which it was let in counts.
func TestCircuitHearsNoOldCalls(t *testing.T) {
	var c circuit
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	let := func(ms int, want bool) ticket {
		t.Helper()
		k, ok := c.admit(at(ms))
		if ok != want {
			t.Fatalf("at %d ms a call is let in: %v", ms, ok)
		}
		return k
	}
	is := func(text string) {
		t.Helper()
		if c.text() != text {
			t.Fatalf("the circuit is %s, not %s", c.text(), text)
		}
	}
	a, b, e := let(0, true), let(0, true), let(0, true)
	if !c.fail(at(250), a, "timeout", 0) || c.until != at(1250) {
		t.Fatalf("%+v", c)
	}
	if c.fail(at(260), b, "timeout", 0) || c.until != at(1250) {
		t.Fatalf("a call from before made the pause longer: %+v", c)
	}
	if c.succeed(e) {
		t.Fatal("a call from before has closed it")
	}
	is("open")
	let(1249, false)
	probe := let(1250, true)
	is("probing")
	let(1250, false)
	c.withdraw(a)
	is("probing")
	if c.fail(at(1500), probe, "timeout", 0.5) || c.until != at(1500)+1800*time.Millisecond {
		t.Fatalf("%+v", c)
	}
	probe = let(4000, true)
	c.withdraw(probe)
	is("open")
	probe = let(4000, true)
	if !c.succeed(probe) || c.succeed(probe) {
		t.Fatal("it is not closed, or twice")
	}
	is("closed")
	k := let(4000, true)
	if c.succeed(k) {
		t.Fatal("it was closed")
	}
	if !c.fail(at(5000), k, "no_leader", 0) || c.pause != time.Second {
		t.Fatalf("the first pause is as long as before: %+v", c)
	}
}
