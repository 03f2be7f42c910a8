//go:build linux

package netlab

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Path is how one direction between two hosts behaves. The zero value is perfect.
type Path struct {
	Delay     time.Duration
	Jitter    time.Duration // up to so much more delay, each packet for itself: packets overtake one another
	Loss      float64       // share of packets that do not arrive
	Duplicate float64       // share of packets that arrive twice
	Cut       bool          // nothing arrives
}

// counts of one direction.
type counts struct{ sent, dropped int }

// net decides what becomes of a packet. It is pure but for its dice, and not safe for concurrent use. Hosts count from 0 here.
type net struct {
	paths  [][]Path
	counts [][]counts
	dice   *rand.Rand
}

func newNet(hosts int, dice *rand.Rand) *net {
	n := &net{dice: dice}
	for range hosts {
		n.paths = append(n.paths, make([]Path, hosts))
		n.counts = append(n.counts, make([]counts, hosts))
	}
	return n
}

// send says after which delays a packet arrives: not at all, once or twice.
func (n *net) send(from, to int) (delays []time.Duration) {
	p, c := n.paths[from][to], &n.counts[from][to]
	if p.Cut || n.lucky(p.Loss) {
		c.dropped++
		return nil
	}
	c.sent++
	delays = append(delays, n.delay(p))
	if n.lucky(p.Duplicate) {
		delays = append(delays, n.delay(p))
	}
	return delays
}

func (n *net) lucky(share float64) bool { return share > 0 && n.dice.Float64() < share }

func (n *net) delay(p Path) time.Duration {
	if p.Jitter <= 0 {
		return p.Delay
	}
	return p.Delay + time.Duration(n.dice.Int64N(int64(p.Jitter)))
}

func (n *net) set(from, to int, p Path) { n.paths[from][to] = p }

func (n *net) cut(from, to int) { n.paths[from][to].Cut = true }

func (n *net) setAll(p Path) { n.each(func(from, to int) { n.set(from, to, p) }) }

func (n *net) rejoin() { n.each(func(from, to int) { n.paths[from][to].Cut = false }) }

func (n *net) connected(a, b int) bool { return !n.paths[a][b].Cut && !n.paths[b][a].Cut }

// partition cuts between groups of hosts, which are numbered from 1 as callers do.
func (n *net) partition(groups [][]int) {
	of := func(host int) int {
		return slices.IndexFunc(groups, func(g []int) bool { return slices.Contains(g, host+1) })
	}
	n.each(func(from, to int) {
		if of(from) != of(to) {
			n.cut(from, to)
		}
	})
}

func (n *net) each(do func(from, to int)) {
	for from := range n.paths {
		for to := range n.paths {
			if from != to {
				do(from, to)
			}
		}
	}
}
