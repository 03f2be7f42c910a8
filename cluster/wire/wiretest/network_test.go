package wiretest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pair makes two hosts with a stream from n1 to n2 between them.
func pair(t *testing.T) (network *Network, near, far net.Conn) {
	t.Helper()
	network = New()
	l := listen(t, network.Host("n2"), "n2:1")
	near, err := network.Host("n1").Dial(t.Context(), "n2:1")
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return network, near, far
}

func listen(t *testing.T, h *Host, address string) net.Listener {
	t.Helper()
	l, err := h.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v, want %q", b, err, want)
	}
}

func expectErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

func TestStreamsCarryBothWaysAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, near, far := pair(t)
		send(t, near, "there")
		expect(t, far, "there")
		send(t, far, "back")
		if err := near.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, err := far.Read(make([]byte, 1))
		expectErr(t, err, io.EOF)
		send(t, far, "again") // half closed: this way is open
		expect(t, near, "backagain")
		if err := far.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = near.Read(make([]byte, 1))
		expectErr(t, err, io.EOF)
		_, err = near.Write([]byte("x"))
		expectErr(t, err, net.ErrClosed) // its own CloseWrite
		expectErr(t, far.Close(), net.ErrClosed)
	})
}

func TestWriteToOneThatHasClosedIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, near, far := pair(t)
		far.Close()
		_, err := near.Write([]byte("x"))
		expectErr(t, err, syscall.ECONNRESET)
	})
}

func TestWindowAndDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, near, far := pair(t)
		start := time.Now()
		near.SetWriteDeadline(start.Add(time.Second))
		n, err := near.Write(make([]byte, window+1))
		expectErr(t, err, os.ErrDeadlineExceeded)
		if n != window || time.Since(start) != time.Second {
			t.Errorf("wrote %d after %v", n, time.Since(start))
		}
		near.SetReadDeadline(time.Now().Add(time.Minute))
		go func() { time.Sleep(time.Second); near.SetReadDeadline(time.Now()) }() // one that is brought forward wakes the reader
		_, err = near.Read(make([]byte, 1))
		expectErr(t, err, os.ErrDeadlineExceeded)
		near.SetDeadline(time.Time{})
		go func() { time.Sleep(time.Second); _, _ = io.CopyN(io.Discard, far, window) }()
		send(t, near, "room again")
	})
}

func TestCutOneWayHoldsWhatIsSentUntilItHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, near, far := pair(t)
		send(t, near, "before ")
		time.Sleep(time.Millisecond)
		network.Cut("n1", "n2")
		send(t, near, "after")
		send(t, far, "other way")
		expect(t, near, "other way")
		expect(t, far, "before ")
		far.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := far.Read(make([]byte, 1))
		expectErr(t, err, os.ErrDeadlineExceeded)
		far.SetReadDeadline(time.Time{})
		go func() { time.Sleep(time.Second); network.Heal("n1", "n2") }()
		expect(t, far, "after")
	})
}

func TestCutHidesTheEndOfAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, near, _ := pair(t)
		network.Isolate("n2")
		network.Host("n2").Kill()
		send(t, near, "nobody says no")
		near.SetReadDeadline(time.Now().Add(time.Hour))
		_, err := near.Read(make([]byte, 1))
		expectErr(t, err, os.ErrDeadlineExceeded)
		near.SetReadDeadline(time.Time{})
		network.Rejoin("n2")
		_, err = near.Read(make([]byte, 1))
		expectErr(t, err, syscall.ECONNRESET)
	})
}

func TestResetBreaksBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, near, far := pair(t)
		network.CutBoth("n1", "n2")
		go func() { time.Sleep(time.Second); network.Reset("n1", "n2") }()
		_, err := near.Read(make([]byte, 1))
		expectErr(t, err, syscall.ECONNRESET)
		_, err = far.Write([]byte("x"))
		expectErr(t, err, syscall.ECONNRESET)
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, near, far := pair(t)
		network.Delay("n1", "n2", 100*time.Millisecond)
		start := time.Now()
		send(t, near, "slow")
		network.Delay("n1", "n2", 0)
		send(t, near, "er") // never overtakes
		expect(t, far, "slower")
		if d := time.Since(start); d != 100*time.Millisecond {
			t.Errorf("arrived after %v", d)
		}
		network.Delay("n2", "n1", 50*time.Millisecond)
		start = time.Now()
		if _, err := network.Host("n1").Dial(t.Context(), "n2:1"); err != nil || time.Since(start) != 50*time.Millisecond {
			t.Errorf("dialed in %v: %v", time.Since(start), err)
		}
	})
}

func TestDialing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := New()
		n1, n2 := network.Host("n1"), network.Host("n2")
		dial := func(address string, want error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c, err := n1.Dial(ctx, address)
			if want == nil && err == nil {
				c.Close()
				return
			}
			expectErr(t, err, want)
		}
		listen(t, n2, "0.0.0.0:1")
		dial("n2:1", nil)
		dial(n2.IP()+":1", nil)
		dial("n2:2", syscall.ECONNREFUSED)
		network.Cut("n2", "n1")
		dial("n2:1", syscall.ETIMEDOUT)
		network.Heal("n1", "n2")
		old := n2.IP()
		n2.Move()
		dial("n2:1", syscall.ECONNREFUSED) // nobody listens there yet
		listen(t, n2, "n2:1")
		dial("n2:1", nil)
		dial(old+":1", syscall.ETIMEDOUT)
		if _, err := n1.Dial(t.Context(), "nobody:1"); err == nil || !strings.Contains(err.Error(), "no such host") {
			t.Errorf("dialing an unknown name: %v", err)
		}
		if _, err := n2.Listen("n2:1"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listening twice: %v", err)
		}
		if _, err := n1.Listen("n2:1"); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("listening at another host: %v", err)
		}
	})
}

func TestKillEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, near, far := pair(t)
		l := listen(t, network.Host("n2"), ":0")
		p, err := network.Host("n2").Packets(":0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { _, err := l.Accept(); ended <- err }()
		go func() { _, _, err := p.ReadFrom(nil); ended <- err }()
		go func() { _, err := far.Read(make([]byte, 1)); ended <- err }()
		synctest.Wait()
		network.Host("n2").Kill()
		for range 3 {
			expectErr(t, <-ended, net.ErrClosed)
		}
		_, err = near.Read(make([]byte, 1))
		expectErr(t, err, syscall.ECONNRESET)
	})
}

func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := New()
		a, err := network.Host("n1").Packets("n1:1")
		if err != nil {
			t.Fatal(err)
		}
		b, err := network.Host("n2").Packets("n2:1")
		if err != nil {
			t.Fatal(err)
		}
		say := func(text string) {
			t.Helper()
			if _, err := a.WriteTo([]byte(text), b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		hear := func(want string) {
			t.Helper()
			buf := make([]byte, 10)
			b.SetReadDeadline(time.Now().Add(time.Second))
			n, from, err := b.ReadFrom(buf)
			if want == "" {
				expectErr(t, err, os.ErrDeadlineExceeded)
			} else if string(buf[:n]) != want || from.String() != a.LocalAddr().String() {
				t.Errorf("%q from %v, %v, want %q", buf[:n], from, err, want)
			}
		}
		say("one")
		hear("one")
		network.Cut("n1", "n2")
		say("lost")
		network.Heal("n1", "n2")
		hear("")
		network.Delay("n1", "n2", 500*time.Millisecond)
		say("late")
		network.Delay("n1", "n2", 0)
		say("early")
		hear("early")
		hear("late")
		b.Close()
		say("to nobody")
	})
}
