package recovery_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/recovery"
	"github.com/stream-arrow/twgd/sinks"
)

func TestForce(t *testing.T) {
	onSite(t, true, func(s *site) {
		p := s.start(options{})
		e := s.assign(orders)
		s.src.Poll(orders, e, 0, 30)
		time.Sleep(5 * time.Second)
		s.src.Poll(orders, e, 30, 60)
		time.Sleep(5 * time.Second)
		s.complete(orders, 60)
		s.table.Lose(orders, sp(30, 60))
		var steps []string
		err := p.agent.Force(s.Context(), orders, sp(0, 1000), func(done, all int) { steps = append(steps, fmt.Sprintf("%d/%d", done, all)) })
		if err != nil || fmt.Sprint(steps) != "[0/1 1/1]" {
			t.Errorf("%v, %v", err, steps)
		}
		s.complete(orders, 60)
		if err := p.agent.Force(s.Context(), orders, sp(60, 1000), func(int, int) {}); !errors.Is(err, recovery.ErrNothing) {
			t.Error(err)
		}
		if err := p.agent.Force(s.Context(), bills, sp(0, 10), func(int, int) {}); !errors.Is(err, sinks.ErrNoChain) {
			t.Error(err)
		}
		s.end(p)
	})
	onSite(t, false, func(s *site) {
		p := s.start(options{})
		e := s.assign(orders)
		s.src.Poll(orders, e, 0, 120)
		time.Sleep(5 * time.Second)
		begun := s.table.Calls("begin")
		if err := p.agent.Force(s.Context(), orders, sp(60, 110), func(int, int) {}); err != nil || s.table.Calls("begin")-begun != 2 {
			t.Errorf("%v, %d loads", err, s.table.Calls("begin")-begun)
		}
		s.complete(orders, 120)
		s.end(p)
	})
}
