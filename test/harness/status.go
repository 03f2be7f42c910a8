package harness

import "encoding/json"

// Status is /status as the contract draws it. What is null is nil.
type Status struct {
	Version string
	Streams []StreamStatus
}

// StreamStatus is one stream.
type StreamStatus struct {
	Name, State string
	Partitions  []PartitionStatus
	Sinks       []SinkStatus
	Quarantine  struct{ Records, Shed *int64 }
	Drops       map[string]int64
}

// PartitionStatus is one partition that the node reads.
type PartitionStatus struct {
	Topic     string
	Partition int32
	Position  *int64
	Committed *int64
	RawNext   *int64 `json:"raw_next"`
	End       *int64
	Lag       *int64
	Held      string // why it is not read
}

// SinkStatus is one sink.
type SinkStatus struct {
	Name, State    string
	Covered        *int64
	GapRecords     *int64   `json:"gap_records"`
	BacklogWindows *int64   `json:"backlog_windows"`
	LastError      string   `json:"last_error"`
	Backoff        *float64 `json:"backoff_s"`
}

// Covers reports whether the sink covers n offsets, as far as is known.
func (k SinkStatus) Covers(n int64) bool { return k.Covered != nil && *k.Covered == n }

func (s Status) String() string {
	b, err := json.Marshal(s.Streams)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Raw sums raw_next over the partitions.
func (s StreamStatus) Raw() (sum int64) {
	for _, p := range s.Partitions {
		sum += value(p.RawNext)
	}
	return sum
}

// Committed sums what the source was told.
func (s StreamStatus) Committed() (sum int64) {
	for _, p := range s.Partitions {
		sum += value(p.Committed)
	}
	return sum
}

// Lag sums the lag; ok is false where one is not known.
func (s StreamStatus) Lag() (sum int64, ok bool) {
	for _, p := range s.Partitions {
		if p.Lag == nil {
			return 0, false
		}
		sum += *p.Lag
	}
	return sum, len(s.Partitions) > 0
}

// Sink is the sink of that name, or an empty one.
func (s StreamStatus) Sink(name string) SinkStatus {
	for _, k := range s.Sinks {
		if k.Name == name {
			return k
		}
	}
	return SinkStatus{}
}

// Complete reports whether raw has n offsets, the source knows it, and every sink covers them.
func (s StreamStatus) Complete(n int64) bool {
	for _, k := range s.Sinks {
		if !k.Covers(n) || k.GapRecords == nil || *k.GapRecords != 0 {
			return false
		}
	}
	return s.Raw() == n && s.Committed() == n
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
