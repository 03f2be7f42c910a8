package pipeline

import "time"

// pace stretches the age at which segments are stored, when commits take so long that it cannot be kept: with many active chains on
// one disk the syncs of a round take longer than the age, and smaller segments would only make the queue of them longer. The age
// is then twice the time of a round.
type pace struct {
	took time.Duration // of one commit, as a moving average
	told time.Time     // when it was said last that the age is stretched
}

// observe takes the time of one commit.
func (p *pace) observe(took time.Duration) {
	if p.took == 0 {
		p.took = took
	}
	p.took += (took - p.took) / 8
}

// age is how long a segment may stay open while active chains are written, writers of them at a time.
func (p *pace) age(want time.Duration, active, writers int) time.Duration {
	round := p.took * time.Duration((active+writers-1)/writers)
	if active <= writers { // no chain waits for another
		return want
	}
	return max(want, 2*round)
}

// tell reports whether it should be said that the age is stretched: when it is, and not again within a minute.
func (p *pace) tell(want, age time.Duration, now time.Time) bool {
	if age <= want || now.Before(p.told.Add(time.Minute)) {
		return false
	}
	p.told = now
	return true
}
