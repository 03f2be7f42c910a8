package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCaseK12AForeignClusterIsRefusedByName(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		f := func(here, there, secretHere, secretThere string) {
			t.Helper()
			r.told = map[string][]error{}
			r.start("n1", inCluster(here), secrets(secretHere))
			r.start("n2", inCluster(there), secrets(secretThere))
			err := refuse[ErrForeignCluster](r, "n1", "n2", "open")
			if err.Name != there || err.Ours != here || err.Address != "n2:7481" {
				t.Errorf("%q dials %q and hears %#v", here, there, err)
			}
			if told := was[ErrForeignCluster](r, "n1"); told != err {
				t.Errorf("the one that dialed was told %v", told)
			}
			if told := was[ErrForeignCluster](r, "n2"); told.Name != here || !strings.HasPrefix(told.Address, r.net.Host("n1").IP()) {
				t.Errorf("the one that was dialed was told %v", told)
			}
			r.stop("n1")
			r.stop("n2")
		}
		f("prod", "stage", testSecret, testSecret)
		f("prod", "stage", testSecret, "another")
		f("a.b-c_d", "10.0.0.1", testSecret, testSecret)
	})
}

// The side that is dialed refuses a foreigner also where that one goes on, and even where it could prove that it knows our secret.
func TestAForeignerThatGoesOnIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ours := r.start("n1").id.authorities[0]
		cert, err := issue(ours, "n2", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		f := func(cluster string, cert *tls.Certificate, want string) {
			t.Helper()
			raw, err := r.net.Host("n2").Dial(t.Context(), "n1:7481")
			if err != nil {
				t.Fatal(err)
			}
			conf := &tls.Config{ServerName: greeting{cluster: cluster, keys: []string{ours.key.id}}.String(), InsecureSkipVerify: true, NextProtos: []string{protoCall}}
			if cert != nil {
				conf.Certificates = []tls.Certificate{*cert}
			}
			c := tls.Client(raw, conf)
			defer c.Close()
			if err = c.HandshakeContext(t.Context()); err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("cluster %s: %v, want %q", cluster, err, want)
			}
		}
		f("stage", cert, "bad certificate")
		if told := was[ErrForeignCluster](r, "n1"); told.Name != "stage" {
			t.Error(told)
		}
		f(testCluster, nil, "certificate required")
	})
}

func TestAnotherSecretIsSaidOnBothSides(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2", secrets("another", "and another"))
		err := refuse[ErrSecret](r, "n1", "n2", "open")
		if err.Address != "n2:7481" || !strings.Contains(err.Error(), "cluster.secret") {
			t.Error(err)
		}
		if told := was[ErrSecret](r, "n1"); told != err {
			t.Error(told)
		}
		if told := was[ErrSecret](r, "n2"); !strings.HasPrefix(told.Address, r.net.Host("n1").IP()) {
			t.Error(told)
		}
	})
}

func TestAnotherFoundingIsSaidOnBothSides(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		one, two := Founding{1}, Founding{2}
		r.start("n1", founded(one))
		r.start("n2", founded(two))
		r.start("n3")
		err := refuse[ErrFoundings](r, "n1", "n2", "echo")
		if err.Theirs != two || err.Ours != one {
			t.Error(err)
		}
		if told := was[ErrFoundings](r, "n1"); told.Theirs != two {
			t.Error(told)
		}
		if told := was[ErrFoundings](r, "n2"); told.Theirs != one || told.Ours != two {
			t.Error(told)
		}
		r.call("n1", "n2", "open", "", "open") // how they find out
		r.call("n3", "n1", "echo", "new", "new")
		r.call("n2", "n3", "echo", "new", "new")
	})
}

func TestARefusalIsToldOnceAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1", inCluster("stage"))
		r.start("n2")
		for range 120 {
			refuse[ErrForeignCluster](r, "n1", "n2", "open")
			time.Sleep(time.Second)
		}
		was[ErrForeignCluster](r, "n2")
		for node, told := range r.told {
			if len(told) != 2 {
				t.Errorf("%s was told %d times in two minutes", node, len(told))
			}
		}
	})
}

// While the secret is rotated, one node after the other, every node reaches every other at every moment.
func TestTheSecretIsRotatedWithoutDowntime(t *testing.T) {
	f := func(name string, stages ...[]string) {
		t.Helper()
		for _, order := range [][]int{{1, 2, 3}, {3, 1, 2}} {
			inBubble(t, func(t *testing.T, r *rig) {
				for _, n := range order {
					r.start(fmt.Sprintf("n%d", n), secrets(stages[0]...))
				}
				for i, stage := range stages[1:] {
					for _, n := range order {
						node := fmt.Sprintf("n%d", n)
						r.stop(node)
						r.start(node, secrets(stage...))
						r.everyPair(fmt.Sprintf("%s: stage %d, %s", name, i+1, node))
					}
				}
				if len(r.told) != 0 {
					t.Errorf("%s: told %v", name, r.told)
				}
			})
		}
	}
	f("trust first", []string{"old"}, []string{"old", "new"}, []string{"new", "old"}, []string{"new"})
	f("present first", []string{"old"}, []string{"new", "old"}, []string{"new"})
}

func (r *rig) everyPair(when string) {
	r.Helper()
	for a := range r.ports {
		for b := range r.ports {
			got, err := r.again(a, b, when)
			if err != nil || string(got) != when {
				r.Errorf("%s: %s asks %s: %v", when, a, b, err)
			}
		}
	}
}

// again asks twice: the first may meet a connection to a process that has just ended.
func (r *rig) again(a, b, body string) (got []byte, err error) {
	for range 2 {
		if got, err = r.ports[a].Call(r.Context(), b+":7481", "echo", []byte(body)); !errors.As(err, new(ErrUnreachable)) {
			break
		}
	}
	return got, err
}

func TestClocksDiffer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		f := func(difference time.Duration, works bool) {
			t.Helper()
			r.start("n1")
			r.start("n2", func(o *Options) { o.Now = func() time.Time { return time.Now().Add(difference) } })
			for _, pair := range [][2]string{{"n1", "n2"}, {"n2", "n1"}} {
				_, err := r.ports[pair[0]].Call(t.Context(), pair[1]+":7481", "echo", nil)
				if works != (err == nil) || err != nil && !strings.Contains(err.Error(), "compare the clocks") {
					t.Errorf("clocks that differ by %v, %v: %v", difference, pair, err)
				}
			}
			r.stop("n1")
			r.stop("n2")
		}
		f(time.Hour, true)
		f(-time.Hour, true)
		f(6*24*time.Hour, true)
		f(-6*24*time.Hour, true)
		f(60*24*time.Hour, false)
		f(-60*24*time.Hour, false)
	})
}

// A process that runs for months, whose clock jumps, always shows a certificate that its peers accept.
func TestCertificatesAreRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var jump time.Duration
		now := func(o *Options) { o.Now = func() time.Time { return time.Now().Add(jump) } }
		p := r.start("n1", now)
		r.start("n2", now)
		serial := func() string {
			c, err := p.id.certificate(p.id.authorities[0])
			if err != nil {
				t.Fatal(err)
			}
			return string(c.Certificate[0])
		}
		f := func(d time.Duration, renewed bool) {
			t.Helper()
			before := serial()
			jump += d
			r.net.Reset("n1", "n2")
			time.Sleep(time.Second)
			r.call("n2", "n1", "echo", "x", "x")
			if (serial() != before) != renewed {
				t.Errorf("after %v: renewed %v", d, !renewed)
			}
		}
		f(24*time.Hour, false)
		f(10*24*time.Hour, true)
		f(365*24*time.Hour, true)
		f(-10*365*24*time.Hour, true)
		f(-time.Minute, false)
	})
}

func TestKeysDependOnClusterAndSecret(t *testing.T) {
	seen := map[string]string{}
	for _, k := range []Keys{Derive("a", "s"), Derive("b", "s"), Derive("a", "t")} {
		for _, part := range []string{k.id, string(k.gossip), string(k.authority)} {
			if seen[part] != "" {
				t.Error("two keys are the same")
			}
			seen[part] = k.cluster
		}
	}
	again := Derive("a", "s")
	if seen[again.id] == "" || seen[string(again.Gossip())] == "" || seen[string(again.authority)] == "" {
		t.Error("a secret gives other keys each time")
	}
	if got := again.id; got != "e6e3eb48bb36fd92" {
		t.Error("the derivation has changed: the key id of (a, s) is ", got)
	}
}

// The certificate of an authority is nobody's: who has the secret could dial with it, and would have no name.
func TestAnAuthorityIsNoNode(t *testing.T) {
	id, err := newIdentity(testCluster, "n1", []Keys{Derive(testCluster, testSecret)}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := id.verify(id.authorities[0].cert, "x"); !errors.Is(err, errNoNode) {
		t.Errorf("%q, %v", name, err)
	}
}

func TestWhatIsNoGreeting(t *testing.T) {
	f := func(s string, want bool) {
		t.Helper()
		if g, ok := parseGreeting(s); ok != want || ok && g.String() != s {
			t.Errorf("%q: %v %v", s, g, ok)
		}
	}
	f("0123456789abcdef.prod.twgd", true)
	f("0123456789abcdef-0123456789abcde0.prod.eu.twgd", true)
	f("", false)
	f(".twgd", false)
	f("prod.twgd", false)
	f("0123456789abcdef..twgd", false)
	f("0123456789ABCDEF.prod.twgd", false)
	f("0123456789abcdef.prod.twgd.", false)
	f("0123456789abcdef."+strings.Repeat("x", MaxName+1)+".twgd", false)
}

// A call that somebody gave up does not spoil the connection for the others.
func TestADialOutlivesTheCallThatBeganIt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2")
		r.net.Delay("n1", "n2", 300*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := r.ports["n1"].Call(ctx, "n2:7481", "echo", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		r.call("n1", "n2", "echo", "x", "x")
	})
}
