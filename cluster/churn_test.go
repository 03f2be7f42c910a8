package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// churn is a random life of three nodes: stops, kills, starts, cuts, now and then a lost disk. A client outside writes all the time.
type churn struct {
	*lab
	rnd   *rand.Rand
	cut   map[string]bool
	tries int
	token uint64 // the last that a writer was given
}

// TestChurn runs a few seeds; TWGD_SEEDS runs more, TWGD_SEED one of them.
func TestChurn(t *testing.T) {
	seeds, _ := strconv.Atoi(os.Getenv("TWGD_SEEDS"))
	first, _ := strconv.ParseUint(os.Getenv("TWGD_SEED"), 10, 64)
	if testing.Short() {
		seeds = 1
	}
	for seed := range uint64(max(seeds, 4)) {
		if first != 0 && seed != 0 {
			break
		}
		t.Run(fmt.Sprint(seed+max(first, 1)), func(t *testing.T) {
			bubble(t, func(l *lab) {
				c := &churn{lab: l, rnd: rand.New(rand.NewPCG(seed+max(first, 1), 7)), cut: map[string]bool{}}
				l.three()
				for range 15 {
					c.step()
				}
				c.mend()
			})
		})
	}
}

// step does one thing, waits a while, and looks whether whoever can serve does.
func (c *churn) step() {
	name := names3[c.rnd.IntN(3)]
	p := c.procs[name]
	what := "start"
	switch k := c.rnd.IntN(10); {
	case p == nil:
		c.run(name)
	case k < 3:
		what = "term"
		go p.quit()
		delete(c.procs, name)
		c.wait(30 * time.Second)
		<-p.ended
	case k < 6:
		what = "kill"
		p.kill()
	case k < 8:
		what = "cut"
		c.net.Isolate(name)
		c.cut[name] = true
	case k == 8 && c.whole():
		what = "lose the disk"
		p.kill()
		c.wipe(name)
		c.run(name)
	default:
		what = "heal"
		c.heal()
	}
	fmt.Fprintf(c, "------ %s %s\n", what, name)
	c.wait(20 * time.Second)
	c.serves()
}

// quit is what SIGTERM does, without judging how it ends: a node that is cut off goes without leave.
func (p *proc) quit() {
	p.stop()
	close(p.drained)
	<-p.ended
}

// wait lets up to most pass, more often little.
func (c *churn) wait(most time.Duration) {
	d := time.Duration(c.rnd.Float64() * c.rnd.Float64() * float64(most))
	time.Sleep(d)
}

func (c *churn) heal() {
	for _, n := range names3 {
		c.net.Rejoin(n)
	}
	clear(c.cut)
}

// whole: all run, nobody is cut off, and three seats stay. Only then may a disk be lost: one is what three tolerate.
func (c *churn) whole() bool {
	if len(c.procs) < 3 || len(c.cut) > 0 || !c.all("n1 n2 n3") || c.leader() == nil || c.procs["n1"].state() != "ok" {
		return false
	}
	for _, p := range c.procs {
		if !slices.Contains(c.ids(), p.n.id()) {
			return false
		}
	}
	return true
}

// serves: where a majority of the seats of every configuration that a disk of a running node holds is up and connected, somebody leads
// soon and takes writes.
func (c *churn) serves() {
	if !c.able() {
		return
	}
	c.until(45*time.Second, "a leader where a majority is up", func() bool { return !c.able() || c.write() })
}

func (c *churn) able() bool {
	up := []string{}
	for name, p := range c.procs {
		if !c.cut[name] {
			up = append(up, p.n.id())
		}
	}
	known := false
	for name, p := range c.procs {
		seats := c.seatsOf(p)
		known = known || len(seats) > 0 && !c.cut[name]
		with := 0
		for _, id := range seats {
			if slices.Contains(up, id) {
				with++
			}
		}
		if c.cut[name] || len(seats) == 0 || with > len(seats)/2 {
			continue
		}
		return false
	}
	return known
}

// write acquires through somebody who is not cut off. Tokens only grow.
func (c *churn) write() bool {
	for name, p := range c.procs {
		if c.cut[name] {
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
		c.tries++
		h, err := p.n.Leases().Acquire(ctx, fmt.Sprint("churn", c.tries), time.Second)
		cancel()
		if err != nil {
			continue
		}
		if h.Token() <= c.token {
			c.t.Fatalf("token %d after %d", h.Token(), c.token)
		}
		c.token = h.Token()
		return true
	}
	return false
}

// mend heals and starts everything: then all is well again without anybody's help.
func (c *churn) mend() {
	c.heal()
	for _, n := range names3 {
		if c.procs[n] == nil {
			c.run(n)
		}
	}
	fmt.Fprintln(c, "------ mended")
	c.until(4*time.Minute, "three seats that serve", func() bool { return c.whole() && c.write() })
	time.Sleep(time.Minute) // sums are compared
	for _, p := range c.procs {
		if a := p.n.Status().Alarms; len(a) > 0 {
			c.t.Errorf("%s: %v", p.name, a)
		}
	}
}
