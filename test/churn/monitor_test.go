//go:build linux && e2e

package churn

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/test/fleet"
)

// monitor asks every node that runs, again and again, and holds what they say against each other. Nodes of another founding than the first
// are not listened to: one that founded for itself, since it saw nobody, has to yield, and until then it speaks of another cluster.
type monitor struct {
	fleet    *fleet.Fleet
	founding string
	begin    time.Time
	stop     func()

	mu     sync.Mutex
	ids    map[string]string // server ids by name, as last told
	views  map[string]fleet.View
	record record
	sums   fleet.Sums
	term   uint64 // the greatest of a leader
	err    error
}

func watch(f *fleet.Fleet, founding string) *monitor {
	m := &monitor{fleet: f, founding: founding, begin: time.Now(), ids: map[string]string{}, views: map[string]fleet.View{}, sums: fleet.Sums{}}
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, n := range f.Nodes {
		running.Go(func() {
			for tick := time.NewTicker(250 * time.Millisecond); ; {
				m.look(n)
				select {
				case <-tick.C:
				case <-stop:
					tick.Stop()
					return
				}
			}
		})
	}
	m.stop = sync.OnceFunc(func() { close(stop); running.Wait() })
	f.Cleanup(m.stop)
	return m
}

// look takes in what one node says.
func (m *monitor) look(n *fleet.Node) {
	var v fleet.View
	err := errors.New("it does not run")
	if n.Running() {
		v, err = n.View()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.views, n.Name)
	if err != nil || v.Founding != m.founding {
		return
	}
	m.views[n.Name], m.ids[n.Name] = v, v.ServerID
	if err := m.sums.Note(v.ServerID, v.Sum); err != nil && m.err == nil {
		m.err = err
	}
	if v.Leader == n.Name && v.Term >= m.term {
		m.term = v.Term
		m.record.told(time.Since(m.begin), v.Seats())
	}
}

// leader is the node that says that it leads, in the greatest term, among those that are let.
func (m *monitor) leader(let func(id string) bool) (name string, seats []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, v := range m.views {
		if v.Leader == n && v.Term >= m.term && let(v.ServerID) {
			return n, v.Seats()
		}
	}
	return "", nil
}

// forget is for a node whose disk is emptied.
func (m *monitor) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ids, name)
	delete(m.views, name)
}

// recorded lets do look at the record.
func (m *monitor) recorded(do func(*record)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do(&m.record)
}

// id is the server id of a node; a node that has never told one is nobody's.
func (m *monitor) id(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.ids[name]; ok {
		return id
	}
	return name
}

// fault is what must not be and was seen.
func (m *monitor) fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.err, m.record.found)
}

func (m *monitor) String() (out string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, v := range m.views {
		out += fmt.Sprintf("%s: %v\n", name, v)
	}
	return out
}
