//go:build linux

package netlab

import (
	"math/rand/v2"
	"testing"
	"time"
)

func testNet(hosts int) *net { return newNet(hosts, rand.New(rand.NewPCG(1, 2))) }

func TestPartition(t *testing.T) {
	f := func(groups [][]int, want [][]bool) {
		t.Helper()
		n := testNet(4)
		n.partition(groups)
		for from := range want {
			for to := range want[from] {
				if got := len(n.send(from, to)) > 0; got != want[from][to] {
					t.Errorf("%v: a packet from %d to %d arrives: %v", groups, from+1, to+1, got)
				}
			}
		}
	}
	const x, o = true, false
	f(nil, [][]bool{{x, x, x, x}, {x, x, x, x}, {x, x, x, x}, {x, x, x, x}})
	f([][]int{{1}}, [][]bool{{x, o, o, o}, {o, x, x, x}, {o, x, x, x}, {o, x, x, x}})
	f([][]int{{1, 2}, {3}}, [][]bool{{x, x, o, o}, {x, x, o, o}, {o, o, x, o}, {o, o, o, x}})
}

func TestCutIsOneWay(t *testing.T) {
	n := testNet(2)
	n.set(0, 1, Path{Delay: time.Second})
	n.cut(0, 1)
	if len(n.send(0, 1)) != 0 || len(n.send(1, 0)) != 1 || n.connected(0, 1) {
		t.Error("a cut in one direction cuts both, or none")
	}
	n.rejoin()
	if d := n.send(0, 1); len(d) != 1 || d[0] != time.Second || !n.connected(0, 1) {
		t.Errorf("after the cut packets arrive after %v; the delay was to stay", d)
	}
	if c := n.counts[0][1]; c != (counts{sent: 1, dropped: 1}) {
		t.Errorf("counted %+v", c)
	}
}

func TestDice(t *testing.T) {
	n := testNet(2)
	n.set(0, 1, Path{Delay: 20 * time.Millisecond, Jitter: 10 * time.Millisecond, Loss: 0.2, Duplicate: 0.5})
	lost, twice, least, most := 0, 0, time.Hour, time.Duration(0)
	for range 10000 {
		delays := n.send(0, 1)
		switch len(delays) {
		case 0:
			lost++
		case 2:
			twice++
		}
		for _, d := range delays {
			least, most = min(least, d), max(most, d)
		}
	}
	if lost < 1800 || lost > 2200 || twice < 3700 || twice > 4300 {
		t.Errorf("of 10000 packets %d were lost (a fifth should be) and %d arrived twice (half of the others should)", lost, twice)
	}
	if least < 20*time.Millisecond || least > 21*time.Millisecond || most > 30*time.Millisecond || most < 29*time.Millisecond {
		t.Errorf("delays are from %v to %v, and should be from 20ms to 30ms", least, most)
	}
}
