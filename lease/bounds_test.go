package lease

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"
)

func number(n int) (r Request) {
	binary.BigEndian.PutUint64(r[:], uint64(n))
	return r
}

// TestCaseK22TableStaysFlat: leases come and go; what the table keeps of them is bounded, and the oldest goes first.
func TestCaseK22TableStaysFlat(t *testing.T) {
	var table Table
	table.Apply(0, Epoch(1))
	const rounds = 3 * pastSize
	for n := range rounds {
		table.Apply(0, acquireCommand("w", "n", number(n), ttl, false))
		table.Apply(0, releaseCommand("w", table.token(), true))
		table.Apply(0, withdrawCommand("w", number(rounds+n)))
	}
	if table.rows.pages.n != 1 || table.past.held.pages.n != pastSize || table.past.refused.pages.n != pastSize {
		t.Errorf("%d rows, %d and %d past ones", table.rows.pages.n, table.past.held.pages.n, table.past.refused.pages.n)
	}
	if len(table.past.held.byRequest) != pastSize || len(table.past.held.byToken) != pastSize || len(table.past.refused.byRequest) != pastSize {
		t.Error("an index keeps more than there is")
	}
	f := func(n int, want string) {
		t.Helper()
		for _, replica := range []*Table{&table, restored(t, section(t, &table))} {
			if got := show(replica.Apply(0, acquireCommand("w", "n", number(n), ttl, false))); got != want {
				t.Errorf("attempt %d is %s, want %s", n, got, want)
			}
		}
	}
	f(rounds-pastSize, "over")
	f(2*rounds-pastSize, "over")
	f(rounds-pastSize-1, "granted "+showToken(table.token()+1))
	data := section(t, &table)
	if again := restored(t, data); !bytes.Equal(section(t, again), data) || again.past.held.next == table.past.held.next {
		t.Error("a ring that has gone round is not restored as it was")
	}
}

func TestFull(t *testing.T) {
	var table Table
	table.Apply(0, Epoch(1))
	for n := range MaxRows {
		table.Apply(0, acquireCommand("w", "n", number(n), ttl, true))
	}
	f := func(name string, n int, want string) {
		t.Helper()
		if got := show(table.Apply(time.Second, acquireCommand(name, "n", number(n), ttl, true))); got != want {
			t.Errorf("%s, attempt %d: %s, want %s", name, n, got, want)
		}
	}
	f("v", MaxRows, "full")
	f("w", MaxRows, "full")
	f("w", 5, "waiting 5")
	table.Apply(time.Second, withdrawCommand("w", number(7)))
	f("v", MaxRows, "granted 1.2")
	restored(t, section(t, &table))
}

// TestRepliesThatRefuse: what the table cannot give is an error of its own where nobody waits for it.
func TestRepliesThatRefuse(t *testing.T) {
	f := func(reply byte, want error) {
		t.Helper()
		c := New(Options{Proposer: answers{reply}, Holder: "n"})
		if h, held, err := c.Try(t.Context(), "w", ttl); h != nil || held || !errors.Is(err, want) {
			t.Errorf("reply %d: %v, %v", reply, held, err)
		}
	}
	f(codeFull, ErrFull)
	f(codeNoEpoch, ErrNoEpoch)
}

// answers gives every command the same reply.
type answers []byte

func (a answers) Propose(context.Context, []byte) ([]byte, error) { return a, nil }
