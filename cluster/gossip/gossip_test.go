package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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
