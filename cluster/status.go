package cluster

import "time"

// Status is the "cluster" object of a node's status, as the node sees it. What it does not know is left out or null, never 0.
type Status struct {
	Name        string `json:"name"`
	Founding    string `json:"founding,omitempty"` // hex
	Size        int    `json:"size"`
	State       string `json:"state"`  // ok, degraded, no_quorum, founding, restoring
	Leader      string `json:"leader"` // the node's name; empty while there is none
	Term        uint64 `json:"term"`
	Incarnation uint64 `json:"incarnation"`
	ID          string `json:"server_id,omitempty"` // name~birth of this node

	Members   []MemberStatus `json:"members"`
	Seats     *int           `json:"seats"` // voters in the configuration that this node knows
	Tolerance *int           `json:"failure_tolerance"`
	Leases    *int           `json:"leases"`
	Dedup     *int           `json:"dedup_entries"`

	Waiting  string            `json:"waiting,omitempty"` // what is waited for, and for whom
	Mend     string            `json:"mend,omitempty"`    // with no_quorum: the case, and the command that mends it
	Alarms   []string          `json:"alarms,omitempty"`  // what needs an operator
	Settings map[string]string `json:"settings,omitempty"`
	Sum      *SumStatus        `json:"sum,omitempty"`
	DiskFull bool              `json:"disk_full,omitempty"`
	Backup   *BackupStatus     `json:"backup,omitempty"`
}

// MemberStatus is one node as the cluster knows it.
type MemberStatus struct {
	ID       string   `json:"id"`        // the node's name
	ServerID string   `json:"server_id"` // name~birth
	State    string   `json:"state"`     // active, terminating, left, failed, joining
	Roles    []string `json:"roles"`     // worker, recovery, voter, standby
	Ordinal  *int     `json:"ordinal"`   // null: none
	Address  string   `json:"address"`
}

// SumStatus is the rolling hash of everything this replica has applied: equal on all at one index.
type SumStatus struct {
	Index uint64 `json:"index"`
	Sum   string `json:"sum"` // hex
}

// BackupStatus says how the last backup went.
type BackupStatus struct {
	Last  *time.Time `json:"last"`
	Name  string     `json:"name,omitempty"`
	Error string     `json:"error"`
}

// LeaveOptions say who leaves for good, and how.
type LeaveOptions struct {
	Node string // the name of another node, which is dead. Empty: this one
	Drop bool   // give up this node's founding: its state goes, nobody is asked (two foundings met)
	Wait bool   // return when the tombstone stands, not when the intent is announced
}
