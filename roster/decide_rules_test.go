package roster

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// someView is any view, likely or not.
func someView(rng *rand.Rand) View {
	v := View{Size: 1 + 2*rng.IntN(3)}
	for i := range 1 + rng.IntN(6) {
		often := func() bool { return rng.IntN(4) > 0 }
		seldom := func() bool { return rng.IntN(5) == 0 }
		n := Node{ID: fmt.Sprintf("n%d~a", i), Name: fmt.Sprintf("n%d", i), Ordinal: rng.IntN(8) - 1, Joined: uint64(rng.IntN(9)), Role: Role(rng.IntN(3))}
		n.Contact, n.HasConfig, n.Caught = often(), often(), often()
		n.Going, n.Leaving, n.Granted, n.JustGranted = seldom(), seldom(), seldom(), seldom()
		n.Returned, n.Steady, n.Seasoned, n.Stuck = n.Contact && seldom(), often(), often(), seldom()
		n.Lost = !n.Contact && !often()
		v.Nodes = append(v.Nodes, n)
	}
	me := &v.Nodes[0]
	v.Me, me.Role = me.ID, Voter
	me.Contact, me.HasConfig, me.Caught, me.Granted, me.Lost, me.Stuck = true, true, true, false, false, false
	return v
}

// Whatever a view says, a step keeps the ground rules.
func TestNoStepBreaksARule(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 200_000 {
		v := someView(rng)
		s := Decide(v)
		what := breaks(v, s)
		if what != "" {
			t.Fatalf("%v %s\n%+v", s, what, v)
		}
	}
}

func breaks(v View, s Step) string {
	sc := look(v)
	n := sc.best(func(n *Node) bool { return n.ID == s.ID })
	switch {
	case s.Rule == "" || s.Why == "":
		return "does not say why"
	case s.ID != "" && n == nil:
		return "is about nobody"
	case (s.Kind == Demote || s.Kind == Remove || s.Kind == Bury || s.Kind == Grant || s.Kind == HandOver) && n == sc.me:
		return "is about the leader itself"
	case s.Kind == Demote && (n.Role != Voter || sc.seats < 2 || sc.present-one(!away(n)) < majority(sc.seats-1)):
		return "demotes what the others cannot commit"
	case s.Kind == Remove && n.Role != Nonvoter:
		return "removes what is no nonvoter"
	case s.Kind == Bury && (n.Role != None || !n.Leaving):
		return "buries who did not leave or is still in the configuration"
	case s.Kind == Promote && !candidate(n):
		return "promotes no candidate"
	case s.Kind == HandOver && !(seat(n) && n.Caught && stays(n)):
		return "hands over to no seat that could lead"
	case s.Kind == AddNonvoter && (n.Role != None || !stays(n)):
		return "adds who has a role or does not stay"
	case s.Kind == Grant && (!n.Going || n.Granted || !n.Contact):
		return "grants what nobody waits for"
	case s.Kind == Rest && even(sc):
		return "rests at an even number"
	}
	return ""
}

// Of any two rules that both have something to say the one above is taken; and there are views in which they do, else the order of the
// two would be of no importance.
func TestConflictsOfTwoRules(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	met := map[string]bool{}
	for range 200_000 {
		v := someView(rng)
		sc := look(v)
		var due []string
		for _, r := range rules {
			if r.when(sc) {
				if _, is := r.ask(sc); is {
					due = append(due, r.no)
				}
			}
		}
		if got := Decide(v); len(due) > 0 && got.Rule != due[0] {
			t.Fatalf("%v, due are %v", got, due)
		}
		for i, a := range due {
			for _, b := range due[i+1:] {
				met[a+" before "+b] = true
			}
		}
	}
	t.Logf("%d conflicts of two were met", len(met))
	for _, pair := range []string{"0 before 1", "1 before 2a", "2a before 2b", "2b before 2c", "2c before 3a", "3a before 3b", "3b before 3c", "3c before 3d", "3d before 3e",
		"3e before 5", "1 before 4a", "4a before 4d", "4a before 4e", "4b before 4d", "4c before 4d", "4d before 4e", "4e before 4f", "4f before 5", "5 before 6", "6 before 9a",
		"7 before 8", "7 before 9a", "8 before 9b", "9a before 9b"} {
		if !met[pair] {
			t.Errorf("no view has the conflict %q", pair)
		}
	}
}
