package lease

// pastSize is how many attempts are known after they have ended.
const pastSize = 1 << 14

// ended is an attempt that is over.
type ended struct {
	request Request
	token   uint64 // 0: it never held
	done    bool   // it ended because its work was done
}

// past keeps the latest attempts that have ended, the oldest going first.
type past struct {
	pages     pages[ended] // a ring: number n lies at n modulo pastSize
	next      uint64       // the number of the next
	byRequest map[Request]uint64
	byToken   map[uint64]uint64
}

func (p *past) knows(r Request) bool {
	_, known := p.byRequest[r]
	return known
}

// ended says how the lease under a token ended.
func (p *past) ended(token uint64) (done, known bool) {
	n, known := p.byToken[token]
	return known && p.pages.at(int(n%pastSize)).done, known
}

// note keeps an attempt that has ended. One that is known already stays as it is.
func (p *past) note(e ended) {
	if p.knows(e.request) {
		return
	}
	if p.byRequest == nil {
		p.byRequest, p.byToken = map[Request]uint64{}, map[uint64]uint64{}
	}
	spot := p.room()
	*p.pages.edit(spot) = e
	p.byRequest[e.request] = p.next
	if e.token != 0 {
		p.byToken[e.token] = p.next
	}
	p.next++
}

// room is where the next one goes; what lay there is forgotten.
func (p *past) room() int {
	if p.next < pastSize {
		return p.pages.grow()
	}
	spot := int(p.next % pastSize)
	old := p.pages.at(spot)
	delete(p.byRequest, old.request)
	delete(p.byToken, old.token)
	return spot
}

// each visits the attempts, the oldest first, in a pinned copy of the ring.
func each(ring pages[ended], next uint64, visit func(*ended) error) error {
	for n := next - uint64(ring.n); n != next; n++ {
		if err := visit(ring.at(int(n % pastSize))); err != nil {
			return err
		}
	}
	return nil
}
