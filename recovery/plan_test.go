package recovery

import (
	"fmt"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
)

func sp(from, to int64) checkpoint.Span { return checkpoint.Span{From: from, To: to} }

func TestWindows(t *testing.T) {
	f := func(rows int64, want string, gaps ...checkpoint.Span) {
		t.Helper()
		if got := fmt.Sprint(Windows(gaps, rows)); got != want {
			t.Errorf("windows of %d in %v are %s, want %s", rows, gaps, got, want)
		}
	}
	f(10, "[]")
	f(10, "[[0, 10)]", sp(0, 10))
	f(10, "[[3, 10) [10, 20) [20, 22)]", sp(3, 22))
	f(10, "[[3, 5) [7, 10) [10, 11)]", sp(3, 5), sp(7, 11))
	f(1, "[[4, 5) [5, 6)]", sp(4, 6))
	const end = 1<<63 - 1
	f(1<<62, fmt.Sprintf("[[%d, %d) [%d, %d)]", int64(1<<62-1), int64(1<<62), int64(1<<62), int64(end)), sp(1<<62-1, end))
}

func TestSettled(t *testing.T) {
	f := func(begin, old int64, parts, whole string, windows ...checkpoint.Span) {
		t.Helper()
		if got := fmt.Sprint(Settled(windows, begin, old)); got != parts {
			t.Errorf("of %v with begin %d and old %d settled is %s, want %s", windows, begin, old, got, parts)
		}
		if got := fmt.Sprint(WholeSettled(windows, begin, old)); got != whole {
			t.Errorf("of %v with begin %d and old %d wholly settled is %s, want %s", windows, begin, old, got, whole)
		}
	}
	f(100, 50, "[[0, 50)]", "[[0, 50)]", sp(0, 50))
	f(100, 50, "[[40, 50)]", "[]", sp(40, 60))
	f(100, 50, "[]", "[]", sp(60, 100))
	f(100, 50, "[[100, 120)]", "[]", sp(90, 120))
	f(100, 50, "[[100, 120)]", "[[100, 120)]", sp(100, 120))
	f(100, 50, "[[30, 50) [100, 120)]", "[]", sp(30, 120))
	f(100, 100, "[[90, 100) [100, 120)]", "[[90, 120)]", sp(90, 120)) // all that others stored is old
	f(100, 0, "[]", "[]", sp(0, 90))
}
