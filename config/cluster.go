package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stream-arrow/twgd/unit"
)

// Cluster is what the nodes of a cluster share, and how this one takes part.
type Cluster struct {
	Name           string        `yaml:"name" pattern:"^([a-z0-9_-]{1,100})?$" form:"up to 100 of a-z, 0-9, _ and -" default:"" example:"prod" doc:"The cluster's name, in handshakes and as the folder of its backups. Required where size is above 0."`
	Size           int           `yaml:"size" default:"0" form:"0, 1, 3, 5 or 7" doc:"How many nodes hold a vote: 0 is a node for itself, 3 the smallest number that survives the loss of one. Even numbers are refused."`
	Listen         unit.Address  `yaml:"listen" default:"0.0.0.0:7481" doc:"Address for the other nodes, with mutual TLS."`
	Gossip         unit.Address  `yaml:"gossip" default:"0.0.0.0:7482" doc:"Address for finding out who is alive, TCP and UDP."`
	Advertise      string        `yaml:"advertise" default:"" auto:"the first private address" pattern:"^(\\[[0-9a-fA-F:.]+\\](:[0-9]{1,5})?|[0-9a-fA-F:.]+|[A-Za-z0-9._-]+(:[0-9]{1,5})?)?$" form:"a host, or host:port" example:"#node-1.example.com" doc:"Where other nodes reach this one."`
	Join           []string      `yaml:"join" pattern:"^(\\[[0-9a-fA-F:.]+\\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$" form:"host:port, or a host, which then has the port of listen" doc:"Nodes to begin with; a DNS name may stand for several. Without any, a node that has stored nothing founds the cluster."`
	FoundAfter     unit.Duration `yaml:"found_after" default:"15s" min:"1s" max:"1h" doc:"How long no node with state may have answered at the join addresses before ordinal 0 founds the cluster."`
	Secret         Secret        `yaml:"secret" secret:"true" default:"" example:"#${file:/etc/twgd/secret}" doc:"The one secret that all nodes share; whoever has it is a node. Take 32 random bytes. Required where there are other nodes."`
	PreviousSecret Secret        `yaml:"previous_secret" secret:"true" default:"" doc:"The secret before, still believed while the nodes are given the new one."`
	VoterBudget    float64       `yaml:"voter_budget" default:"0.5" min:"0.05" max:"1" doc:"The share of its byte budgets and batches that a node uses while it holds a vote."`
	Settle         unit.Duration `yaml:"settle" default:"15m" min:"10s" max:"7d" doc:"How long a node may be gone before another gets its vote."`
	Backup         Backup        `yaml:"backup" doc:"Backups of what the cluster has replicated: leases, settings, who belongs to it. Never records."`
}

// Backup says where the replicated state is kept outside of the cluster.
type Backup struct {
	To           unit.Location `yaml:"to" default:"" example:"#s3://bucket/twgd" doc:"A directory that all nodes see, or a bucket, as in raw.to. Without it there are no backups."`
	Every        unit.Duration `yaml:"every" default:"5m" min:"10s" max:"30d" doc:"The interval; a backup is skipped when nothing has changed."`
	Keep         int           `yaml:"keep" default:"24" min:"1" max:"100000" doc:"How many stay, the newest."`
	EncryptTo    []string      `yaml:"encrypt_to" form:"an age recipient, age1…" doc:"Who can read the backups; without recipients they lie in clear."`
	IdentityFile string        `yaml:"identity_file" default:"" doc:"A file with age identities, to read encrypted backups for a restore."`
	Restore      string        `yaml:"restore" auto:"auto, but never where backups are encrypted and there is no identity_file" enum:"auto|never" example:"#auto" doc:"Whether a cluster that has lost all its disks is restored without being asked."`
}

// Sizes are what cluster.size may be.
var sizes = []int{0, 1, 3, 5, 7}

// Peers reports whether there are, or may be, other nodes.
func (c Cluster) Peers() bool { return len(c.Join) > 0 || c.Size > 1 }

// Secret is a text that prints as hidden.
type Secret string

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText implements encoding.TextMarshaler, for JSON and logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Ordinal is a node's number among its kind: the lowest come first where votes are given. The zero value is "auto".
type Ordinal struct{ plusOne int }

// Of returns the number, or -1 where there is none. Under auto it is what the node's id ends with, which is the host name by default.
func (o Ordinal) Of(id string) int {
	if o.plusOne > 0 {
		return o.plusOne - 1
	}
	host, _, _ := strings.Cut(id, ".")
	digits := host[len(strings.TrimRight(host, "0123456789")):]
	if n, err := strconv.Atoi(digits); err == nil && n <= mostOrdinal {
		return n
	}
	return -1
}

const mostOrdinal = math.MaxInt32 - 1

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Ordinal) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*o = Ordinal{}
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil || n > mostOrdinal {
		return errors.New("this is neither auto nor a number from 0")
	}
	*o = Ordinal{int(n) + 1}
	return nil
}

func (o Ordinal) String() string {
	if o.plusOne == 0 {
		return "auto"
	}
	return fmt.Sprint(o.plusOne - 1)
}

// Form and Pattern are for the schema.
func (Ordinal) Form() string { return "auto, or a number from 0" }

// Pattern is of the text.
func (Ordinal) Pattern() string { return "^(auto|[0-9]{1,10})$" }

// Numbers says that a plain whole number is taken, too.
func (Ordinal) Numbers() bool { return true }
