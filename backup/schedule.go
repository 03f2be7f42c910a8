package backup

import "time"

// Schedule decides when the next backup is due. It is pure: it is told the time, as the distance from any fixed moment of one
// process's monotonic clock, and the index of the last log entry that changed the tables. It is not safe for concurrent use.
//
// A backup is due one interval after the last attempt that succeeded, if anything changed since; after a failure sooner, with
// growing pauses, and then whether or not the interval has run. Who takes office knows nothing of its predecessor's clock, so its
// first backup is due at once, unless the newest stored one holds all there is.
type Schedule struct {
	every    time.Duration
	at       time.Duration // not before
	stored   uint64        // index of the newest backup of this incarnation
	failures int           // since the last success
}

// The pauses after failures: the first, and the longest, which the interval bounds too.
const (
	firstPause = 5 * time.Second
	longPause  = 5 * time.Minute
)

// NewSchedule begins at now. stored is the index of the newest backup of this incarnation, 0 where there is none.
func NewSchedule(every, now time.Duration, stored uint64) *Schedule {
	return &Schedule{every: every, at: now, stored: stored}
}

// Due reports whether a backup is to be made now. Where nothing has changed it is not, however old the last one is.
func (s *Schedule) Due(now time.Duration, index uint64) bool { return now >= s.at && index > s.stored }

// Next is when Due is to be asked again at the latest; it lies in the past while a backup waits for nothing but a change.
func (s *Schedule) Next() time.Duration { return s.at }

// Done notes a backup that succeeded at now, also one that was made on demand.
func (s *Schedule) Done(now time.Duration, index uint64) {
	s.at, s.stored, s.failures = now+s.every, max(s.stored, index), 0
}

// Failed notes one that did not. jitter, from 0 up to 1, spreads the pause over its upper half.
func (s *Schedule) Failed(now time.Duration, jitter float64) {
	pause := firstPause
	for range s.failures {
		pause = min(2*pause, longPause)
	}
	pause = min(pause, s.every)
	s.failures++
	s.at = now + pause/2 + time.Duration(float64(pause/2)*jitter)
}

// Failures counts the attempts that failed since the last success.
func (s *Schedule) Failures() int { return s.failures }
