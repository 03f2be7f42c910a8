package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// book is where servers are.
type book struct {
	mu sync.Mutex
	at map[string]string
}

func (b *book) set(id, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at[id] = address
}

func (b *book) find(id string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.at[id]; a != "" {
		return a, nil
	}
	return "", errors.New("not in the book")
}

func lookingIn(b *book) func(*Options) { return func(o *Options) { o.Addresses = b.find } }

func nodes() *book {
	return &book{at: map[string]string{"n1~1": "n1:7481", "n2~1": "n2:7481", "n2~2": "n2:7481", "n3~1": "n3:7481"}}
}

func TestRaftStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b := nodes()
		s1, s2 := r.start("n1", lookingIn(b)).Stream(), r.start("n2", lookingIn(b)).Stream()
		if s1.Addr().String() != "n1~1" {
			t.Error("its address is ", s1.Addr())
		}
		near, err := s1.Dial("n2~1", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		far, err := s2.Accept()
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("a lot ", 100000)
		go func() { _, _ = io.WriteString(near, text); near.Close() }()
		time.Sleep(time.Hour) // no deadline of the handshake is left
		if got, err := io.ReadAll(far); err != nil || string(got) != text {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		far.Close()

		f := func(to raft.ServerAddress, want string) {
			t.Helper()
			start := time.Now()
			_, err := s1.Dial(to, 10*time.Second)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), string(to)) || time.Since(start) > dialFor {
				t.Errorf("dialing %s: %v after %v, want %q", to, err, time.Since(start), want)
			}
		}
		f("n9~1", "not in the book")
		f("n3~1", "n3:7481 does not answer")
		f("n2~2", "n2:7481 is n2~1, not n2~2")
		was[ErrWrongServer](r, "n1")
		was[ErrWrongServer](r, "n2")
		if err := s2.Close(); err != nil {
			t.Error(err)
		}
		f("n2~1", "no Raft")
	})
}

func TestRaftOfAnotherFoundingIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b := nodes()
		s1 := r.start("n1", lookingIn(b), founded(Founding{1})).Stream()
		r.start("n2", lookingIn(b), founded(Founding{2})).Stream()
		_, err := s1.Dial("n2~1", time.Second)
		var foundings ErrFoundings
		if !errors.As(err, &foundings) || foundings.Theirs != (Founding{2}) {
			t.Error(err)
		}
		was[ErrFoundings](r, "n1")
		was[ErrFoundings](r, "n2")
	})
}

// Closing the layer frees whoever reads from or writes to a peer, or waits for one; the port goes on, and a new layer takes over.
func TestClosingTheLayerEndsItsConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b := nodes()
		p1 := r.start("n1", lookingIn(b))
		p2 := r.start("n2", lookingIn(b))
		s1, s2 := p1.Stream(), p2.Stream()
		near, err := s1.Dial("n2~1", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		far, err := s2.Accept()
		if err != nil {
			t.Fatal(err)
		}
		r.net.CutBoth("n1", "n2")
		ended := make(chan error)
		go func() { _, err := io.Copy(near, zeros{}); ended <- err }()
		go func() { _, err := far.Read(make([]byte, 1)); ended <- err }()
		go func() { _, err := s1.Accept(); ended <- err }()
		time.Sleep(time.Second)
		start := time.Now()
		s1.Close()
		s2.Close()
		for range 3 {
			if err := <-ended; err == nil {
				t.Error("ended without an error")
			}
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("closed in %v", d)
		}
		r.net.Heal("n1", "n2")
		s1, s2 = p1.Stream(), p2.Stream()
		if _, err := s1.Dial("n2~1", time.Second); err != nil {
			t.Error(err)
		}
		if _, err := s2.Accept(); err != nil {
			t.Error(err)
		}
		r.call("n1", "n2", "echo", "x", "x")
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// server is one Raft server over a port. Its disk outlives it.
type server struct {
	id    string
	disk  *raft.InmemStore
	snaps raft.SnapshotStore
	raft  *raft.Raft
	trans *raft.NetworkTransport
}

func (s *server) start(t *testing.T, layer raft.StreamLayer) {
	t.Helper()
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(s.id)
	c.HeartbeatTimeout, c.ElectionTimeout = time.Second, time.Second
	c.Logger = hclog.NewNullLogger()
	s.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: layer, MaxPool: 3, Timeout: 5 * time.Second, Logger: c.Logger})
	r, err := raft.NewRaft(c, &raft.MockFSM{}, s.disk, s.disk, s.snaps, s.trans)
	if err != nil {
		t.Fatal(err)
	}
	s.raft = r
}

func (s *server) stop(t *testing.T) {
	t.Helper()
	s.trans.Close()
	if err := s.raft.Shutdown().Error(); err != nil {
		t.Error(err)
	}
}

// leader waits until one of the servers leads and has committed something.
func leader(t *testing.T, servers []*server, within time.Duration) {
	t.Helper()
	for start := time.Now(); time.Since(start) < within; time.Sleep(100 * time.Millisecond) {
		for _, s := range servers {
			if s.raft.State() == raft.Leader && s.raft.Apply([]byte("x"), time.Second).Error() == nil {
				return
			}
		}
	}
	t.Fatalf("no leader within %v", within)
}

// All nodes are stopped and started at other addresses. Raft's own addresses are server ids, and each dial asks where the server is now;
// with addresses in the configuration they would look for each other where they were, for ever.
func TestTrap08CaseK10AllNodesComeBackAtOtherAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b := &book{at: map[string]string{}}
		var servers []*server
		var conf raft.Configuration
		for i := range 3 {
			s := &server{id: fmt.Sprintf("n%d~1", i+1), disk: raft.NewInmemStore(), snaps: raft.NewInmemSnapshotStore()}
			servers = append(servers, s)
			conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(s.id), Address: raft.ServerAddress(s.id)})
		}
		run := func(port string) {
			for _, s := range servers {
				node, _, _ := strings.Cut(s.id, "~")
				address := net.JoinHostPort(node, port)
				p := r.start(node, lookingIn(b), func(o *Options) { o.Listen = address })
				b.set(s.id, address)
				s.start(t, p.Stream())
			}
		}
		run("7481")
		if err := servers[0].raft.BootstrapCluster(conf).Error(); err != nil {
			t.Fatal(err)
		}
		leader(t, servers, 10*time.Second)
		for _, s := range servers {
			s.stop(t)
			node, _, _ := strings.Cut(s.id, "~")
			r.stop(node)
			r.net.Host(node).Move()
		}
		run("9999")
		leader(t, servers, 10*time.Second)
		time.Sleep(time.Minute)
		leader(t, servers, time.Second)
		for _, s := range servers {
			s.stop(t)
		}
		synctest.Wait()
	})
}
