package cluster

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stream-arrow/twgd/roster"
	"github.com/stream-arrow/twgd/tuning"
)

// readyWithin is how long a node with state waits for its first answer before it calls itself ready without one.
const readyWithin = 10 * time.Second

// Role says whether this node holds a seat.
func (n *Node) Role() (voter bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.answer != nil && n.mu.answer.Role == roster.Voter
}

// Roles are what this node does: worker, recovery, voter, standby.
func (n *Node) Roles() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	role := roster.None
	if n.mu.answer != nil {
		role = n.mu.answer.Role
	}
	return rolesOf(n.o.Mode, role)
}

// Ready says why this node is not ready, as far as the cluster is the reason. Nothing of ingest waits for a quorum; but a node with state waits
// for the answer to its first check-in, or ten seconds: else a rolling restart outruns the roster.
func (n *Node) Ready() (reasons []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.diskFull || n.mu.replica != nil && n.mu.replica.q.State().DiskFull {
		reasons = append(reasons, "disk_full: the data directory has no room for the log")
	}
	switch {
	case n.mu.departure.intent == roster.Leaving:
		reasons = append(reasons, "this node is leaving the cluster for good")
	case n.mu.renewed && !n.mu.rejoined:
		reasons = append(reasons, "this node was removed and has not joined again")
	case !n.mu.firstWords && n.mu.stateAtStart && time.Since(n.started) < readyWithin:
		reasons = append(reasons, "no leader has answered the first check-in yet")
	}
	return reasons
}

// Subscribe tells f at once, and at each change, whether this node holds a seat, and the share of its byte budget that it is to keep. It is
// called from one goroutine at a time and returns soon.
func (n *Node) Subscribe(f func(voter bool, budget float64)) {
	n.mu.Lock()
	n.mu.subs = append(n.mu.subs, f)
	t := n.mu.told
	n.mu.Unlock()
	f(t.voter, t.budget)
}

// tell tells the subscribers of a change.
func (n *Node) tell() {
	now := told{voter: n.Role(), budget: 1}
	if now.voter {
		now.budget = n.o.VoterBudget
		if f, err := strconv.ParseFloat(n.Settings()[tuning.VoterBudget], 64); err == nil {
			now.budget = f
		}
	}
	n.mu.Lock()
	changed := n.mu.told != now
	n.mu.told = now
	subs := slices.Clone(n.mu.subs)
	n.mu.Unlock()
	for _, f := range subs {
		if changed {
			f(now.voter, now.budget)
		}
	}
}

// Status is what this node knows of the cluster now.
func (n *Node) Status() Status {
	v := n.view()
	n.mu.Lock()
	a, m, fresh := n.mu.answer, n.mu.move, n.mu.answer != nil && time.Since(n.mu.answered) <= answerFor
	r := n.mu.replica
	n.mu.Unlock()
	s := Status{Name: n.o.Cluster, Size: n.o.Size, Incarnation: v.Facts.Incarnation, Founding: hexOf(v.Facts.Founding), ID: v.Me,
		Members: n.Members(), Alarms: n.alarms.texts(), Settings: n.Settings(), Backup: n.shelf.status(), Dedup: n.claimsHeld()}
	if size, err := strconv.Atoi(s.Settings[tuning.Size]); err == nil {
		s.Size = size
	}
	if r != nil {
		r.status(&s)
	}
	if fresh {
		s.fromAnswer(a)
	} else {
		s.Members = n.unheard(s.Members)
	}
	s.State = stateOf(v, m, &s, fresh)
	if m.Kind != roster.Serve {
		s.Waiting = m.Text
	}
	if s.State == "no_quorum" {
		s.Mend = mend(v, n.asker.all())
	}
	return s
}

func (r *replica) status(s *Status) {
	st := r.q.State()
	s.Term, s.DiskFull = st.Term, st.DiskFull
	index, sum := r.f.Sum()
	s.Sum = &SumStatus{Index: index, Sum: hex.EncodeToString(sum[:])}
	if st.LeaderID != "" {
		s.Leader = roster.NameOf(st.LeaderID)
	}
	seats := 0
	for _, x := range st.Servers {
		if x.Voter {
			seats++
		}
	}
	s.Seats = &seats
}

func (s *Status) fromAnswer(a *answer) {
	s.Leader, s.Term = roster.NameOf(a.Leader.ID), max(s.Term, a.Term)
	seats, tolerance, leases := a.Seats, a.Tolerance, a.Leases
	s.Seats, s.Tolerance, s.Leases = &seats, &tolerance, &leases
	if a.Backup != nil && s.Backup != nil {
		s.Backup = a.Backup // the leader makes them
	}
	for _, t := range a.Alarms {
		if !slices.Contains(s.Alarms, t) {
			s.Alarms = append(s.Alarms, t)
		}
	}
}

// unheard are the members that a leader told of some time ago, with those marked as failed that do not answer this node now.
func (n *Node) unheard(members []MemberStatus) []MemberStatus {
	me, all := n.id(), n.asker.all()
	out := slices.Clone(members)
	for i := range out {
		m := &out[i]
		answers := func(h heard) bool { return h.answered() && h.hello.ID == m.ServerID }
		if m.ServerID != me && m.State == "active" && !slices.ContainsFunc(all, answers) {
			m.State = "failed"
		}
	}
	return out
}

// stateOf is the one word for how the cluster is, as this node sees it.
func stateOf(v roster.StartView, m roster.Move, s *Status, fresh bool) string {
	switch {
	case m.Kind == roster.Restore || m.Kind == roster.Claim && m.Incarnation > 1:
		return "restoring"
	case m.Kind == roster.Claim || m.Kind == roster.Bootstrap:
		return "founding"
	case fresh && s.Tolerance != nil && *s.Tolerance < (s.Size-1)/2:
		return "degraded"
	case fresh:
		return "ok"
	case s.Leader != "": // Raft follows it, and it has not said yet how many seats it hears
		return "degraded"
	case !v.State && m.Kind != roster.Join:
		return "founding"
	}
	return "no_quorum"
}

// warnOfFile says that this node's file wants another size than the cluster has.
func (n *Node) warnOfFile(settings map[string]string) {
	size, err := strconv.Atoi(settings[tuning.Size])
	if err != nil || size == n.o.Size {
		n.alarms.clear("size")
		return
	}
	n.alarms.raise("size", fmt.Sprintf("the cluster has cluster.size %d and this node's file says %d: the cluster's holds; twgd tune cluster.size=%d changes it", size, n.o.Size, n.o.Size))
}
