package quorum

import (
	"io"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/fsm"
)

// machine is the tables as raft drives them. It tells when they moved: what expires next may be another thing now, and a configuration
// may have been committed.
type machine struct {
	*fsm.FSM
	ring  func()
	moved chan struct{} // holds a token when something was applied
}

var _ raft.BatchingFSM = (*machine)(nil)

func (m *machine) Apply(e *raft.Log) any { return m.ApplyBatch([]*raft.Log{e})[0] }

func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	out := m.FSM.ApplyBatch(logs)
	for _, e := range logs {
		if e.Type == raft.LogConfiguration {
			m.ring()
		}
	}
	m.poke()
	return out
}

func (m *machine) Restore(r io.ReadCloser) error {
	defer m.poke()
	return m.FSM.Restore(r)
}

func (m *machine) poke() {
	select {
	case m.moved <- struct{}{}:
	default:
	}
}
