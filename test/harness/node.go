package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/servers"
)

// Node is one process of the program, with a data directory that it keeps from start to start. Its methods fail the test where they
// cannot do what they say, and belong to the test's goroutine; Status may be asked by others too.
type Node struct {
	ID      string
	Streams []Stream
	Grace   string         // shutdown_grace; empty: the default
	Cluster map[string]any // the section "cluster"; empty: none
	Ordinal any            // node.ordinal; nil: the default

	t       testing.TB
	suite   *Suite
	dir     string
	log     string
	starts  int
	child   *servers.Child
	address string
}

// Node prepares a node; Start starts it. What runs when the test ends is killed.
func (s *Suite) Node(t testing.TB, id string, streams ...Stream) *Node {
	t.Helper()
	n := &Node{ID: id, Streams: streams, t: t, suite: s, dir: Dir(t)}
	n.log = filepath.Join(n.dir, "log")
	t.Cleanup(func() {
		if n.child != nil && !n.child.Ended() {
			n.child.Signal(syscall.SIGKILL)
			n.child.Wait(10 * time.Second)
		}
		if t.Failed() {
			t.Logf("the log of node %s ends:\n%s", n.ID, tail(n.Log(), 60))
		}
	})
	return n
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Command is the program with arguments, in this node's environment.
func (n *Node) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.suite.Program, args...)
	cmd.Env = os.Environ()
	for name, value := range n.suite.S3.Env() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// Config writes the configuration file and returns its path.
func (n *Node) Config() string { return n.file(n.t) }

func (n *Node) spawn() {
	n.t.Helper()
	if n.child != nil && !n.child.Ended() {
		n.t.Fatalf("node %s runs already", n.ID)
	}
	f, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	Must(n.t, err)
	defer f.Close()
	n.starts++
	fmt.Fprintf(f, "=== start %d of node %s\n", n.starts, n.ID)
	cmd := n.Command("run", "-c", n.Config())
	cmd.Stdout, cmd.Stderr = f, f
	n.address = ""
	n.child, err = servers.Spawn(cmd, syscall.SIGKILL)
	Must(n.t, err)
}

// Start starts the process and returns once it listens.
func (n *Node) Start() *Node {
	n.t.Helper()
	n.spawn()
	Await(n.t, "node "+n.ID+" to listen", 20*time.Second, func() (string, bool) {
		if n.child.Ended() {
			n.t.Fatalf("node %s ended at its start with code %d:\n%s", n.ID, n.child.Code(), tail(n.Log(), 20))
		}
		n.address = n.listens()
		return "no address in its log", n.address != ""
	})
	return n
}

// Address is where the process serves HTTP, as a URL.
func (n *Node) Address() string { return n.address }

// listens finds the address in the log of the last start.
func (n *Node) listens() string {
	_, last, _ := strings.Cut(n.Log(), fmt.Sprintf("=== start %d of", n.starts))
	for line := range strings.Lines(last) {
		var event struct{ Msg, HTTP string }
		if json.Unmarshal([]byte(line), &event) == nil && event.Msg == "twgd runs" {
			return event.HTTP
		}
	}
	return ""
}

// Run runs the process to its end, which must come by itself within bound, and returns the exit code.
func (n *Node) Run(bound time.Duration) int {
	n.t.Helper()
	n.spawn()
	return n.Exit(bound)
}

// Exit waits for the process's end and returns its exit code.
func (n *Node) Exit(bound time.Duration) int {
	n.t.Helper()
	if !n.child.Wait(bound) {
		n.t.Fatalf("node %s did not end within %v", n.ID, bound)
	}
	return n.child.Code()
}

// Stop ends the process by SIGTERM and returns its exit code.
func (n *Node) Stop() int {
	n.t.Helper()
	n.Terminate()
	return n.Exit(30 * time.Second)
}

// Terminate sends SIGTERM.
func (n *Node) Terminate() { n.signal(syscall.SIGTERM) }

// Kill ends the process by SIGKILL.
func (n *Node) Kill() {
	n.t.Helper()
	n.signal(syscall.SIGKILL)
	n.Exit(10 * time.Second)
}

// KillIfRunning is Kill, but a process that has ended by itself is no fault.
func (n *Node) KillIfRunning() {
	n.t.Helper()
	if !n.child.Ended() {
		_ = n.child.Signal(syscall.SIGKILL) // it may end at this moment
		n.Exit(10 * time.Second)
	}
}

// Pause stops the process as it is, until Continue.
func (n *Node) Pause() { n.signal(syscall.SIGSTOP) }

// Continue ends Pause.
func (n *Node) Continue() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(sig syscall.Signal) {
	n.t.Helper()
	if n.child == nil || n.child.Ended() {
		n.t.Fatalf("node %s does not run, so it cannot be sent %v", n.ID, sig)
	}
	Must(n.t, n.child.Signal(sig))
}

// Log is all that the process has printed, over all its starts.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Says waits until the log, from its first start on, holds all of words in one line.
func (n *Node) Says(bound time.Duration, words ...string) {
	n.t.Helper()
	Await(n.t, fmt.Sprintf("a line of node %s's log with %q", n.ID, words), bound, func() (string, bool) {
		log := n.Log()
		for line := range strings.Lines(log) {
			if holds(line, words) {
				return "", true
			}
		}
		return tail(log, 3), false
	})
}

func holds(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

// Get asks the node's HTTP server.
func (n *Node) Get(path string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	return resp.StatusCode, b.Bytes(), err
}

// Metric sums the samples of a metric that have all these labels, each written name="value".
func (n *Node) Metric(name string, labels ...string) (sum float64) {
	n.t.Helper()
	_, body, err := n.Get("/metrics")
	Must(n.t, err)
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' || !holds(rest, labels) {
			continue
		}
		fields := strings.Fields(rest)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		Must(n.t, err)
		sum += v
	}
	return sum
}

// Status is what /status answers now.
func (n *Node) Status() (st Status, err error) {
	code, body, err := n.Get("/status")
	switch {
	case err != nil:
		return st, err
	case code != http.StatusOK:
		return st, fmt.Errorf("/status answers %d", code)
	}
	return st, json.Unmarshal(body, &st)
}

// WaitUntil waits until cond holds for the node's first stream.
func (n *Node) WaitUntil(what string, bound time.Duration, cond func(StreamStatus) bool) {
	n.t.Helper()
	Await(n.t, what+" at node "+n.ID, bound, func() (string, bool) {
		if n.child.Ended() {
			n.t.Fatalf("node %s ended with code %d while waiting for %s", n.ID, n.child.Code(), what)
		}
		st, err := n.Status()
		if err != nil {
			return err.Error(), false
		}
		return st.String(), len(st.Streams) > 0 && cond(st.Streams[0])
	})
}

// Ask runs another command of the program over the node's configuration to its end, and returns its exit code and what it printed.
func (n *Node) Ask(args ...string) (code int, printed string) {
	n.t.Helper()
	cmd := n.Command(append(args, "-c", n.Config())...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	child, err := servers.Spawn(cmd, syscall.SIGKILL)
	Must(n.t, err)
	if !child.Wait(60 * time.Second) {
		child.Signal(syscall.SIGKILL)
		n.t.Fatalf("twgd %q did not end within a minute", args)
	}
	return child.Code(), out.String()
}
