package roster

import (
	"strings"
	"testing"
	"time"
)

// Each rule that is taken away must be noticed: a model that notices nothing proves nothing.
func TestModelCatchesMutants(t *testing.T) {
	caught := func(name string, m mutant, left budgets, nodes int, want ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := search{start: func() *world { return mutate(m, newWorld(nodes, 0, 3, 3, left)) }, until: time.Now().Add(10 * time.Minute)} // ends when all worlds are seen
			s.breadth()
			for _, w := range want {
				if strings.HasPrefix(s.found, w) {
					t.Logf("%s\n    %s", s.found, strings.Join(s.path, "\n    "))
					return
				}
			}
			t.Errorf("after %d worlds: %q, want one of %q\n    %s", s.worlds, s.found, want, strings.Join(s.path, "\n    "))
		})
	}
	caught("an id kept on an empty disk", mutant{amnesia: true}, budgets{kill: 2, wipe: 1, start: 2}, 3, "LOST COMMIT")
	// Forced candidacy would mend this one.
	caught("a leader that demotes itself", mutant{selfDemotion: true, noForce: true}, budgets{term: 1, fail: 1, kill: 2}, 3, "R8", "R9")
	caught("proposals beside each other", mutant{parallel: true}, budgets{term: 2, kill: 2, start: 1}, 3, "R", "LOST COMMIT", "two leaders")
	caught("a grant taken from an earlier process", mutant{oldGrants: true}, budgets{term: 3, start: 2}, 3, "R4")
	caught("no forced candidacy", mutant{noForce: true}, budgets{leave: 1, kill: 1}, 4, "R9")
}
