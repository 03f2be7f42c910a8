//go:build linux && e2e

package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	stdnet "net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stream-arrow/twgd/test/servers"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// player is a running toy.
type player struct {
	t     *testing.T
	child *servers.Child
	in    io.Writer
	out   *bufio.Scanner
}

// play starts a toy on a host, or beside the test where there is none, and returns once it is ready.
func play(t *testing.T, h *Host, name string, args ...string) *player {
	t.Helper()
	cmd := toy(name, args...)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, write, err := os.Pipe()
	must(t, err)
	cmd.Stdout = write
	start := func() (*servers.Child, error) { return servers.Spawn(cmd, syscall.SIGKILL) }
	if h != nil {
		start = func() (*servers.Child, error) { return h.Start(cmd) }
	}
	p := &player{t: t, in: in, out: bufio.NewScanner(out)}
	p.child, err = start()
	must(t, errors.Join(err, write.Close()))
	t.Cleanup(func() {
		if !p.child.Ended() {
			_ = p.child.Signal(syscall.SIGKILL)
			p.child.Wait(10 * time.Second)
		}
		out.Close()
	})
	if got := p.line(); name != "lab" && got != "ready" {
		t.Fatalf("the toy %s says %q", name, got)
	}
	return p
}

func (p *player) line() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatal("the toy has ended: ", p.out.Err())
	}
	return p.out.Text()
}

func (p *player) ask(values ...any) {
	p.t.Helper()
	fmt.Fprintln(p.in)
	_, err := fmt.Sscan(p.line(), values...)
	must(p.t, err)
}

func newLab(t *testing.T, hosts int) *Lab {
	t.Helper()
	l, err := New(hosts)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

// reach sends a line from a host to the echo of another and waits for the answer.
func reach(h *Host, network, address string, limit time.Duration) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begin := time.Now()
	c, err := h.Dial(ctx, network, stdnet.JoinHostPort(address, "7000"))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(begin.Add(limit)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(c, make([]byte, 5))
	return time.Since(begin), err
}

func TestHosts(t *testing.T) {
	l := newLab(t, 3)
	for i := 1; i <= 3; i++ {
		play(t, l.Host(i), "echo")
	}
	try := func(network string, from, to int, least, most time.Duration) {
		t.Helper()
		took, err := reach(l.Host(from), network, l.Host(to).Address, most+2*time.Second)
		if err != nil || took < least || took > most {
			t.Errorf("%s from %d to %d took %v, from %v to %v was due: %v", network, from, to, took, least, most, err)
		}
	}
	refused := func(from, to int) {
		t.Helper()
		if took, err := reach(l.Host(from), "tcp", l.Host(to).Address, 300*time.Millisecond); err == nil {
			t.Errorf("host %d reaches host %d in %v through a cut", from, to, took)
		}
	}
	try("tcp", 1, 2, 0, 100*time.Millisecond)
	try("udp", 3, 1, 0, 100*time.Millisecond)
	try("tcp", 2, 2, 0, 100*time.Millisecond) // a host reaches itself

	l.Set(1, 2, Path{Delay: 100 * time.Millisecond})
	try("udp", 1, 2, 100*time.Millisecond, 180*time.Millisecond)
	try("udp", 2, 1, 100*time.Millisecond, 180*time.Millisecond) // the answer goes that way
	try("tcp", 1, 2, 200*time.Millisecond, 380*time.Millisecond)
	l.Heal()

	l.Cut(2, 1)
	refused(1, 2)
	if _, dropped := l.Counts(2, 1); dropped == 0 {
		t.Error("nothing was dropped from 2 to 1")
	}
	if sent, dropped := l.Counts(1, 2); sent == 0 || dropped != 0 {
		t.Errorf("of what 1 sends to 2, %d packets were sent on and %d dropped; the cut is the other way", sent, dropped)
	}
	l.Rejoin()
	try("tcp", 1, 2, 0, 1200*time.Millisecond)

	l.Isolate(3)
	refused(1, 3)
	refused(3, 2)
	try("tcp", 1, 2, 0, 100*time.Millisecond)
	l.Heal()
	try("tcp", 3, 2, 0, 100*time.Millisecond)

	l.SetAll(Path{Loss: 0.1, Duplicate: 0.2, Jitter: 5 * time.Millisecond})
	for range 20 {
		try("tcp", 1, 3, 0, 8*time.Second) // TCP bears it
	}
}

// TestALongRun carries more than any buffer holds.
func TestALongRun(t *testing.T) {
	l := newLab(t, 2)
	play(t, l.Host(2), "echo")
	l.SetAll(Path{Delay: 2 * time.Millisecond})
	c, err := l.Host(1).Dial(t.Context(), "tcp", l.Host(2).Address+":7000")
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	const size = 20 << 20
	go func() { _, _ = c.Write(make([]byte, size)) }()
	n, err := io.Copy(io.Discard, io.LimitReader(c, size))
	if n != size || err != nil {
		t.Errorf("%d bytes of %d came back: %v", n, size, err)
	}
}

func TestClockIsSet(t *testing.T) {
	p := play(t, nil, "clock")
	c, err := NewClock(p.child.PID)
	must(t, err)
	differs := func(want time.Duration) {
		t.Helper()
		var wall, since int64
		p.ask(&wall, &since)
		got := time.Until(time.UnixMilli(wall))
		if d := got - want; d < -2*time.Second || d > 2*time.Second {
			t.Errorf("the wall clock differs by %v, and should by %v", got, want)
		}
		if since < 0 || since > 60_000 {
			t.Errorf("the monotonic clock jumped too: %d ms since the start", since)
		}
	}
	differs(0)
	for _, by := range []time.Duration{time.Hour, -time.Hour, 48 * time.Hour, 0} {
		must(t, c.Set(by))
		differs(by)
	}
	if err := c.Set(time.Millisecond); err == nil {
		t.Error("an offset of a millisecond is accepted, but not kept")
	}
	if _, err := NewClock(p.child.PID); err == nil {
		t.Error("the clock can be taken twice, and the first taker sets nothing any more")
	}
}

func TestDiskIsFull(t *testing.T) {
	d, err := NewDisk(3 << 20)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	write := func() error { return os.WriteFile(filepath.Join(d.Dir, "x"), make([]byte, 64<<10), 0o600) }
	must(t, write())
	must(t, os.Remove(filepath.Join(d.Dir, "x")))
	must(t, d.Fill(16<<10))
	if err := write(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing to the full disk: %v", err)
	}
	must(t, d.Free())
	must(t, write())
}

func TestDiskIsSlow(t *testing.T) {
	dir := t.TempDir()
	b, err := NewBrake(dir, 1<<20, 20)
	must(t, err)
	p := play(t, nil, "writer", dir)
	var fast, slow int64
	p.ask(&fast)
	must(t, b.Take(p.child.PID))
	p.ask(&slow)
	t.Logf("20 synced writes: %d ms, and %d ms under the brake", fast, slow)
	if slow < 800 || slow < 3*fast {
		t.Errorf("20 synced writes take %d ms without a brake and %d ms with one of 20 a second", fast, slow)
	}
	must(t, p.child.Signal(syscall.SIGKILL))
	p.child.Wait(10 * time.Second)
	must(t, b.Close())
}

// TestNothingIsLeft kills a lab without a warning.
func TestNothingIsLeft(t *testing.T) {
	p := play(t, nil, "lab")
	var first, second int
	_, err := fmt.Sscan(p.out.Text(), &first, &second)
	must(t, err)
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", first))
	must(t, err)
	mine, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	if space == mine {
		t.Fatal("the process is not on a host of its own")
	}
	must(t, p.child.Signal(syscall.SIGKILL))
	if !p.child.Wait(10 * time.Second) {
		t.Fatal("it survives")
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := usersOf(space)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the host's namespace is still used by %v; its processes were %d and %d", left, first, second)
		}
	}
}

// usersOf are the processes in a network namespace.
func usersOf(space string) (users []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && at == space {
			users = append(users, strings.Split(link, "/")[2])
		}
	}
	return users
}

// TestForward: a host reaches a server of the machine, and no longer when that ends.
func TestForward(t *testing.T) {
	l := newLab(t, 1)
	server, err := stdnet.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	stop, err := l.Host(1).Forward(server.Addr().String())
	must(t, err)
	c, err := l.Host(1).Dial(t.Context(), "tcp4", server.Addr().String())
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	fmt.Fprintln(c, "hello")
	answer, err := bufio.NewReader(c).ReadString('\n')
	if answer != "hello\n" || err != nil {
		t.Errorf("the answer is %q: %v", answer, err)
	}
	stop()
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end of the forwarding reaches the host as %v", err)
	}
	if _, err := l.Host(1).Dial(t.Context(), "tcp4", server.Addr().String()); err == nil {
		t.Error("it is forwarded still")
	}
}
