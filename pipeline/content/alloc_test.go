//go:build !race

package content

import (
	"context"
	"slices"
	"testing"
)

func TestSteadyStateAllocatesNothing(t *testing.T) {
	f := func(s *Screen, b Batch) {
		t.Helper()
		batches := []Batch{b}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := s.Screen(context.Background(), batches); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%v allocations a call", n)
		}
	}
	value := `{"id":"a\u002d1","at":1700000000000,"pay":{"sum":12.50,"ok":true},"note":["x",{"y":null}]}`
	many := batch(0, 0, slices.Repeat([]string{value}, 100)...)
	f(screen(t, silent{}, OnValue), many)
	f(screen(t, silent{}, OnFields, "id", "pay.sum", "pay.ok"), many)
}
