//go:build linux && e2e

package churn

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/fleet"
	"github.com/stream-arrow/twgd/test/harness"
)

var (
	steps = flag.Int("steps", 40, "how many steps")
	seed  = flag.Uint64("seed", 0, "what decides the steps; 0 takes one at random, and the log says which")
)

var program string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "twgd-churn-")
	if err == nil {
		defer os.RemoveAll(dir)
		program, err = fleet.Program(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Shape of the cluster: as many seats as the smallest that bears a loss, and two nodes to spare.
const nodes, seats = 5, 3

// churn is a run: what was done, and what is to be expected of it.
type churn struct {
	*fleet.Fleet
	*monitor
	dice   *rand.Rand
	apart  [][]*fleet.Node // groups that hear only themselves
	broken bool            // after the last step nobody had to serve
}

func TestChurn(t *testing.T) {
	n := *seed
	for n == 0 {
		n = rand.Uint64()
	}
	t.Logf("-seed %d", n)
	f := fleet.New(t, fleet.Options{Program: program, Nodes: nodes, Size: seats, Settle: 12 * time.Second, Grace: 10 * time.Second})
	v, err := f.Form().View()
	harness.Must(t, err)
	c := &churn{Fleet: f, monitor: watch(f, v.Founding), dice: rand.New(rand.NewPCG(n, 0))}
	traffic := f.Tenancy().Traffic(n, 10*time.Second)
	begin := time.Now()
	for i := 1; i <= *steps && !t.Failed(); i++ {
		what := c.step()
		at := time.Since(begin).Round(100 * time.Millisecond)
		t.Logf("step %d, done at %v: %s: %s", i, at, what, c.expect())
		harness.Must(t, c.fault())
	}
	c.settle()
	c.Judge(traffic, *steps)
	harness.Must(t, c.fault())
	t.Logf("%d operations on leases, %d granted; replicas compared at %d indices", len(traffic.Ops()), traffic.Granted(), c.sums.Compared())
	if c.sums.Compared() == 0 {
		t.Error("no two replicas were seen at one index")
	}
}

// step does one thing, and says which. Where nobody serves, it mends.
func (c *churn) step() string {
	c.Helper()
	if c.broken {
		return c.mend()
	}
	running, stopped := c.Running(), c.stopped()
	for {
		switch dice := c.dice.IntN(18); {
		case dice < 4 && len(stopped) > 0:
			return c.start(pick(c.dice, stopped))
		case dice < 6 && len(running) > 1:
			return c.terminate(some(c.dice, running))
		case dice < 8 && len(running) > 1:
			return c.kill(pick(c.dice, running))
		case dice < 10 && len(running) > 0:
			n := pick(c.dice, running)
			return c.kill(n) + ", " + c.start(n)
		case dice < 12 && c.mayLoseADisk():
			return c.wipe(pick(c.dice, running))
		case dice == 12 && len(running) > 1:
			return c.part()
		case dice == 13 && len(c.apart) > 0:
			return c.heal()
		case dice >= 14 && len(c.apart) == 0:
			return c.rest()
		}
	}
}

// mend does something that brings the cluster nearer to serving.
func (c *churn) mend() string {
	c.Helper()
	stopped := c.stopped()
	if len(c.apart) > 0 && (len(stopped) == 0 || c.dice.IntN(2) == 0) {
		return c.heal()
	}
	if len(stopped) == 0 {
		c.Fatalf("all run and all hear each other, and nobody serves:\n%v", c.monitor)
	}
	return c.start(pick(c.dice, stopped))
}

func pick(dice *rand.Rand, from []*fleet.Node) *fleet.Node { return from[dice.IntN(len(from))] }

// some are one node, or now and then two, but not all.
func some(dice *rand.Rand, from []*fleet.Node) []*fleet.Node {
	from = slices.Clone(from)
	dice.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	if len(from) > 2 && dice.IntN(3) == 0 {
		return from[:2]
	}
	return from[:1]
}

func (c *churn) stopped() (out []*fleet.Node) {
	for _, n := range c.Nodes {
		if !n.Running() {
			out = append(out, n)
		}
	}
	return out
}

func (c *churn) start(n *fleet.Node) string {
	c.Helper()
	n.Start()
	return "start " + n.Name
}

func (c *churn) terminate(nodes []*fleet.Node) string {
	c.Helper()
	for _, n := range nodes {
		n.Terminate()
	}
	for _, n := range nodes {
		if code := n.Exit(20 * time.Second); code != 0 {
			c.Errorf("node %s ends with code %d at SIGTERM", n.Name, code)
		}
	}
	return "SIGTERM to " + names(nodes)
}

func (c *churn) kill(n *fleet.Node) string {
	c.Helper()
	n.Kill()
	return "SIGKILL to " + n.Name
}

// mayLoseADisk reports whether a disk may be lost and nothing with it: all seats are taken by nodes that run, and nothing is on its way.
func (c *churn) mayLoseADisk() (ok bool) {
	w := c.world()
	c.recorded(func(r *record) {
		last := r.possible()
		ok = r.steady() && len(last) == 1 && len(last[0]) == seats && len(c.apart) == 0
		for _, id := range last[0] {
			ok = ok && w.up[id]
		}
	})
	return ok
}

// wipe kills a node and starts it with an empty disk, told to join as often as not.
func (c *churn) wipe(n *fleet.Node) string {
	c.Helper()
	n.Kill()
	n.Wipe()
	c.forget(n.Name)
	if c.dice.IntN(2) == 0 {
		n.Start()
		return n.Name + " loses its disk"
	}
	to := pick(c.dice, slices.DeleteFunc(c.Running(), func(o *fleet.Node) bool { return o == n }))
	n.Launch("join", to.Address())
	n.Up()
	return n.Name + " loses its disk, and joins " + to.Name
}

// part makes two groups.
func (c *churn) part() string {
	c.Helper()
	all := slices.Clone(c.Nodes)
	c.dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	cut := 1 + c.dice.IntN(2)
	c.apart = [][]*fleet.Node{all[:cut], all[cut:]}
	c.Lab.Rejoin()
	c.Lab.Partition(numbers(all[:cut]), append(numbers(all[cut:]), c.Lab.Size())) // the tenants are with the larger group
	return names(all[:cut]) + " apart from " + names(all[cut:])
}

func (c *churn) heal() string {
	c.apart = nil
	c.Lab.Heal()
	return "all hear each other"
}

// rest waits until there is nothing more to change: as many seats as nodes that run allow, and each of them taken; or a seat whose node is
// away, and nobody to spare.
func (c *churn) rest() string {
	c.Helper()
	since := time.Now()
	harness.Await(c, "an odd number of seats, all taken or nobody to spare", 90*time.Second, func() (seen string, ok bool) {
		name, now := c.leader(since, anybody)
		return c.String(), name != "" && c.world().rests(now, seats)
	})
	return fmt.Sprintf("rest after %v", time.Since(since).Round(100*time.Millisecond))
}

func names(nodes []*fleet.Node) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return strings.Join(out, " and ")
}

func numbers(nodes []*fleet.Node) (out []int) {
	for _, n := range nodes {
		out = append(out, n.Number)
	}
	return out
}

// world is what was done, by server ids.
func (c *churn) world() world {
	w := world{up: map[string]bool{}}
	for _, n := range c.Running() {
		w.up[c.id(n.Name)] = true
	}
	for _, group := range c.apart {
		var ids []string
		for _, n := range group {
			ids = append(ids, c.id(n.Name))
		}
		w.groups = append(w.groups, ids)
	}
	return w
}

// expect waits for the leader that must be, and says what was expected.
func (c *churn) expect() string {
	c.Helper()
	since := time.Now()
	c.round(since)
	w := c.world()
	var group int
	var must bool
	var bound time.Duration
	c.recorded(func(r *record) {
		group, must = w.serves(r.possible())
		bound = r.bound()
	})
	if !must {
		return c.unsure(since)
	}
	c.broken = false
	var leader string
	var seats []string
	harness.Await(c, fmt.Sprintf("a leader, as a majority is up and connected, in %v", w), bound, func() (string, bool) {
		leader, seats = c.leader(since, func(id string) bool { return w.group(id) == group })
		return c.String(), leader != ""
	})
	return fmt.Sprintf("%s leads after %v, seats %v", leader, time.Since(since).Round(10*time.Millisecond), seats)
}

// unsure is for a moment at which nobody has to lead: a change may have been under way, and not all that may be in force has a majority. Who
// leads still after two seconds does lead; one without a majority knows by then.
func (c *churn) unsure(since time.Time) string {
	c.Helper()
	since = since.Add(2 * time.Second)
	c.round(since)
	leader, seats := c.leader(since, anybody)
	if c.broken = leader == ""; c.broken {
		return "no majority"
	}
	return fmt.Sprintf("%s leads all the same, seats %v", leader, seats)
}

// settle mends all, and waits until the seats are full again.
func (c *churn) settle() {
	c.Helper()
	if c.Failed() {
		return
	}
	c.heal()
	for _, n := range c.stopped() {
		n.Start()
	}
	c.rest()
}
