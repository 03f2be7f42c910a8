//go:build linux && e2e

package churn

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/test/fleet"
	"github.com/stream-arrow/twgd/test/harness"
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
	views  map[string]view
	looked map[string]time.Time // when nodes were last looked at, whether they answered or not
	record record
	sums   fleet.Sums
	term   uint64 // the greatest of a leader
	err    error
}

// view is what a node said, and when it was asked.
type view struct {
	fleet.View
	at time.Time
}

func watch(f *fleet.Fleet, founding string) *monitor {
	m := &monitor{fleet: f, founding: founding, begin: time.Now(), ids: map[string]string{}, views: map[string]view{}, looked: map[string]time.Time{}, sums: fleet.Sums{}}
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
	v := view{at: time.Now()}
	err := errors.New("it does not run")
	if n.Running() {
		v.View, err = n.View()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looked[n.Name] = v.at
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

// leader is the node that said since a moment that it leads, in the greatest term, among those that are let.
func (m *monitor) leader(since time.Time, let func(id string) bool) (name string, seats []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, v := range m.views {
		if v.Leader == n && v.Term >= m.term && !v.at.Before(since) && let(v.ServerID) {
			return n, v.Seats()
		}
	}
	return "", nil
}

// anybody lets all.
func anybody(string) bool { return true }

// round waits until every node was looked at since a moment.
func (m *monitor) round(since time.Time) {
	m.fleet.Helper()
	harness.Await(m.fleet, "every node to be looked at", 10*time.Second, func() (string, bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, n := range m.fleet.Nodes {
			if m.looked[n.Name].Before(since) {
				return n.Name, false
			}
		}
		return "", true
	})
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
		out += fmt.Sprintf("%s: %v\n", name, v.View)
	}
	return out
}
