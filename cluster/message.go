package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stream-arrow/twgd/cluster/wire"
	"github.com/stream-arrow/twgd/roster"
)

// The methods that a node answers on its port. Bodies are JSON, unknown fields are ignored, so that versions can stand side by side; only
// propose and query carry the tables' own binary commands: one byte of route, then the command, and their answers are the tables' replies.
const (
	methodHello   = "hello"   // hello → hello: who are you? answered by everybody, also to another founding of the cluster
	methodCheckIn = "checkin" // checkIn → answer: I am here; what is my part? answered by the leader, others name it
	methodPropose = "propose" // route, command → reply. Leader only
	methodQuery   = "query"   // route, question → reply. Leader only
	methodLeave   = "leave"   // leaveCall → nothing: a node that is dead leaves for good. Leader only
	methodTune    = "tune"    // tuneCall → nothing. Leader only
	methodMembers = "members" // nothing → []MemberStatus. Leader only
	methodKey     = "key"     // nothing → 32 bytes: the key of content hashes. Leader only
	methodBackup  = "backup"  // nothing → backup.Info. Leader only
)

// Codes of errors that cross the port.
const (
	codeNotLeader = "not_leader" // text: a leaderAt as JSON
	codeUnknown   = "unknown"    // the outcome is unknown: ask again, commands are idempotent
	codeRefused   = "refused"    // the text says why; asking again does not help
	codeUnsafe    = "unsafe"     // refused, and the text names what insists
)

// What a node's disk holds, as it says in its hello.
const (
	diskEmpty    = "empty"    // no state
	diskClaiming = "claiming" // no state yet, about to found
	diskState    = "state"
)

// hello is who a node is. Nodes say it to each other without knowing anything of each other before.
type hello struct {
	ID          string   `json:"id"` // name~birth
	Name        string   `json:"name"`
	Ordinal     int      `json:"ordinal"`
	Address     string   `json:"address"`
	Gossip      string   `json:"gossip"`
	Disk        string   `json:"disk"`
	Joining     bool     `json:"joining,omitempty"` // never founds
	Founding    string   `json:"founding,omitempty"`
	Incarnation uint64   `json:"incarnation,omitempty"`
	Confirmed   bool     `json:"confirmed,omitempty"`
	Leader      leaderAt `json:"leader"`
	Leading     bool     `json:"leading,omitempty"`
	LastIndex   uint64   `json:"last_index,omitempty"`
	LastTerm    uint64   `json:"last_term,omitempty"`
	Seats       []string `json:"seats,omitempty"` // voters of the configuration it holds
}

// leaderAt is where the leader is, as far as the speaker knows. Empty: it knows of none.
type leaderAt struct {
	ID      string `json:"id,omitempty"`
	Address string `json:"address,omitempty"`
}

// checkIn is what a node tells the leader each second and at each change.
type checkIn struct {
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	Ordinal     int           `json:"ordinal"`
	Address     string        `json:"address"`
	Mode        string        `json:"mode"`
	Intent      roster.Intent `json:"intent"`
	Nonce       uint64        `json:"nonce"`                // of the process
	LastIndex   uint64        `json:"last_index,omitempty"` // of its log; 0 where Raft does not run
	LastTerm    uint64        `json:"last_term,omitempty"`
	Received    uint64        `json:"received,omitempty"`    // grows while a snapshot comes in
	Incarnation uint64        `json:"incarnation,omitempty"` // that its disk belongs to
	Sums        []mark        `json:"sums,omitempty"`        // now and then, where Raft runs
}

// mark is an fsm.Mark on the port.
type mark struct {
	Index uint64 `json:"index"`
	Sum   []byte `json:"sum"`
}

// answer is what the leader says to a check-in. Who does not lead fills Leader alone. A leader has made sure that it still leads before it says
// anything by which a node could stop.
type answer struct {
	Leader      leaderAt          `json:"leader"`
	Leading     bool              `json:"leading"`
	Term        uint64            `json:"term,omitempty"`
	Role        roster.Role       `json:"role,omitempty"`
	Granted     roster.Mark       `json:"granted,omitzero"`
	Refused     roster.Mark       `json:"refused,omitzero"`
	Tombstone   bool              `json:"tombstone,omitempty"`
	Elsewhere   string            `json:"elsewhere,omitempty"` // your name is in contact there, under another birth
	Stuck       bool              `json:"stuck,omitempty"`     // you were removed: nothing could be sent to your address
	Founding    string            `json:"founding,omitempty"`
	Incarnation uint64            `json:"incarnation,omitempty"`
	Confirmed   bool              `json:"confirmed,omitempty"`
	Members     []MemberStatus    `json:"members,omitempty"`
	Settings    map[string]string `json:"settings,omitempty"`
	Tolerance   int               `json:"tolerance"`
	Seats       int               `json:"seats"`
	Leases      int               `json:"leases"`
	Dedup       []byte            `json:"dedup,omitempty"` // the dedup table's answer to a question
	Alarms      []string          `json:"alarms,omitempty"`
	Backup      *BackupStatus     `json:"backup,omitempty"` // how the leader's last backup went
}

type leaveCall struct {
	Node string `json:"node"`
}

type tuneCall struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// call asks a method at an address, with JSON both ways.
func call[A, Q any](ctx context.Context, n *Node, address, method string, q Q) (A, error) {
	var a A
	if n.port == nil {
		return a, errors.New("this node has no port: its cluster is of one")
	}
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	reply, err := n.port.Call(ctx, address, method, body)
	if err != nil {
		return a, err
	}
	if len(reply) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(reply, &a); err != nil {
		return a, fmt.Errorf("%s of %s: the answer cannot be read: %w", method, address, err)
	}
	return a, nil
}

// answering makes a handler of h, with JSON both ways.
func answering[Q, A any](h func(context.Context, wire.Peer, Q) (A, error)) wire.Handler {
	return func(ctx context.Context, peer wire.Peer, body []byte) ([]byte, error) {
		var q Q
		if len(body) > 0 {
			if err := json.Unmarshal(body, &q); err != nil {
				return nil, &wire.RemoteError{Code: codeRefused, Text: "the question cannot be read: " + err.Error()}
			}
		}
		a, err := h(ctx, peer, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	}
}
