package config

import (
	"time"

	"github.com/stream-arrow/twgd/unit"
)

// Parts is the table of what a stream can be made of. The program binds it to the rooms that implement the kinds; this room
// knows none of them.
type Parts struct {
	Sources  []SourceKind
	Sinks    []SinkKind
	Location func(url string) error // what the store says of a location, beyond its shape; nil asks nobody
	// Recipient says what is wrong with a recipient of encrypted backups; nil asks nobody.
	Recipient func(text string) error
	AllowMem  bool // mem: locations are accepted: for tests, since they forget everything with the process
}

// SourceKind is one kind of source, under the key Name.
type SourceKind struct {
	Name string
	Doc  string
	New  func() SourceOptions // a pointer to a zero option struct
}

// SinkKind is one kind of sink, under the key Name.
type SinkKind struct {
	Name string
	Doc  string
	New  func() SinkOptions // a pointer to a zero option struct
}

// Report notes a mistake. key is the path below the options, as in brokers[0]; found is the value as it was written, or empty
// where there is none to show; problem says what is wrong with it and what would be right, and repeats no value. It is an alias,
// so that option structs need not import this room.
type Report = func(key, found, problem string)

// SourceOptions is what a source's option struct does besides holding options.
type SourceOptions interface {
	// Check reports mistakes that a single key does not show. Keys that are wrong by themselves hold their defaults.
	Check(Report)

	// Reads says what is consumed, for finding two streams that would take each other's records. Two lists of servers with one in
	// common are the same place; group is empty where nothing is shared; pattern is a regular expression that is searched for
	// anywhere in a topic's name.
	Reads() (servers []string, group string, topics []string, pattern string)
}

// SinkOptions is what a sink's option struct does besides holding options.
type SinkOptions interface {
	// Check reports mistakes that a single key does not show. Keys that are wrong by themselves hold their defaults.
	Check(Report)

	// Target names what the sink alone writes for that stream, without secrets: two sinks with one target are refused. A location
	// is returned as it is.
	Target(stream string) string

	// Apart reports whether each node would write to a place of its own machine: then the nodes of a cluster cannot fill it together.
	Apart() bool

	// RollAge is the age at which the sink closes a file, 0 where it has none that wait.
	RollAge() time.Duration
}

// Choice is one of several kinds: Kind is its key, Options a pointer to the kind's option struct.
type Choice[T any] struct {
	Kind    string
	Options T
}

// place is a target in the form in which two can be compared.
func place(target string) string {
	if l, err := unit.ParseLocation(target); err == nil {
		return l.Place()
	}
	return target
}
