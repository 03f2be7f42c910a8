package cluster

import (
	"testing"
	"time"
)

// alone makes a node of a cluster of one that opens no port.
func alone(o *Options) { o.Size, o.Join, o.Secret = 1, nil, "" }

func TestCaseK08OneNodeFoundsStopsAndStarts(t *testing.T) {
	bubble(t, func(l *lab) {
		p := l.run("n1", alone)
		took := l.until(2*time.Second, "a leader", func() bool { return p.state() == "ok" && p.voters() == "n1" })
		t.Log("founded and serving after ", took)
		if err := p.write(time.Second); err != nil {
			t.Fatal(err)
		}
		s := p.n.Status()
		if s.Leader != "n1" || *s.Seats != 1 || s.Incarnation != 1 || p.voters() != "n1" {
			t.Errorf("status %+v, voters %q", s, p.voters())
		}
		for range 3 {
			p.term()
			p = l.run("n1", alone)
			took := l.until(500*time.Millisecond, "a leader again", func() bool { return p.state() == "ok" && p.n.officeNow() != nil })
			t.Log("serving again after ", took)
			if err := p.write(time.Second); err != nil {
				t.Fatal(err)
			}
			if now := p.n.Status(); now.Founding != s.Founding || now.ID != s.ID || now.Incarnation != 1 {
				t.Errorf("another founding after a restart: %+v, before %+v", now, s)
			}
		}
	})
}
