package lease

// pastSize is how many attempts of either kind are known after they have ended.
const pastSize = 1 << 14

// ended is an attempt that is over.
type ended struct {
	request Request
	token   uint64 // 0: it never held
	done    bool   // it ended because its work was done
}

// past keeps the latest attempts that have ended: those that held, and apart from them, since they may be many more, those that never
// did.
type past struct {
	held, refused ring
}

func (p *past) knows(r Request) bool { return p.held.knows(r) || p.refused.knows(r) }

// ended says how the lease under a token ended.
func (p *past) ended(token uint64) (done, known bool) { return p.held.ended(token) }

// note keeps an attempt that has ended. One that is known already stays as it is.
func (p *past) note(e ended) {
	switch {
	case p.knows(e.request):
	case e.token == 0:
		p.refused.add(e)
	default:
		p.held.add(e)
	}
}

// ring keeps the latest of what is added to it, the oldest going first.
type ring struct {
	pages     pages[ended] // number n lies at n modulo pastSize
	next      uint64       // the number of the next
	byRequest map[Request]uint64
	byToken   map[uint64]uint64
}

func (r *ring) knows(q Request) bool {
	_, known := r.byRequest[q]
	return known
}

func (r *ring) ended(token uint64) (done, known bool) {
	n, known := r.byToken[token]
	return known && r.pages.at(int(n%pastSize)).done, known
}

func (r *ring) add(e ended) {
	if r.byRequest == nil {
		r.byRequest, r.byToken = map[Request]uint64{}, map[uint64]uint64{}
	}
	*r.pages.edit(r.room()) = e
	r.byRequest[e.request] = r.next
	if e.token != 0 {
		r.byToken[e.token] = r.next
	}
	r.next++
}

// room is where the next one goes; what lay there is forgotten.
func (r *ring) room() int {
	if r.next < pastSize {
		return r.pages.grow()
	}
	spot := int(r.next % pastSize)
	old := r.pages.at(spot)
	delete(r.byRequest, old.request)
	delete(r.byToken, old.token)
	return spot
}

// pin is the ring as it is now, for each alone.
func (r *ring) pin() ring { return ring{pages: r.pages.pin(), next: r.next} }

// each visits the attempts, the oldest first.
func (r *ring) each(visit func(*ended) error) error {
	for n := r.next - uint64(r.pages.n); n != r.next; n++ {
		if err := visit(r.pages.at(int(n % pastSize))); err != nil {
			return err
		}
	}
	return nil
}
