package roster

import (
	"cmp"
	"slices"
	"strings"
)

// scene is a View as the rules look at it: its nodes in order and its seats counted.
type scene struct {
	View
	me      *Node   // nil where the view lacks it; rule 0 then waits
	order   []*Node // lowest ordinal first; those without behind, in the order of joining
	seats   int     // n
	staying int     // H: seats that stay
	present int     // P: seats that are not away, and so can acknowledge
}

func look(v View) *scene {
	s := &scene{View: v, order: make([]*Node, len(v.Nodes))}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		s.order[i] = n
		if n.ID == v.Me {
			s.me = n
		}
		s.seats += one(seat(n))
		s.staying += one(seat(n) && stays(n))
		s.present += one(seat(n) && !away(n))
	}
	slices.SortFunc(s.order, before)
	return s
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// majority is how many of n seats must agree.
func majority(n int) int { return n/2 + 1 }

// before orders nodes: lowest ordinal first, then the order of joining, then the id.
func before(a, b *Node) int {
	return cmp.Or(cmp.Compare(uint(a.Ordinal), uint(b.Ordinal)), // -1 becomes the greatest
		cmp.Compare(a.Joined-1, b.Joined-1), // 0, not known yet, becomes the greatest
		strings.Compare(a.ID, b.ID))
}

func seat(n *Node) bool    { return n.Role == Voter }
func departs(n *Node) bool { return n.Going || n.Leaving }
func stays(n *Node) bool   { return n.Contact && !departs(n) && !n.Granted }
func away(n *Node) bool    { return n.Granted || !n.Contact }

func candidate(n *Node) bool       { return n.Role == Nonvoter && stays(n) && n.Caught }
func steadyCandidate(n *Node) bool { return candidate(n) && n.Steady }

// waitsForLeave: a seat whose process asks to go and is there to be told, or that leaves for good wherever it is.
func waitsForLeave(n *Node) bool {
	return seat(n) && (n.Going && !n.Granted && n.Contact || n.Leaving)
}

// couldServe: another node that stays and can be sent the log.
func (s *scene) couldServe(n *Node) bool { return n != s.me && stays(n) && !n.Stuck }

type is = func(*Node) bool

// best is the first in order, highest the last.
func (s *scene) best(ok is) *Node {
	if i := slices.IndexFunc(s.order, ok); i >= 0 {
		return s.order[i]
	}
	return nil
}

func (s *scene) highest(ok is) *Node {
	for _, n := range slices.Backward(s.order) {
		if ok(n) {
			return n
		}
	}
	return nil
}

// worst is a lost one if there is any, else the highest.
func (s *scene) worst(ok is) *Node {
	if n := s.highest(func(n *Node) bool { return ok(n) && n.Lost }); n != nil {
		return n
	}
	return s.highest(ok)
}

func (s *scene) any(ok is) bool { return slices.ContainsFunc(s.order, ok) }

func (s *scene) count(ok is) (c int) {
	for _, n := range s.order {
		c += one(ok(n))
	}
	return c
}

// demote proposes to take n's seat only if the others can commit that by themselves: the smaller configuration is in force as soon as
// it is appended. The sole seat is nobody's to take.
func (s *scene) demote(n *Node, why string) (Step, bool) {
	if n == nil {
		return pass()
	}
	if s.seats < 2 || s.present-one(!away(n)) < majority(s.seats-1) {
		return wait(n, n.Name+" is to give up its seat, but the other seats in contact are no quorum")
	}
	return step(Demote, n, why)
}

func pass() (Step, bool) { return Step{}, false }

// step is due where there is a node for it. Of why, %s is the node's name.
func step(k Kind, n *Node, why string) (Step, bool) {
	if n == nil {
		return pass()
	}
	return Step{Kind: k, ID: n.ID, Why: strings.Replace(why, "%s", n.Name, 1)}, true
}

func wait(n *Node, why string) (Step, bool) {
	if n == nil {
		return Step{Kind: Wait, Why: why}, true
	}
	return Step{Kind: Wait, ID: n.ID, Why: why}, true
}
