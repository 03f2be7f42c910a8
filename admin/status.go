package admin

import "encoding/json"

// Status is what /status answers. What is not known is null, never 0; pointers are nil then.
type Status struct {
	Version string          `json:"version"`
	Node    Node            `json:"node"`
	Cluster json.RawMessage `json:"cluster"` // nil: null, at size 0
	Streams List[Stream]    `json:"streams"`
}

// Node is this process.
type Node struct {
	ID     string       `json:"id"`
	Mode   string       `json:"mode"`     // ingest, both
	Roles  List[string] `json:"roles"`    // worker, recovery
	Uptime int64        `json:"uptime_s"` // seconds
	Flow   *string      `json:"flow"`     // nil while nothing measures pressure
}

// Stream is one stream as this node sees it.
type Stream struct {
	Name       string           `json:"name"`
	State      string           `json:"state"`            // starting, running, paused, blocked, stopped
	Reason     string           `json:"reason,omitempty"` // why it is not running
	Partitions List[Partition]  `json:"partitions"`
	Sinks      List[Sink]       `json:"sinks"`
	Quarantine Quarantine       `json:"quarantine"`
	Drops      map[string]int64 `json:"drops"`           // records by reason; nil where it is not known
	Dedup      *Dedup           `json:"dedup,omitempty"` // nil where repeated records are not looked for
}

// Dedup is how a stream tells records whose content another record had before. Counts are of records, since this process began.
type Dedup struct {
	Mode        string           `json:"mode"` // measure, drop
	Checked     int64            `json:"checked"`
	Duplicates  int64            `json:"duplicates"`
	Dropped     int64            `json:"dropped"`
	Unavailable map[string]int64 `json:"unavailable"`   // passed though they may be duplicates, by reason
	Unkeyed     map[string]int64 `json:"unkeyed"`       // without content to compare, by reason
	Entries     *int64           `json:"entries"`       // contents remembered, by the whole cluster
	Window      float64          `json:"window_s"`      // seconds, as configured
	Held        *float64         `json:"window_held_s"` // seconds that are remembered for certain: less where max_entries cuts the window short
	Circuit     string           `json:"circuit"`       // closed, probing, open: while it is open nobody is asked, and all passes
	Reason      string           `json:"reason,omitempty"`
}

// Partition is one partition that is read. All numbers but its own are offsets, lag is a count of them.
type Partition struct {
	Topic     string `json:"topic"`
	Number    int32  `json:"partition"`
	Position  *int64 `json:"position"`
	Committed *int64 `json:"committed"`
	RawNext   *int64 `json:"raw_next"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
	Held      string `json:"held,omitempty"` // why it is not read until somebody decides
}

// Sink is one sink of a stream. Covered and GapRecords count offsets over the stream's partitions.
type Sink struct {
	Name           string  `json:"name"`
	State          string  `json:"state"` // live, lagging, retrying, blocked
	Covered        *int64  `json:"covered"`
	GapRecords     *int64  `json:"gap_records"`
	BacklogWindows *int64  `json:"backlog_windows"`
	LastError      string  `json:"last_error"`
	Backoff        float64 `json:"backoff_s"` // seconds until the next attempt; 0 where none waits
}

// Quarantine counts records since the stream's first start.
type Quarantine struct {
	Records *int64 `json:"records"`
	Shed    *int64 `json:"shed"`
}

// List is a slice that is never null in JSON: an empty list is known to be empty.
type List[T any] []T

// MarshalJSON writes nil as [].
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]T(l))
}
