package quorum

import "github.com/hashicorp/raft"

// State is cheap enough to be called for each check-in and each answer.
func (q *Quorum) State() State {
	last := q.journal.lastEntry()
	config := q.journal.config()
	o := q.office.Load()
	full, failed := q.health.look()
	return State{
		ID:              q.id,
		Role:            q.role(),
		Leader:          q.raft.State() == raft.Leader,
		Ready:           o != nil && q.raft.State() == raft.Leader,
		LeaderID:        string(q.leader()),
		Term:            q.raft.CurrentTerm(),
		LastIndex:       last.index,
		LastTerm:        last.term,
		Applied:         q.raft.AppliedIndex(),
		Servers:         q.servers(),
		ConfigIndex:     config,
		ConfigCommitted: config <= max(q.raft.CommitIndex(), q.journal.boundary().index),
		DiskFull:        full,
		Failed:          failed,
	}
}

// Changed holds a token when something in State may have changed since it was taken last: leadership, readiness, the configuration, the
// disk. Indexes alone do not count. It is for one listener.
func (q *Quorum) Changed() <-chan struct{} { return q.bell.out }

// Follower is what this server last heard of another one; a leader hears each within a fraction of a second.
func (q *Quorum) Follower(id string) Follower { return q.transport.follower(id) }

// servers is the latest configuration, committed or not: an appended configuration is in force.
func (q *Quorum) servers() []Server { return servers(q.raft.GetConfiguration().Configuration()) }

func (q *Quorum) role() Role { return q.roleOf(q.id) }

func (q *Quorum) roleOf(id string) Role {
	for _, s := range q.servers() {
		switch {
		case s.ID != id:
		case s.Voter:
			return Voter
		default:
			return Nonvoter
		}
	}
	return None
}
