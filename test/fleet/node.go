//go:build linux

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/netlab"
	"github.com/stream-arrow/twgd/test/servers"
)

// Node is one process of the program, with a host and a data directory that it keeps from start to start. Methods that do something fail the
// test where they cannot; those that ask may be used by several goroutines.
type Node struct {
	Name   string
	Number int    // its ordinal is one less
	Data   string // the data directory; another may be set before a start

	fleet  *Fleet
	host   *netlab.Host
	dir    string
	port   int // of Raft and RPC; gossip has the next
	starts int
	child  atomic.Pointer[servers.Child] // nil before the first start
}

// Address is where the node listens for others.
func (n *Node) Address() string { return fmt.Sprintf("%s:%d", n.host.Address, n.port) }

// Launch starts the process with a command, run or join, and does not wait.
func (n *Node) Launch(args ...string) {
	n.fleet.Helper()
	if n.Running() {
		n.fleet.Fatalf("node %s runs already", n.Name)
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	harness.Must(n.fleet, err)
	defer log.Close()
	n.starts++
	fmt.Fprintf(log, "=== start %d of %s: %q\n", n.starts, n.Name, args)
	cmd := n.command(args...)
	cmd.Stdout, cmd.Stderr = log, log
	child, err := n.host.Start(cmd)
	harness.Must(n.fleet, err)
	n.child.Store(child)
}

func (n *Node) command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.fleet.Program, append(args, "-c", n.config())...)
	cmd.Env = append(os.Environ(), n.fleet.Env...)
	return cmd
}

// Up waits until the process can be asked.
func (n *Node) Up() {
	n.fleet.Helper()
	n.await("to answer on its socket", 20*time.Second, func() (string, bool) {
		_, err := n.View()
		return fmt.Sprint(err), err == nil
	})
}

// Start starts the process and waits until it can be asked.
func (n *Node) Start() {
	n.fleet.Helper()
	n.Launch("run")
	n.Up()
}

// Running reports whether the process runs.
func (n *Node) Running() bool {
	child := n.child.Load()
	return child != nil && !child.Ended()
}

// PID is the running process's.
func (n *Node) PID() int { return n.child.Load().PID }

// Terminate sends SIGTERM.
func (n *Node) Terminate() { n.fleet.Helper(); n.signal(syscall.SIGTERM) }

// Pause stops the process as it is, until Continue.
func (n *Node) Pause() { n.fleet.Helper(); n.signal(syscall.SIGSTOP) }

// Continue ends Pause.
func (n *Node) Continue() { n.fleet.Helper(); n.signal(syscall.SIGCONT) }

// Kill ends the process by SIGKILL.
func (n *Node) Kill() {
	n.fleet.Helper()
	n.signal(syscall.SIGKILL)
	n.Exit(10 * time.Second)
}

func (n *Node) signal(sig syscall.Signal) {
	n.fleet.Helper()
	if !n.Running() {
		n.fleet.Fatalf("node %s does not run, so it cannot be sent %v", n.Name, sig)
	}
	harness.Must(n.fleet, n.child.Load().Signal(sig))
}

// Exit waits for the process's end and returns its exit code, -1 where a signal ended it.
func (n *Node) Exit(bound time.Duration) int {
	n.fleet.Helper()
	if !n.child.Load().Wait(bound) {
		n.fleet.Fatalf("node %s did not end within %v; its log ends:\n%s", n.Name, bound, n.tail(20))
	}
	return n.child.Load().Code()
}

// Stop ends the process by SIGTERM, which must go well.
func (n *Node) Stop() { n.fleet.Helper(); n.fleet.Stop(n.Number) }

// Wipe empties the data directory of a node that does not run.
func (n *Node) Wipe() {
	n.fleet.Helper()
	if n.Running() {
		n.fleet.Fatalf("node %s runs: its disk is not empty", n.Name)
	}
	entries, err := os.ReadDir(n.Data)
	harness.Must(n.fleet, err)
	for _, e := range entries {
		harness.Must(n.fleet, os.RemoveAll(filepath.Join(n.Data, e.Name())))
	}
}

// Move gives the node other ports, from its next start on; the addresses to join follow.
func (n *Node) Move() { n.port += 10 }

// end is the test's end.
func (n *Node) end() {
	if n.Running() {
		_ = n.child.Load().Signal(syscall.SIGKILL) // it may end at this moment
		n.child.Load().Wait(10 * time.Second)
	}
	if n.fleet.Failed() && n.starts > 0 {
		n.fleet.Logf("the log of node %s ends:\n%s", n.Name, n.tail(40))
	}
}

func (n *Node) logFile() string { return filepath.Join(n.dir, "log") }

// Log is all that the process has printed, over all its starts.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Since is what the process has printed since its last start.
func (n *Node) Since() string {
	_, last, _ := strings.Cut(n.Log(), fmt.Sprintf("=== start %d of", n.starts))
	return last
}

func (n *Node) tail(lines int) string {
	all := strings.Split(strings.TrimRight(n.Log(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Says waits until one line of the log of this start holds all of words.
func (n *Node) Says(bound time.Duration, words ...string) {
	n.fleet.Helper()
	harness.Await(n.fleet, fmt.Sprintf("a line of node %s's log with %q", n.Name, words), bound, func() (string, bool) {
		for line := range strings.Lines(n.Since()) {
			if holds(line, words) {
				return "", true
			}
		}
		return n.tail(3), false
	})
}

func holds(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(strings.ToLower(line), strings.ToLower(w)) {
			return false
		}
	}
	return true
}

// Get asks for one of the views, such as /ready, over the socket.
func (n *Node) Get(path string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+path, nil)
	if err != nil {
		return 0, nil, err
	}
	socket := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(n.Data, "twgd.sock"))
	}}
	resp, err := socket.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// View is what the node says of the cluster now.
func (n *Node) View() (v View, err error) {
	code, body, err := n.Get("/status")
	if err != nil {
		return v, err
	}
	var status struct {
		Cluster *View
		Node    struct{ Roles []string }
	}
	if err := json.Unmarshal(body, &status); err != nil || code != http.StatusOK {
		return v, fmt.Errorf("/status of %s answers %d: %.200s: %v", n.Name, code, body, err)
	}
	if status.Cluster == nil {
		return v, fmt.Errorf("/status of %s has no cluster", n.Name)
	}
	return *status.Cluster, nil
}

// Ready waits until the node says that it is.
func (n *Node) Ready(bound time.Duration) {
	n.fleet.Helper()
	n.await("to be ready", bound, func() (string, bool) {
		code, body, err := n.Get("/ready")
		return fmt.Sprintf("%d %s %v", code, body, err), err == nil && code == http.StatusOK
	})
}

// Unready waits until the node says that it is not ready, with these words among the reasons.
func (n *Node) Unready(bound time.Duration, words ...string) {
	n.fleet.Helper()
	n.await(fmt.Sprintf("not to be ready, for %q", words), bound, func() (string, bool) {
		code, body, err := n.Get("/ready")
		return fmt.Sprintf("%d %s %v", code, body, err), err == nil && code == http.StatusServiceUnavailable && holds(string(body), words)
	})
}

// Until waits until the node's view is as it should be.
func (n *Node) Until(what string, bound time.Duration, cond func(View) bool) {
	n.fleet.Helper()
	n.await(what, bound, func() (string, bool) {
		v, err := n.View()
		if err != nil {
			return err.Error(), false
		}
		return v.String(), cond(v)
	})
}

// await is harness.Await for a process that must not end meanwhile.
func (n *Node) await(what string, bound time.Duration, look func() (string, bool)) {
	n.fleet.Helper()
	harness.Await(n.fleet, "node "+n.Name+" "+what, bound, func() (string, bool) {
		if n.child.Load().Ended() {
			n.fleet.Fatalf("node %s ended with code %d while it was waited for %s; its log ends:\n%s", n.Name, n.child.Load().Code(), what, n.tail(20))
		}
		return look()
	})
}

// Ask runs another command of the program over the node's configuration, on its host, and returns its exit code and what it printed.
func (n *Node) Ask(args ...string) (code int, printed string) {
	n.fleet.Helper()
	cmd := n.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	child, err := n.host.Start(cmd)
	harness.Must(n.fleet, err)
	if !child.Wait(90 * time.Second) {
		_ = child.Signal(syscall.SIGKILL)
		n.fleet.Fatalf("twgd %q at node %s did not end within 90 s; its log ends:\n%s", args, n.Name, n.tail(20))
	}
	return child.Code(), out.String()
}

// Host is where the node runs.
func (n *Node) Host() *netlab.Host { return n.host }
