package gossip

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMeta(t *testing.T) {
	f := func(m Meta) {
		t.Helper()
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{b, append(slices.Clone(b), "of a later version"...)} {
			if got, err := decode(b); err != nil || got != m {
				t.Errorf("%+v became %+v, %v", m, got, err)
			}
		}
		for n := range b {
			if _, err := decode(b[:n]); err == nil {
				t.Errorf("the first %d of %d bytes can be read", n, len(b))
			}
		}
	}
	f(Meta{Ordinal: -1})
	f(Meta{ServerID: "n~", Name: "n"})
	full := Meta{
		ServerID: strings.Repeat("n", 128) + "~0123456789abcdef", Name: strings.Repeat("n", 128), Ordinal: 1<<31 - 1,
		Address: strings.Repeat("a", 200) + ":65535", Founding: [16]byte{1, 15: 2}, Incarnation: 1<<64 - 1, Confirmed: true, Intent: 2, Nonce: 1<<64 - 1,
	}
	f(full)
	if _, err := decode([]byte{2, 0, 0}); err == nil {
		t.Error("another version was read")
	}
	full.Address = strings.Repeat("a", MaxMeta)
	if _, err := full.encode(); err == nil {
		t.Error("too long, and encoded")
	}
}

func FuzzMeta(f *testing.F) {
	b, err := Meta{ServerID: "n1~a", Name: "n1", Ordinal: 1, Address: "n1:7481", Founding: [16]byte{3}, Nonce: 4, Intent: 1}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(bytes.Repeat([]byte{1}, 60))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			return // longer than what memberlist carries
		}
		if got, err := decode(again); err != nil || got != m {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
	})
}

func TestWhomToContact(t *testing.T) {
	first := func(int) int { return 0 }
	f := func(v company, want ...string) {
		t.Helper()
		v.own = "me"
		if got := v.whom(first); !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
	f(company{})
	f(company{seeds: []string{"me", "b", "a", "a"}}, "a", "b")
	f(company{seeds: []string{"a", "b", "c"}, absent: []string{"d"}}, "a", "b", "c", "d")
	f(company{seeds: []string{"a", "b"}, alive: []string{"a", "b"}})
	f(company{seeds: []string{"a", "b"}, alive: []string{"a"}, absent: []string{"c", "d"}}, "c", "d")
	f(company{alive: []string{"a", "b"}, rival: "r"}, "r", "a")
	f(company{rival: "r"}, "r")
}

func TestWhenToLookAgain(t *testing.T) {
	f := func(v company, pause, want time.Duration) {
		t.Helper()
		if got := v.next(pause); got != want {
			t.Errorf("%+v after %v: %v, want %v", v, pause, got, want)
		}
	}
	f(company{}, 0, time.Second)
	f(company{}, time.Second, 2*time.Second)
	f(company{}, 4*time.Second, 5*time.Second)
	f(company{}, 5*time.Second, 5*time.Second)
	f(company{alive: []string{"a"}}, time.Second, 10*time.Second)
	f(company{}, 10*time.Second, time.Second)
	f(company{alive: []string{"a"}, rival: "r"}, 10*time.Second, time.Second)
}
