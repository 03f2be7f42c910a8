package cluster

import (
	"fmt"
	"testing"
	"time"
)

// three runs three nodes and waits until all hold a seat and all know it.
func (l *lab) three() {
	l.t.Helper()
	for i := range 3 {
		l.run(fmt.Sprintf("n%d", i+1))
	}
	l.until(time.Minute, "three seats", func() bool { return l.all("n1 n2 n3") })
}

// all says whether every process sees these voters, and a leader.
func (l *lab) all(voters string) bool {
	for _, p := range l.procs {
		s := p.n.Status()
		if p.voters() != voters || s.Leader == "" || s.State != "ok" && s.State != "degraded" {
			return false
		}
	}
	return true
}

// writes asks every process to write.
func (l *lab) writes() {
	l.t.Helper()
	for _, p := range l.procs {
		if err := p.write(5 * time.Second); err != nil {
			l.t.Errorf("%s cannot write: %v", p.name, err)
		}
	}
}

func TestThreeFoundAndGrow(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.writes()
		for _, p := range l.procs {
			if s := p.n.Status(); s.State != "ok" || *s.Tolerance != 1 {
				t.Errorf("%s: %+v", p.name, s)
			}
		}
	})
}
