package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1", founded(Founding{1}))
		r.start("n2")
		r.call("n1", "n2", "echo", "hello", "hello")
		r.call("n1", "n2", "echo", "", "")
		r.call("n1", "n1", "echo", "to itself", "to itself")
		big := strings.Repeat("x", MaxBody)
		r.call("n1", "n2", "echo", big, big)
		r.call("n1", "n2", "who", "", "n1 n1~1 "+Founding{1}.String()+" "+r.net.Host("n1").IP())
		r.call("n2", "n1", "who", "", "n2 n2~1 "+Founding{}.String()+" "+r.net.Host("n2").IP())

		f := func(method, code, text string) {
			t.Helper()
			if err := refuse[*RemoteError](r, "n1", "n2", method); err != nil && (err.Code != code || !strings.Contains(err.Text, text)) {
				t.Errorf("%s: %q %q, want %q %q", method, err.Code, err.Text, code, text)
			}
		}
		f("plain", CodeFailed, "no luck")
		f("coded", "not_leader", "n2 leads")
		f("panic", CodeFailed, "mistake")
		f("nothing", CodeUnknown, `"nothing"`)
		f("large", CodeTooLarge, "1048577 bytes")
		_, err := r.ports["n1"].Call(t.Context(), "n2:7481", "echo", make([]byte, MaxBody+1))
		if coded := new(RemoteError); !errors.As(err, &coded) || coded.Code != CodeTooLarge {
			t.Errorf("a question that is too large: %v", err)
		}
	})
}

func TestAServerIDOfAnotherNameIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1", func(o *Options) { o.ServerID = func() string { return "n2~1" } })
		r.start("n2")
		if err := refuse[*RemoteError](r, "n1", "n2", "echo"); err != nil && err.Code != CodeInvalid {
			t.Error(err)
		}
	})
}

func TestDeadlinesTravel(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2")
		f := func(limit time.Duration, want time.Duration) {
			t.Helper()
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if limit != 0 {
				ctx, cancel = context.WithTimeout(ctx, limit)
			}
			defer cancel()
			start := time.Now()
			_, err := r.ports["n1"].Call(ctx, "n2:7481", "wait", nil)
			if d := time.Since(start); d < want || d > want+10*time.Millisecond {
				t.Errorf("a call of %v ended after %v: %v", limit, d, err)
			}
		}
		f(time.Second, time.Second)
		f(0, callFor)
		f(time.Hour, callMost) // the handler's own bound
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		_, err := r.ports["n1"].Call(ctx, "n2:7481", "wait", nil)
		if !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
			t.Errorf("a call that was given up ended after %v: %v", time.Since(start), err)
		}
	})
}

func TestUnreachableErrorsNameTheAddress(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.net.Host("n2")
		for _, cut := range []bool{false, true} {
			if cut {
				r.net.CutBoth("n1", "n2")
			}
			start := time.Now()
			err := refuse[ErrUnreachable](r, "n1", "n2", "echo")
			if err.Address != "n2:7481" || !strings.Contains(err.Error(), "n2:7481") || time.Since(start) > dialFor {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}
	})
}

// A peer that dies under a call, or between two, is noticed within three seconds of silence; when it is back, calls go on.
func TestADeadPeerIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2")
		ended := make(chan time.Time)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := r.ports["n1"].Call(ctx, "n2:7481", "wait", nil)
			if !errors.As(err, new(ErrUnreachable)) {
				t.Errorf("%T %v", err, err)
			}
			ended <- time.Now()
		}()
		time.Sleep(30 * time.Second) // the connection lives on while the handler thinks
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("the call ended while the peer was alive")
		default:
		}
		cut := time.Now()
		r.net.CutBoth("n1", "n2")
		if d := (<-ended).Sub(cut); d > 3*time.Second {
			t.Errorf("noticed after %v", d)
		}
		time.Sleep(time.Minute)
		r.net.Heal("n1", "n2")
		r.call("n1", "n2", "echo", "back", "back")
		time.Sleep(time.Hour) // idle connections end, and nothing with them
		r.call("n1", "n2", "echo", "again", "again")
	})
}

func TestAHandlerEndsWithItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		ended := make(chan struct{})
		r.start("n2")
		r.ports["n2"].methods["hang"] = method{handler: func(ctx context.Context, _ Peer, _ []byte) ([]byte, error) {
			defer close(ended)
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		go func() { _, _ = r.ports["n1"].Call(t.Context(), "n2:7481", "hang", nil) }()
		time.Sleep(time.Second)
		cut := time.Now()
		r.net.Isolate("n1")
		<-ended
		if d := time.Since(cut); d > 4*time.Second {
			t.Errorf("the handler of a caller that is gone ended after %v", d)
		}
	})
}

func TestManyCallsAtOnceShareAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2")
		var jobs sync.WaitGroup
		for i := range 500 {
			jobs.Go(func() { r.call("n1", "n2", "echo", fmt.Sprint(i), fmt.Sprint(i)) })
		}
		jobs.Wait()
		time.Sleep(2 * time.Second)
		p := r.ports["n1"]
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.mu.conns); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

func TestCloseEndsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start("n1")
		r.start("n2")
		for _, closes := range []string{"n2", "n1"} {
			ended := make(chan error)
			go func() { _, err := r.ports["n1"].Call(t.Context(), "n2:7481", "wait", nil); ended <- err }()
			time.Sleep(time.Second)
			start := time.Now()
			r.stop(closes)
			if err := <-ended; !errors.As(err, new(ErrUnreachable)) || time.Since(start) > time.Second {
				t.Errorf("%s closes: %v after %v", closes, err, time.Since(start))
			}
			if closes == "n2" {
				r.start("n2")
			}
		}
		if _, err := r.ports["n1"].Call(t.Context(), "n2:7481", "echo", nil); !errors.As(err, new(ErrUnreachable)) {
			t.Errorf("a call of a closed port: %v", err)
		}
	})
}

func TestGarbageAndSilenceNeitherLeakNorHang(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		p := r.start("n1")
		r.start("n2")
		attacker := r.net.Host("x")
		var open []net.Conn
		for range 3 * greetMostHost { // says nothing
			c, err := attacker.Dial(t.Context(), "n1:7481")
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		synctest.Wait()
		if p.mu.shaking != greetMostHost {
			t.Errorf("%d handshakes of one host", p.mu.shaking)
		}
		r.call("n2", "n1", "echo", "still there", "still there")
		time.Sleep(greetFor)
		synctest.Wait()
		for _, c := range open {
			if _, err := io.ReadAll(c); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
				t.Error("a silent connection was not closed: ", err)
			}
			c.Close()
		}
		for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff" + strings.Repeat("\x00", 70000), strings.Repeat("\xff", 1000)} {
			c, err := attacker.Dial(t.Context(), "n1:7481")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte(garbage))
			_, _ = io.ReadAll(c)
			c.Close()
		}
		synctest.Wait()
		p.mu.Lock()
		conns, shaking := len(p.mu.conns), p.mu.shaking
		p.mu.Unlock()
		if conns != 1 || shaking != 0 || len(r.told["n1"]) != 0 { // the one of n2
			t.Errorf("%d connections, %d handshakes, told %v", conns, shaking, r.told["n1"])
		}
		r.call("n2", "n1", "echo", "unmoved", "unmoved")
	})
}

// A peer that is proved and then says nothing, or nonsense, is sent away too.
func TestAProvedPeerThatSaysNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		p := r.start("n1")
		peer := r.start("n2")
		for _, proto := range []string{protoCall, protoRaft} {
			for _, says := range []string{"", strings.Repeat("\xff", 2000)} {
				c, err := peer.dial(t.Context(), "n1:7481", proto)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write([]byte(says))
				start := time.Now()
				_, _ = io.Copy(io.Discard, c)
				if d := time.Since(start); d > 11*time.Second {
					t.Errorf("%s %q: closed after %v", proto, says[:min(len(says), 4)], d)
				}
				c.Close()
			}
		}
		time.Sleep(time.Second)
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.mu.conns) != 0 {
			t.Errorf("%d connections are left", len(p.mu.conns))
		}
	})
}

func TestRealTCP(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	open := func(node string) *Port {
		p, err := Open(Options{Listen: "127.0.0.1:0", Cluster: testCluster, Node: node, Keys: []Keys{Derive(testCluster, testSecret)}})
		if err != nil {
			t.Fatal(err)
		}
		handlers(p)
		return p
	}
	p1, p2 := open("n1"), open("n2")
	var jobs sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for _, p := range []*Port{p1, p2} {
		jobs.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	body := bytes.Repeat([]byte("body"), MaxBody/4)
	for range 3 {
		if got, err := p1.Call(ctx, p2.Addr(), "echo", body); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	cancel()
	jobs.Wait()
	if _, err := p1.Call(t.Context(), p2.Addr(), "echo", nil); !errors.As(err, new(ErrUnreachable)) {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	f := func(want string, o Options) {
		t.Helper()
		p, err := Open(o)
		if err == nil {
			p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	keys := []Keys{Derive("c", "s")}
	f("secret", Options{Cluster: "c", Node: "n", Listen: "127.0.0.1:0"})
	f("cluster", Options{Node: "n", Keys: keys, Listen: "127.0.0.1:0"})
	f("node", Options{Cluster: "c", Node: strings.Repeat("n", MaxName+1), Keys: keys, Listen: "127.0.0.1:0"})
	f("node", Options{Cluster: "c", Node: "a b", Keys: keys, Listen: "127.0.0.1:0"})
	f("another", Options{Cluster: "another", Node: "n", Keys: keys, Listen: "127.0.0.1:0"})
	f("256.0.0.1:0", Options{Cluster: "c", Node: "n", Keys: keys, Listen: "256.0.0.1:0"})
}
