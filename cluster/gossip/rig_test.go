package gossip

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/cluster/gossip/gossiptest"
	"github.com/stream-arrow/twgd/cluster/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	oldKey = bytes.Repeat([]byte{1}, 32)
	newKey = bytes.Repeat([]byte{2}, 32)
)

// rig is a network with members, inside a bubble.
type rig struct {
	*testing.T
	net     *wiretest.Network
	members map[string]*member // by host
	ends    []func()           // of those that were killed
}

type member struct {
	*Gossip
	mu   sync.Mutex
	meta Meta
	end  func()
}

func (m *member) set(change func(*Meta)) {
	m.mu.Lock()
	change(&m.meta)
	m.mu.Unlock()
	m.Update()
}

func inBubble(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, net: wiretest.New(), members: map[string]*member{}}
		defer func() {
			for _, m := range r.members {
				m.end()
			}
			for _, end := range r.ends {
				end()
			}
		}()
		f(t, r)
	})
}

// start runs the member of a host; n1 is everybody's seed.
func (r *rig) start(host string, change ...func(*Options)) *member {
	r.Helper()
	transport, err := gossiptest.New(r.net.Host(host), host+":7482")
	if err != nil {
		r.Fatal(err)
	}
	m := &member{meta: Meta{ServerID: host + "~1", Name: host, Ordinal: -1, Address: host + ":7481"}}
	o := Options{
		Name: host + "~1", Bind: "0.0.0.0:7482", Keys: [][]byte{oldKey}, Transport: transport, Lookup: r.net.Lookup,
		Meta:  func() Meta { m.mu.Lock(); defer m.mu.Unlock(); return m.meta },
		Seeds: func() []string { return []string{"n1:7482"} },
	}
	for _, c := range change {
		c(&o)
	}
	if m.Gossip, err = New(o); err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	m.end = func() {
		cancel()
		if err := <-ended; err != nil {
			r.Error(err)
		}
	}
	r.members[host] = m
	return m
}

func (r *rig) stop(host string) {
	r.members[host].end()
	delete(r.members, host)
}

// kill ends a host's process without a word.
func (r *rig) kill(host string) {
	r.net.Host(host).Kill()
	m := r.members[host]
	delete(r.members, host)
	end := m.end
	ended := make(chan struct{})
	go func() { end(); close(ended) }()
	r.ends = append(r.ends, func() { <-ended })
}

// within waits until something holds.
func (r *rig) within(d time.Duration, what string, holds func() bool) time.Duration {
	r.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > d {
			var all []string
			for host, m := range r.members {
				all = append(all, fmt.Sprintf("%s sees %+v", host, m.Members()))
			}
			r.Fatalf("not within %v: %s\n%s", d, what, strings.Join(all, "\n"))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(start)
}

// sees is the names that a member sees alive.
func (m *member) sees() (out []string) {
	for _, o := range m.Members() {
		if o.Alive {
			out = append(out, o.Name)
		}
	}
	return out
}

// together reports whether all members see each other, and nobody else.
func (r *rig) together() bool {
	for host, m := range r.members {
		others := maps.Clone(r.members)
		delete(others, host)
		if !slices.Equal(m.sees(), slices.Sorted(maps.Keys(others))) {
			return false
		}
	}
	return true
}

func (r *rig) find(in, name string) Member {
	for _, m := range r.members[in].Members() {
		if m.Name == name {
			return m
		}
	}
	return Member{}
}
