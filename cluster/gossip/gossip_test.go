package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
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

func TestMembersFindEachOtherAndHearOfChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, host := range []string{"n3", "n2", "n1"} { // the seed comes last
			r.start(host)
			time.Sleep(time.Second)
		}
		r.within(20*time.Second, "three members", r.together)
		if got, want := r.find("n3", "n1"), (Member{Meta: r.members["n1"].meta, Alive: true, Gossip: r.members["n1"].Addr()}); got != want {
			t.Errorf("n1 is %+v, want %+v", got, want)
		}
		time.Sleep(time.Minute)
		for _, m := range r.members {
			select {
			case <-m.Changed():
			default:
			}
		}
		r.members["n1"].set(func(m *Meta) { m.Intent, m.Nonce, m.Confirmed, m.Founding = 2, 77, true, [16]byte{9} })
		r.within(2*time.Second, "the change", func() bool {
			return r.find("n3", "n1").Meta == r.members["n1"].meta && r.find("n2", "n1").Meta == r.members["n1"].meta
		})
		<-r.members["n3"].Changed()
	})
}

func TestTheDeadAreNoticedAndGoodbyesAreHeard(t *testing.T) {
	for _, n := range []int{2, 3, 5, 7} {
		inBubble(t, func(t *testing.T, r *rig) {
			for i := range n {
				r.start(fmt.Sprintf("n%d", i+1))
			}
			r.within(20*time.Second, "all members", r.together)
			r.kill("n2")
			took := r.within(8*time.Second, "a death", r.together)
			t.Logf("of %d members one died, noticed by all after %v", n, took)
			if n > 3 {
				r.net.Isolate("n4")
				took := r.within(8*time.Second, "a silence", func() bool {
					return !r.find("n1", "n4").Alive && !r.find("n3", "n4").Alive && !r.find("n5", "n4").Alive
				})
				t.Logf("of %d members one fell silent, noticed by all after %v", n-1, took)
				r.net.Rejoin("n4")
				r.within(20*time.Second, "its return", r.together)
			}
			if n > 2 {
				r.stop("n3")
				r.within(2*time.Second, "a goodbye", r.together)
			}
			if m := r.find("n1", "n2"); m.Address != "n2:7481" || m.Alive {
				t.Errorf("the dead one is %+v", m)
			}
		})
	}
}

// A node that comes back at another address, under the same name, is not refused for longer than it takes to find its old self dead.
func TestTrap12BackAtAnotherAddress(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, host := range []string{"n1", "n2", "n3"} {
			r.start(host)
		}
		r.within(20*time.Second, "three members", r.together)
		r.members["n2"].set(func(m *Meta) { m.Nonce = 1 })
		time.Sleep(time.Second)
		r.kill("n2")
		r.net.Host("n2").Move()
		r.start("n2")
		r.within(20*time.Second, "the new address", func() bool {
			return r.together() && r.find("n1", "n2").Gossip == r.members["n2"].Addr() && r.find("n3", "n2").Gossip == r.members["n2"].Addr()
		})
		for host, m := range r.members {
			if c := m.Conflicts(); len(c) != 0 {
				t.Errorf("%s takes it for two processes: %v", host, c)
			}
		}
	})
}

func TestTrap12TwoProcessesWithOneNameAreTold(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2")
		r.within(10*time.Second, "two members", r.together)
		twin := r.start("n3", func(o *Options) { o.Name = "n2~1" })
		pair := []string{r.members["n2"].Addr(), twin.Addr()}
		slices.Sort(pair)
		want := []Conflict{{Name: "n2~1", A: pair[0], B: pair[1]}}
		told := func() bool {
			for _, m := range r.members {
				if !slices.Equal(m.Conflicts(), want) {
					return false
				}
			}
			return true
		}
		took := r.within(time.Minute, "all three told", told)
		t.Log("told after ", took)
		for range 10 {
			time.Sleep(10 * time.Second)
			if !told() {
				t.Error("it was forgotten while it goes on")
			}
		}
		r.stop("n3")
		time.Sleep(2 * time.Minute)
		for host, m := range r.members {
			if c := m.Conflicts(); len(c) != 0 {
				t.Errorf("%s still says %v", host, c)
			}
		}
	})
}

func TestTrap12MetadataIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2")
		r.within(10*time.Second, "two members", r.together)
		r.members["n2"].set(func(m *Meta) { m.Address = strings.Repeat("x", MaxMeta) })
		time.Sleep(5 * time.Second)
		if got := r.find("n1", "n2").Address; got != "n2:7481" {
			t.Errorf("the address is %q", got)
		}
		r.members["n2"].set(func(m *Meta) { m.Address = "elsewhere:1" })
		r.within(2*time.Second, "the next change", func() bool { return r.find("n1", "n2").Address == "elsewhere:1" })
		_, err := New(Options{Name: "x", Bind: "127.0.0.1:0", Keys: [][]byte{oldKey}, Meta: func() Meta { return Meta{Name: strings.Repeat("x", MaxMeta)} }})
		if err == nil || !strings.Contains(err.Error(), "512") {
			t.Error(err)
		}
	})
}

// What a callback was given is memberlist's memory, and what is asked in one is asked under its locks.
func TestTrap12CallbacksCopyAndCallNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		m := r.start("n1")
		asked := 0
		r.start("n2", func(o *Options) {
			meta := o.Meta
			o.Meta = func() Meta {
				if n2 := r.members["n2"]; n2 != nil {
					asked++
					n2.list.NumMembers() // would wait for ever under memberlist's lock
				}
				return meta()
			}
		})
		r.within(10*time.Second, "two members", r.together)
		r.members["n2"].set(func(m *Meta) { m.Nonce = 5 })
		r.within(2*time.Second, "the change", func() bool { return r.find("n1", "n2").Nonce == 5 })
		if asked == 0 {
			t.Error("the metadata was not asked for")
		}
		meta, err := Meta{Name: "n9", Address: "n9:1"}.encode()
		if err != nil {
			t.Fatal(err)
		}
		node := &memberlist.Node{Name: "n9", Addr: net.IP{10, 0, 0, 9}, Port: 1, Meta: meta}
		delegate{&m.roll}.NotifyJoin(node)
		before := r.find("n1", "n9")
		clear(meta)
		clear(node.Addr)
		if got := r.find("n1", "n9"); got != before || got.Address != "n9:1" || got.Gossip != "10.0.0.9:1" {
			t.Errorf("%+v became %+v", before, got)
		}
	})
}

func TestTheDeadAreForgottenAfterAnHour(t *testing.T) {
	r := roll{members: map[string]*entry{}, conflicts: map[string]*clash{}}
	now := time.Now()
	r.members["a"] = &entry{Member: Member{Alive: true}}
	r.members["b"] = &entry{left: now}
	if got := r.list(now.Add(rememberFor)); len(got) != 2 {
		t.Error(got)
	}
	if got := r.list(now.Add(rememberFor + 1)); len(got) != 1 || !got[0].Alive || len(r.members) != 1 {
		t.Error(got)
	}
}

func TestTheBeginningAndTheEndOfAConflictAreChanges(t *testing.T) {
	r := roll{conflicts: map[string]*clash{}, changed: make(chan struct{}, 1)}
	now := time.Now()
	f := func(after time.Duration, seen, changed bool, want int) {
		t.Helper()
		now = now.Add(after)
		if seen {
			r.clash("a", "x:1", "y:1", now)
		}
		if got := r.clashes(now); len(got) != want || len(r.changed) == 1 != changed {
			t.Errorf("%v, changed %v", got, !changed)
		}
		select {
		case <-r.changed:
		default:
		}
	}
	f(0, true, false, 0)
	f(clashAfter-1, true, false, 0)
	f(1, true, true, 1)
	f(clashFor, false, false, 1)
	f(1, false, true, 0)
	f(0, true, false, 0) // from the beginning
	f(clashAfter+1, true, false, 0)
}

func TestHalvesMeetAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, host := range []string{"n1", "n2", "n3", "n4"} {
			r.start(host)
		}
		r.within(20*time.Second, "four members", r.together)
		for _, a := range []string{"n1", "n2"} {
			for _, b := range []string{"n3", "n4"} {
				r.net.CutBoth(a, b)
			}
		}
		r.within(20*time.Second, "two halves", func() bool {
			return slices.Equal(r.members["n1"].sees(), []string{"n2"}) && slices.Equal(r.members["n3"].sees(), []string{"n4"})
		})
		time.Sleep(5 * time.Minute) // memberlist has forgotten the others long since
		for _, a := range []string{"n1", "n2"} {
			for _, b := range []string{"n3", "n4"} {
				r.net.Heal(a, b)
			}
		}
		r.within(30*time.Second, "one cluster again", r.together)
	})
}

func TestSeedsAreResolvedAgainWhileAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var known atomic.Bool
		r.start("n2", func(o *Options) {
			o.Seeds = func() []string { return []string{"not an address", "peers:7482"} }
			o.Lookup = func(ctx context.Context, host string) ([]string, error) {
				if host != "peers" || !known.Load() {
					return nil, errors.New("no such host")
				}
				return []string{"10.0.0.250", r.net.Host("n1").IP()}, nil // the first is nobody's
			}
		})
		r.start("n1", func(o *Options) { o.Seeds = nil })
		time.Sleep(time.Minute)
		if r.together() {
			t.Error("found without an address")
		}
		known.Store(true)
		r.within(10*time.Second, "the name", r.together)
		r.kill("n1")
		r.net.Host("n1").Move()
		time.Sleep(time.Minute)
		r.start("n1", func(o *Options) { o.Seeds = nil })
		r.within(20*time.Second, "its new address", r.together)
	})
}

func TestKeysAreRotatedWithoutASplit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		hosts := []string{"n1", "n2", "n3"}
		for _, host := range hosts {
			r.start(host)
		}
		r.within(20*time.Second, "three members", r.together)
		for _, keys := range [][][]byte{{oldKey, newKey}, {newKey, oldKey}, {newKey}} {
			for _, host := range hosts {
				r.stop(host)
				r.start(host, func(o *Options) { o.Keys = keys })
				r.within(20*time.Second, "all after "+host, r.together)
				time.Sleep(30 * time.Second)
				if !r.together() {
					t.Errorf("split after %s was given %d keys", host, len(keys))
				}
			}
		}
	})
}

func TestAnotherKeyIsNoMember(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2", func(o *Options) { o.Keys = [][]byte{newKey} })
		time.Sleep(time.Minute)
		if a, b := r.members["n1"].Members(), r.members["n2"].Members(); len(a)+len(b) != 0 {
			t.Error(a, b)
		}
	})
}

func TestUpdateWhileEndingDoesNotHang(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		m := r.start("n2")
		r.within(10*time.Second, "two members", r.together)
		r.net.CutBoth("n1", "n2")
		delete(r.members, "n2")
		ended := make(chan struct{})
		start := time.Now()
		go func() { m.end(); close(ended) }()
		for range 100 {
			m.Update()
			time.Sleep(10 * time.Millisecond)
		}
		<-ended
		m.Update()
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("ended after %v", d)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestGarbageDoesNoHarm(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		m := r.start("n1")
		r.start("n2")
		r.within(10*time.Second, "two members", r.together)
		packets, err := r.net.Host("x").Packets("x:1")
		if err != nil {
			t.Fatal(err)
		}
		for _, garbage := range []string{"\x00", "\xf4", "\xf4\x05ab", "\x0a\xff\xff\xff\xff", "\x00" + strings.Repeat("\x00", 60), strings.Repeat("\xff", 1400)} {
			to, _ := net.ResolveUDPAddr("udp", m.Addr())
			if _, err := packets.WriteTo([]byte(garbage), to); err != nil {
				t.Fatal(err)
			}
			c, err := r.net.Host("x").Dial(t.Context(), m.Addr())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte(garbage))
			time.Sleep(time.Second)
			c.Close()
		}
		time.Sleep(time.Minute)
		if !r.together() {
			t.Error("apart")
		}
	})
}

func TestRealNetwork(t *testing.T) {
	open := func(name string, seeds ...string) *Gossip {
		g, err := New(Options{
			Name: name, Bind: "127.0.0.1:0", Keys: [][]byte{oldKey},
			Meta:  func() Meta { return Meta{Name: name, Ordinal: 3} },
			Seeds: func() []string { return seeds },
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	a := open("a")
	b := open("b", strings.Replace(a.Addr(), "127.0.0.1", "localhost", 1))
	ctx, cancel := context.WithCancel(t.Context())
	var jobs sync.WaitGroup
	for _, g := range []*Gossip{a, b} {
		jobs.Go(func() {
			if err := g.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	<-a.Changed()
	if m := a.Members(); len(m) != 1 || m[0].Name != "b" || m[0].Ordinal != 3 || !m[0].Alive || m[0].Gossip != b.Addr() {
		t.Error(m)
	}
	cancel()
	jobs.Wait()
}

func TestNewRefuses(t *testing.T) {
	f := func(want string, change func(*Options)) {
		t.Helper()
		o := Options{Name: "a", Bind: "127.0.0.1:0", Keys: [][]byte{oldKey}, Meta: func() Meta { return Meta{Name: "a"} }}
		change(&o)
		g, err := New(o)
		if err == nil {
			g.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f("key", func(o *Options) { o.Keys = nil })
	f("key", func(o *Options) { o.Keys = [][]byte{{1}} })
	f("server id", func(o *Options) { o.Meta = func() Meta { return Meta{Name: "a", ServerID: "b~1"} } })
	f("127.0.0.1:http", func(o *Options) { o.Bind = "127.0.0.1:http" })
	f("nowhere.invalid", func(o *Options) { o.Advertise = "nowhere.invalid" })
	f("cluster.advertise", func(o *Options) { o.Bind = "[::]:0" })
}

func TestAdvertise(t *testing.T) {
	f := func(advertise, want string) {
		t.Helper()
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		free.Close()
		g, err := New(Options{
			Name: "a", Bind: free.Addr().String(), Advertise: advertise, Keys: [][]byte{oldKey}, Meta: func() Meta { return Meta{Name: "a"} },
			Lookup: func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if !strings.HasPrefix(g.Addr(), want) {
			t.Errorf("%q is %s, want %s", advertise, g.Addr(), want)
		}
	}
	f("192.0.2.7:99", "192.0.2.7:99")
	f("192.0.2.7", "192.0.2.7:")
	f("name:99", "192.0.2.1:99")
	f("[2001:db8::1]:99", "[2001:db8::1]:99")
}
