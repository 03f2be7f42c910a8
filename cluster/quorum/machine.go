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
	var out []any
	for rest := logs; len(rest) > 0; {
		n := fitting(rest, applyMost)
		out = append(out, m.FSM.ApplyBatch(rest[:n])...)
		rest = rest[n:]
	}
	for _, e := range logs {
		if e.Type == raft.LogConfiguration {
			m.ring()
		}
	}
	m.poke()
	return out
}

// applyMost is how many bytes of entries the tables are given at once: whoever reads them waits meanwhile. It is a few milliseconds' worth.
const applyMost = 1 << 20

// fitting is how many of the first entries have at most so many bytes together; at least one.
func fitting(logs []*raft.Log, most int64) (n int) {
	for sum := int64(0); n < len(logs); n++ {
		if sum += size(logs[n]); sum > most && n > 0 {
			break
		}
	}
	return n
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
