package roster

// Decide answers a View with the one step that is due. It is pure: the same view gives the same step.
//
// It reads a table from top to bottom and takes the first rule that has something to say. The order is the design: what is open ends
// before anything begins (0), the leader hands over before it is treated like any other node (1), books are kept (2), an even number
// of seats is finished (3), whoever waits for leave to go is served (4), and only then the seats are made better (5 to 8) and the
// standbys looked after (9). From any view that stays as it is, at most 20 steps lead to rest.
func Decide(v View) Step {
	s := look(v)
	for _, r := range rules {
		if !r.when(s) {
			continue
		}
		if step, due := r.ask(s); due {
			step.Rule = r.no
			return step
		}
	}
	return Step{Kind: Rest, Rule: "-", Why: "every seat is as it should be"}
}

// rule is a row of the table. Where when holds, ask gives a step or passes on.
type rule struct {
	no   string
	when func(*scene) bool
	ask  func(*scene) (Step, bool)
}

var rules = [...]rule{
	{"0", always, (*scene).finishFirst},

	{"1", always, (*scene).handOver},

	{"2a", always, (*scene).clearReturned},
	{"2b", always, (*scene).grantSeatless},
	{"2c", always, (*scene).removeLeaving},

	{"3a", even, (*scene).demoteGone},
	{"3b", even, (*scene).promoteToOdd},
	{"3c", even, (*scene).demoteAway},
	{"3d", even, (*scene).demoteDeparting},
	{"3e", even, (*scene).demoteHighest},

	{"4a", departing, (*scene).grantSeat},
	{"4b", departing, (*scene).endTogether},
	{"4c", departing, (*scene).fetchSuccessor},
	{"4d", departing, (*scene).demoteSettledAway},
	{"4e", departing, (*scene).promoteSuccessor},
	{"4f", departing, (*scene).demoteTerminating},

	{"5", always, (*scene).demoteDead},
	{"6", always, (*scene).shrink},
	{"7", always, (*scene).grow},
	{"8", always, (*scene).putInOrder},
	{"9a", always, (*scene).removeLost},
	{"9b", always, (*scene).keepStandbys},
}

func always(*scene) bool      { return true }
func even(s *scene) bool      { return s.seats%2 == 0 }
func departing(s *scene) bool { return s.any(waitsForLeave) }

// finishFirst: raft answers votes by the configuration it holds, so nothing begins before the last change has arrived where it can.
func (s *scene) finishFirst() (Step, bool) {
	switch n := s.best(func(n *Node) bool { return seat(n) && !away(n) && !n.HasConfig }); {
	case s.me == nil:
		return wait(nil, "the leader does not know itself yet")
	case s.Busy:
		return wait(nil, "a change is under way")
	case n != nil:
		return wait(n, n.Name+" has not heard of the latest configuration yet")
	}
	return pass()
}

// handOver: a leader never demotes itself. Led by another, it is a seat like any other.
func (s *scene) handOver() (Step, bool) {
	to := s.best(func(n *Node) bool { return seat(n) && stays(n) && n.Caught && n != s.me })
	if !departs(s.me) || to == nil {
		return pass()
	}
	return step(HandOver, to, s.me.Name+" is about to go and "+to.Name+" stays and holds the whole log")
}

func (s *scene) clearReturned() (Step, bool) {
	n := s.best(func(n *Node) bool { return n.Returned })
	return step(Clear, n, "%s has come back and says that it stays")
}

func (s *scene) grantSeatless() (Step, bool) {
	n := s.best(func(n *Node) bool { return !seat(n) && n.Going && !n.Granted && n.Contact })
	return step(Grant, n, "%s terminates and holds no seat")
}

// removeLeaving holds also while the node is away: leaving is a promise. First the configuration, then the tombstone: a tombstone
// alone would drop the mark, and a crash between the two would leave a server that nobody removes.
func (s *scene) removeLeaving() (Step, bool) {
	n := s.best(func(n *Node) bool { return !seat(n) && n.Leaving })
	if n != nil && n.Role == None {
		return step(Bury, n, "%s has left and is in no configuration any more")
	}
	return step(Remove, n, "%s leaves and holds no seat")
}

// An even number of seats tolerates no more than one seat less, and is never rested at.

func (s *scene) demoteGone() (Step, bool) {
	return s.demote(s.worst(func(n *Node) bool { return seat(n) && away(n) && (n.Lost || n.Leaving) }),
		"%s is away and will not come back to its seat")
}

func (s *scene) promoteToOdd() (Step, bool) {
	n := s.best(candidate)
	if n == nil || s.seats+1 > s.Size || s.staying+1 < majority(s.seats+1) {
		return pass()
	}
	return step(Promote, n, "%s makes the number of seats odd")
}

func (s *scene) demoteAway() (Step, bool) {
	return s.demote(s.worst(func(n *Node) bool { return seat(n) && away(n) }), "%s is away and the number of seats is even")
}

func (s *scene) demoteDeparting() (Step, bool) {
	n := s.highest(func(n *Node) bool { return seat(n) && departs(n) && n != s.me })
	if n == nil && departs(s.me) {
		return wait(s.me, s.me.Name+" is about to go but leads: leadership must be handed over first")
	}
	return s.demote(n, "%s is about to go and the number of seats is even")
}

func (s *scene) demoteHighest() (Step, bool) {
	return s.demote(s.highest(func(n *Node) bool { return seat(n) && n != s.me }), "%s is the last in order and the number of seats is even")
}

// A seat waits for leave to go, and the number of seats is odd.

// grantSeat lets go those whose seat can wait for them, standby or not: a rolling restart changes no seats.
func (s *scene) grantSeat() (Step, bool) {
	switch n := s.highest(func(n *Node) bool { return waitsForLeave(n) && n != s.me }); {
	case s.staying < majority(s.seats) || s.any(func(n *Node) bool { return waitsForLeave(n) && n.Leaving }):
		return pass()
	case n == nil:
		return wait(s.me, s.me.Name+" is about to go but leads: leadership must be handed over first")
	default:
		return step(Grant, n, "%s may go: the seats that stay are a quorum, and its own waits for it")
	}
}

// endTogether: nobody stays, so nobody begins to shrink. Any majority of the seats brings the cluster back.
func (s *scene) endTogether() (Step, bool) {
	if s.staying > 0 || s.any(candidate) || s.any(s.couldServe) {
		return pass()
	}
	if n := s.best(func(n *Node) bool { return waitsForLeave(n) && n.Leaving }); n != nil {
		return step(Refuse, n, "%s may not leave for good: no other node stays")
	}
	if n := s.highest(func(n *Node) bool { return waitsForLeave(n) && n != s.me }); n != nil {
		return step(Grant, n, "%s may go: all nodes go together")
	}
	return Step{Kind: Stop, Why: "all nodes go together, and " + s.me.Name + " goes last"}, true
}

// fetchSuccessor: no seat stays, but a node does. The last one left must serve.
func (s *scene) fetchSuccessor() (Step, bool) {
	if s.staying > 0 || s.any(candidate) {
		return pass()
	}
	if n := s.best(func(n *Node) bool { return n.Role == Nonvoter && s.couldServe(n) }); n != nil {
		return wait(n, n.Name+" is to go on alone and is still catching up")
	}
	n := s.best(func(n *Node) bool { return n.Role == None && s.couldServe(n) })
	return step(AddNonvoter, n, "%s is the only node that stays")
}

// demoteSettledAway makes room for a replacement, or the quorum smaller. Whoever was granted a moment ago may be on its way back.
func (s *scene) demoteSettledAway() (Step, bool) {
	gone := func(n *Node) bool { return seat(n) && away(n) }
	if n := s.worst(func(n *Node) bool { return gone(n) && !n.JustGranted }); n != nil {
		return s.demote(n, "%s is away and others wait for leave to go")
	}
	n := s.worst(gone)
	if n == nil {
		return pass()
	}
	return wait(n, n.Name+" went a moment ago and may be on its way back")
}

func (s *scene) promoteSuccessor() (Step, bool) {
	return step(Promote, s.best(candidate), "%s takes a seat before one that is about to go is given up")
}

func (s *scene) demoteTerminating() (Step, bool) {
	n := s.highest(func(n *Node) bool { return waitsForLeave(n) && n.Leaving && n != s.me })
	if n == nil {
		n = s.highest(func(n *Node) bool { return waitsForLeave(n) && n != s.me })
	}
	if n == nil {
		return wait(s.me, s.me.Name+" is about to go but leads: leadership must be handed over first")
	}
	return s.demote(n, "%s is about to go and the seats that stay are no quorum")
}

// Nobody waits, and the number of seats is odd.

// demoteDead: a dead seat goes before its replacement comes, else three of four are needed. Two dead of five: three live ones
// tolerate more.
func (s *scene) demoteDead() (Step, bool) {
	dead := func(n *Node) bool { return seat(n) && away(n) && n.Lost }
	if !s.any(steadyCandidate) && (s.seats < 5 || s.count(dead) < 2) {
		return pass()
	}
	return s.demote(s.worst(dead), "%s is lost and can be replaced or spared")
}

func (s *scene) shrink() (Step, bool) {
	if s.seats <= s.Size {
		return pass()
	}
	n := s.worst(func(n *Node) bool { return seat(n) && away(n) })
	if n == nil {
		n = s.highest(func(n *Node) bool { return seat(n) && n != s.me })
	}
	return s.demote(n, "%s gives up its seat: there are more than cluster.size")
}

// grow waits for two: 3b takes the second.
func (s *scene) grow() (Step, bool) {
	if s.seats+2 > s.Size || s.staying < s.seats || s.count(steadyCandidate) < 2 {
		return pass()
	}
	return step(Promote, s.best(steadyCandidate), "%s takes a seat, and another node is ready to follow")
}

// putInOrder moves a seat to a lower ordinal; 3e takes the highest. A sole seat is never swapped: the way leads through two seats.
func (s *scene) putInOrder() (Step, bool) {
	if s.seats < 3 || s.staying < s.seats {
		return pass()
	}
	top := s.highest(seat)
	n := s.best(func(n *Node) bool { return steadyCandidate(n) && n.Seasoned && before(n, top) < 0 })
	switch {
	case n == nil:
		return pass()
	case top == s.me:
		to := s.best(func(n *Node) bool { return seat(n) && n.Caught && n != s.me })
		return step(HandOver, to, "%s leads on, so that "+s.me.Name+" can give its seat to "+n.Name)
	}
	return step(Promote, n, "%s stands before "+top.Name+", which will give up its seat")
}

func (s *scene) removeLost() (Step, bool) {
	n := s.highest(func(n *Node) bool { return n.Role == Nonvoter && away(n) && n.Lost })
	return step(Remove, n, "%s holds no seat and is lost")
}

// keepStandbys keeps two servers more than seats are wanted. One that cannot be sent anything makes room for the next.
// twin: its name is in contact elsewhere, on another disk that holds a part. One of the two is a mistake, and the newer one waits. At one
// address it is one node, on a new disk.
func (s *scene) twin(n *Node) bool {
	return s.any(func(o *Node) bool {
		return o.Name == n.Name && o.ID != n.ID && o.Addr != n.Addr && o.Contact && o.Role != None
	})
}

func (s *scene) keepStandbys() (Step, bool) {
	if n := s.highest(func(n *Node) bool { return n.Role == Nonvoter && n.Stuck }); n != nil {
		return step(Remove, n, "%s does not get on: nothing can be sent to "+n.Addr)
	}
	if s.count(func(n *Node) bool { return n.Role != None }) >= s.Size+2 {
		return pass()
	}
	n := s.best(func(n *Node) bool { return n.Role == None && stays(n) && !n.Stuck && !s.twin(n) })
	return step(AddNonvoter, n, "%s is taken in as a standby")
}
