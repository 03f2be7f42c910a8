//go:build linux

package fleet

import (
	"encoding/json"
	"slices"
)

// View is what a node says of the cluster: the object "cluster" of its status. What is null is nil.
type View struct {
	Name        string
	State       string // ok, degraded, no_quorum, founding, restoring
	Leader      string
	Term        uint64
	Incarnation uint64
	Size        int
	Members     []Member
	Tolerance   *int `json:"failure_tolerance"`
	Leases      *int
	Waiting     string
	Mend        string
	Alarms      []string
	Sum         *Sum
	DiskFull    bool   `json:"disk_full"`
	ServerID    string `json:"server_id"`
	Founding    string
	Backup      *struct {
		Last  string
		Error string
	}
}

// Member is one node as the cluster knows it.
type Member struct {
	ID       string // its name
	ServerID string `json:"server_id"`
	State    string // active, terminating, left, failed, joining
	Roles    []string
	Ordinal  *int
	Address  string
}

// Sum is the hash of all that a replica has applied up to an index.
type Sum struct {
	Index uint64
	Sum   string
}

func (v View) String() string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Voters are the names of those who have a seat, sorted.
func (v View) Voters() (out []string) {
	for _, m := range v.Members {
		if slices.Contains(m.Roles, "voter") {
			out = append(out, m.ID)
		}
	}
	slices.Sort(out)
	return out
}

// Seats are the server ids of those who have a seat, sorted.
func (v View) Seats() (out []string) {
	for _, m := range v.Members {
		if slices.Contains(m.Roles, "voter") {
			out = append(out, m.ServerID)
		}
	}
	slices.Sort(out)
	return out
}

// Member is the one of that name; the zero value where there is none.
func (v View) Member(name string) Member {
	for _, m := range v.Members {
		if m.ID == name {
			return m
		}
	}
	return Member{}
}
