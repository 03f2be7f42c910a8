// Package cluster is one node among others: it founds or joins a cluster, holds a seat where it is given one, keeps the seats in order
// while it leads, and goes without leaving a hole.
//
// A Node joins the rooms below: [roster] decides, [quorum] is Raft, [wire] and [gossip] are how nodes hear of each other, [backup] is
// what outlives all disks. What decides anything is there or in a plain function here; Node waits, asks, and does what was decided.
//
// # Life of a node
//
// Run has three phases. Until the node has a part (phase begin) it asks its peers who they are and lets roster.Begin say what follows.
// While it has one (phase serve) it checks in with the leader each second and at each change; if it leads, a role of its own (lead) looks
// at the seats and changes them one step at a time. When its context ends (phase depart) it announces that it goes, serves on until the
// leader grants it, and only then puts Raft down; leases can still be asked for over the network until the work is drained.
//
// # Time
//
// Nothing here reads a wall clock to decide. Differences of two time.Now of one process are monotonic; times that nodes share are cluster
// time, which package fsm keeps.
package cluster
