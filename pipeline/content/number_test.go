package content

import (
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestNumbersHaveOneSpelling(t *testing.T) {
	f := func(want string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			got, ok := appendNumber([]byte("before"), []byte(text))
			if !ok || string(got) != "before"+want {
				t.Errorf("%s is spelt %q, %v, want %q", text, got, ok, want)
			}
		}
	}
	f("1e0", "1", "1.0", "1e0", "1E+0", "1.000e-0", "10e-1", "0.1e1", "0.001e3", "100000e-5")
	f("0e0", "0", "-0", "0.0", "-0.000e12", "0e99999999999999999999")
	f("-12e-1", "-1.2", "-12e-1", "-0.0120e2")
	f("15e3", "15000", "1.5e4", "15E03")
	f("9007199254740993e0", "9007199254740993")
	f("9007199254740992e0", "9007199254740992")
	f("1e-1", "0.1", "1e-1", "0.10")
	f("1000000000000000055511151231257827e-34", "0.1000000000000000055511151231257827")
	f("1e1000000", "1e1000000", "10e999999")
	for _, text := range []string{"1e99999999999999999999", "1e-99999999999999999999", "-2.5e9223372036854775807"} {
		if got, ok := appendNumber(nil, []byte(text)); ok {
			t.Errorf("%s is spelt %s", text, got)
		}
	}
}

// Two numbers are spelt alike if and only if they are the same rational.
func TestSpellingsAreValues(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	number := func() string {
		var b strings.Builder
		if dice.IntN(3) == 0 {
			b.WriteByte('-')
		}
		b.WriteString([]string{"0", "1", "10", "12", "120", "100"}[dice.IntN(6)])
		if dice.IntN(2) == 0 {
			b.WriteString([]string{".0", ".1", ".10", ".02", ".00", ".120"}[dice.IntN(6)])
		}
		if dice.IntN(2) == 0 {
			b.WriteString([]string{"e0", "E1", "e-1", "e+2", "e-02", "e3"}[dice.IntN(6)])
		}
		return b.String()
	}
	equal := 0
	for range 200_000 {
		a, b := number(), number()
		p, _ := appendNumber(nil, []byte(a))
		q, _ := appendNumber(nil, []byte(b))
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		same := x.Cmp(y) == 0
		if same != (string(p) == string(q)) {
			t.Fatalf("%s is spelt %s, %s is spelt %s", a, p, b, q)
		}
		if same {
			equal++
		}
	}
	if equal < 1000 {
		t.Errorf("only %d pairs were equal", equal)
	}
}
