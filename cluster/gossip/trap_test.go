package gossip

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

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
