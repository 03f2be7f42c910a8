// Package audit answers the auditor: is every offset that raw took accounted for in every sink, and does raw have what the source
// had? Facts go in, a report comes out, by a pure function (Judge); gathering the facts is a shell around the stores (Auditor).
//
// What is checked, for each partition up to raw's head when the audit began:
//
//   - raw's chain is contiguous from its genesis on, and what it holds can be read;
//   - every sink is a subset of raw;
//   - every offset of raw is in the sink's coverage, or named by the trail, or pending: younger than the sink's deadline;
//   - of a record that was dropped as a duplicate, the one that stands for it was not rejected by that sink, or one of them is there.
//
// A recorded gap is a loss. Coverage is the sink's own, never what this program wrote down elsewhere; where the sink is away, the
// copies beside raw stand in, and the report says so.
package audit

import (
	"math"
	"time"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Facts are all that is known of one stream.
type Facts struct {
	Stream     string
	File       string // the configuration, for commands that the report names; empty: FILE
	At         time.Time
	Broker     string // why the source could not be asked; empty where it answered
	Trail      string // why the trail could not be read; empty where it could
	Notes      string // why the notes of dropped duplicates could not be read; empty where they could
	Sinks      []SinkFacts
	Partitions []PartitionFacts
	Damage     []string // of what belongs to no partition
}

// SinkFacts are what is known of a sink as a whole.
type SinkFacts struct {
	Name   string
	Away   string // why the sink does not answer: its coverage is that of the copies then
	Fresh  string // what it lacks because it has never written anything: it covers nothing
	Refuse string // the sink answers, and cannot be used: a table is missing, access is denied
	Files  bool   // what it has is closed: nothing can be added to a span that it covers
	Copies string // why the copies beside raw cannot be read; they can only lag, so that this is no fault of the data
}

// PartitionFacts are what is known of one partition.
type PartitionFacts struct {
	Partition record.Partition
	Log       *checkpoint.Span   // what the source has now; nil where that is not known
	Chain     *Chain             // nil where raw has none
	Dropped   int64              // records that were dropped as duplicates, by the notes
	Orphans   checkpoint.SpanSet // of them, those for whom nobody in raw stands; looked for where all of raw is read
	Sinks     []Holding          // in the order of Facts.Sinks
}

// Chain is raw's chain of a partition.
type Chain struct {
	Genesis int64
	Next    int64 // its head when the audit began: the audit goes up to here
	End     int64 // its head after the sinks were asked: no sink can be ahead of it
	Commits int64
	Records int64
	Gaps    []Gap
	Damage  []string // what cannot be read, with its place
}

// Gap is a range that raw recorded as lost.
type Gap struct {
	checkpoint.Span
	Reason string `json:"reason"`
}

// Holding is what one sink has of a partition.
type Holding struct {
	Coverage checkpoint.SpanSet // the sink's own; where it is away, the copies'
	Copies   checkpoint.SpanSet // what the copies beside raw say
	Trail    map[string]checkpoint.SpanSet
	Twins    checkpoint.SpanSet // records that were dropped for one that the sink has rejected, and of which it has neither
	Young    int64              // offsets from here on were stored within the sink's deadline; Never where none were
	Rows     []Rows             // the spans that were counted; nil where rows were not asked for
	Uncount  string             // why rows could not be counted
}

// Never is a Young behind every offset.
const Never = math.MaxInt64

// Rows compares the rows of a span with what raw has in it.
type Rows struct {
	checkpoint.Span
	Records  int64 `json:"records"`  // in raw, within the sink's coverage
	Rejected int64 `json:"rejected"` // of them, named by the trail
	Dropped  int64 `json:"dropped"`  // of the others, named as duplicates by the notes
	Rows     int64 `json:"rows"`     // in the sink
}

// missing is how many rows the sink should have and has not. A record that the trail names may have landed all the same, when a
// later attempt was accepted, and one that was noted as a duplicate, when its batch passed whole.
func (r Rows) missing() int64 { return max(0, r.needed()-r.Rows) }

// needed is how many rows the sink must have at least.
func (r Rows) needed() int64 { return r.Records - r.Rejected - r.Dropped }

// extra is how many rows the sink has more than raw has records.
func (r Rows) extra() int64 { return max(0, r.Rows-r.Records) }
