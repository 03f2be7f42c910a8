//go:build linux

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

// Leader waits until one of the running nodes leads: it says so itself, in the greatest term that anybody knows.
func (f *Fleet) Leader(bound time.Duration) *Node {
	f.Helper()
	var leader *Node
	harness.Await(f, "a leader", bound, func() (seen string, ok bool) {
		leader, seen = f.leads()
		return seen, leader != nil
	})
	return leader
}

// leads finds the leader, nil where there is none, and says what every running node says of it.
func (f *Fleet) leads() (leader *Node, seen string) {
	var all strings.Builder
	var greatest uint64
	for _, n := range f.Running() {
		v, err := n.View()
		if err != nil {
			fmt.Fprintf(&all, "%s: %v\n", n.Name, err)
			continue
		}
		fmt.Fprintf(&all, "%s: %v\n", n.Name, v)
		if v.Leader == n.Name && v.Term >= greatest {
			leader = n
		}
		if v.Term > greatest && v.Leader != n.Name {
			leader = nil
		}
		greatest = max(greatest, v.Term)
	}
	return leader, all.String()
}

// Rest waits until the leader says that exactly these nodes, by number, have a seat, and each of them that runs knows the leader and is who
// has the seat: one that came back with an empty disk is not, as long as its name stands for what it was.
func (f *Fleet) Rest(bound time.Duration, voters ...int) *Node {
	f.Helper()
	var want []string
	for _, i := range voters {
		want = append(want, f.Node(i).Name)
	}
	slices.Sort(want)
	var leader *Node
	harness.Await(f, fmt.Sprintf("%v to have the seats", want), bound, func() (seen string, ok bool) {
		if leader, seen = f.leads(); leader == nil {
			return seen, false
		}
		v, err := leader.View()
		return seen, err == nil && slices.Equal(v.Voters(), want) && f.follow(want, leader, v.Seats())
	})
	return leader
}

// follow reports whether all these, as far as they run, have a seat, know that leader and have heard from it who votes: a node
// knows the leader before its first check-in is answered.
func (f *Fleet) follow(names []string, leader *Node, seats []string) bool {
	for _, name := range names {
		n := f.Named(name)
		if !n.Running() {
			continue
		}
		v, err := n.View()
		if err != nil || v.Leader != leader.Name || !slices.Equal(v.Voters(), names) || !slices.Contains(seats, v.ServerID) {
			return false
		}
	}
	return true
}

// Form starts all nodes and waits until the first ones, as many as there are seats, hold them.
func (f *Fleet) Form() *Node {
	f.Helper()
	f.Start()
	return f.Rest(40*time.Second, f.first(f.Size)...)
}

func (f *Fleet) first(n int) (out []int) {
	for i := 1; i <= min(n, len(f.Nodes)); i++ {
		out = append(out, i)
	}
	return out
}

// Active waits until the leader says of each of these nodes, by number, that it is active.
func (f *Fleet) Active(bound time.Duration, numbers ...int) {
	f.Helper()
	harness.Await(f, fmt.Sprintf("nodes %v to be active", numbers), bound, func() (string, bool) {
		leader, seen := f.leads()
		if leader == nil {
			return seen, false
		}
		v, err := leader.View()
		for _, i := range numbers {
			if err != nil || v.Member(f.Node(i).Name).State != "active" {
				return seen, false
			}
		}
		return seen, true
	})
}

// SameSums waits until two running replicas with a part were seen at one index, and fails where they differ there. It says how many
// comparisons were made.
func (f *Fleet) SameSums(bound time.Duration) {
	f.Helper()
	ledger := Sums{}
	harness.Await(f, "replicas at a common index", bound, func() (string, bool) {
		for _, n := range f.Running() {
			if v, err := n.View(); err == nil {
				if err := ledger.Note(n.Name, v.Sum); err != nil {
					f.Fatal(err)
				}
			}
		}
		return fmt.Sprint(ledger), ledger.Compared() > 0
	})
}

// Sums are the hashes that replicas told, by index.
type Sums map[uint64]map[string]string

// Note takes a replica's word, and fails where another said something else of that index.
func (s Sums) Note(node string, sum *Sum) error {
	if sum == nil || sum.Index == 0 {
		return nil
	}
	if s[sum.Index] == nil {
		s[sum.Index] = map[string]string{}
	}
	s[sum.Index][node] = sum.Sum
	for other, theirs := range s[sum.Index] {
		if theirs != sum.Sum {
			return fmt.Errorf("the replicas differ: at index %d %s has %s and %s has %s", sum.Index, node, sum.Sum, other, theirs)
		}
	}
	return nil
}

// Compared counts the indices at which two replicas or more were seen.
func (s Sums) Compared() (n int) {
	for _, by := range s {
		if len(by) > 1 {
			n++
		}
	}
	return n
}
