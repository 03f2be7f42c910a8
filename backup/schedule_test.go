package backup

import (
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	const every = 5 * time.Minute
	s := NewSchedule(every, time.Hour, 10)
	at := func(d time.Duration, index uint64, due bool) {
		t.Helper()
		if got := s.Due(time.Hour+d, index); got != due {
			t.Errorf("%v after the beginning, at index %d: due is %v", d, index, got)
		}
	}
	at(0, 10, false) // the newest backup holds all
	at(every, 10, false)
	at(0, 11, true) // a new leader does not wait
	s.Done(time.Hour, 11)
	at(every-1, 20, false)
	at(every, 20, true)
	at(2*every, 11, false) // nothing has changed
	at(2*every, 12, true)
	s.Done(time.Hour+2*every, 12) // on demand
	at(3*every-1, 30, false)
	s.Done(time.Hour+2*every, 9) // an older one that took longer takes nothing back
	at(3*every, 12, false)
	at(3*every, 13, true)
}

func TestSchedulePauses(t *testing.T) {
	pauses := func(every time.Duration, jitter float64, want ...time.Duration) {
		t.Helper()
		s, now := NewSchedule(every, 0, 0), time.Duration(0)
		for i, w := range want {
			if !s.Due(now, 1) {
				t.Errorf("attempt %d is not due", i)
			}
			s.Failed(now, jitter)
			if got := s.Next() - now; got != w || s.Failures() != i+1 {
				t.Errorf("the pause after %d failures is %v, want %v", s.Failures(), got, w)
			}
			if s.Due(s.Next()-1, 1) {
				t.Errorf("an attempt is due in the pause")
			}
			now = s.Next()
		}
		s.Done(now, 1)
		if s.Failures() != 0 || s.Next() != now+every {
			t.Errorf("a success is followed by %v, %d failures", s.Next()-now, s.Failures())
		}
	}
	sec := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	pauses(time.Hour, 0, sec(2.5), sec(5), sec(10), sec(20), sec(40), sec(80), sec(150), sec(150))
	pauses(time.Hour, 0.5, sec(3.75), sec(7.5), sec(15))
	pauses(8*time.Second, 0, sec(2.5), sec(4), sec(4))
}
