//go:build linux

// Package fleet runs a cluster of real processes of the program, each on a host of its own in a netlab, and waits for what should be so.
//
// A node is asked over the socket in its data directory, which needs no network: what a partition cuts off can still be seen. Every wait
// has a bound and says what it saw last; a test that fails prints the end of every node's log.
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/netlab"
)

// Options of a fleet. What is empty is left to the program's defaults.
type Options struct {
	Program string // path of the binary
	Nodes   int
	Size    int // seats; 0: 3

	Settle     time.Duration
	FoundAfter time.Duration // empty: 2 s, so that a test need not wait
	Grace      time.Duration
	Alone      bool           // no join addresses and no secret: a cluster of one
	Cluster    string         // its name; empty: test
	Backup     map[string]any // cluster.backup
	Env        []string       // for the processes
	Forward    []string       // servers of this machine that the hosts may reach under the same addresses
}

// Fleet is the nodes and their network. It belongs to the test's goroutine, but for what says otherwise.
type Fleet struct {
	testing.TB
	Options
	Lab   *netlab.Lab
	Nodes []*Node

	dir string
}

// New prepares nodes n1, n2 …, of ordinals 0, 1 …; none runs yet. One host more is the tenants'. All ends with the test.
func New(t testing.TB, o Options) *Fleet {
	t.Helper()
	o.Size = cmp.Or(o.Size, 3)
	o.FoundAfter = cmp.Or(o.FoundAfter, 2*time.Second)
	o.Cluster = cmp.Or(o.Cluster, "test")
	lab, err := netlab.New(o.Nodes + 1)
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, lab.Close()) })
	f := &Fleet{TB: t, Options: o, Lab: lab, dir: harness.Dir(t)}
	for i := 1; i <= o.Nodes; i++ {
		f.Nodes = append(f.Nodes, f.node(i))
	}
	for _, address := range o.Forward {
		for _, n := range f.Nodes {
			stop, err := n.host.Forward(address)
			harness.Must(t, err)
			t.Cleanup(stop)
		}
	}
	return f
}

// node prepares the ith node.
func (f *Fleet) node(i int) *Node {
	dir := filepath.Join(f.dir, fmt.Sprintf("n%d", i))
	harness.Must(f, os.Mkdir(dir, 0o755))
	n := &Node{Name: fmt.Sprintf("n%d", i), Number: i, Data: filepath.Join(dir, "data"), fleet: f, host: f.Lab.Host(i), dir: dir, port: 7481}
	f.Cleanup(n.end)
	return n
}

// Node is the ith, from 1.
func (f *Fleet) Node(i int) *Node { return f.Nodes[i-1] }

// Start starts these nodes, all where none is named, at once, and returns when each can be asked.
func (f *Fleet) Start(numbers ...int) {
	f.Helper()
	nodes := f.pick(numbers)
	for _, n := range nodes {
		n.Launch("run")
	}
	for _, n := range nodes {
		n.Up()
	}
}

// Stop sends SIGTERM to these nodes, all where none is named, at once, and waits for each to end with code 0.
func (f *Fleet) Stop(numbers ...int) {
	f.Helper()
	nodes := f.pick(numbers)
	for _, n := range nodes {
		n.Terminate()
	}
	for _, n := range nodes {
		if code := n.Exit(40 * time.Second); code != 0 {
			f.Errorf("node %s ends with code %d at SIGTERM", n.Name, code)
		}
	}
}

func (f *Fleet) pick(numbers []int) []*Node {
	if len(numbers) == 0 {
		return f.Nodes
	}
	out := make([]*Node, len(numbers))
	for i, number := range numbers {
		out[i] = f.Node(number)
	}
	return out
}

// Running are the nodes whose process runs.
func (f *Fleet) Running() (out []*Node) {
	for _, n := range f.Nodes {
		if n.Running() {
			out = append(out, n)
		}
	}
	return out
}

// Named is the node of that name, nil where there is none.
func (f *Fleet) Named(name string) *Node {
	for _, n := range f.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Program builds the program into the folder of a package's tests: call it from TestMain, and remove the folder afterwards.
func Program(dir string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return harness.Build(ctx, dir)
}
