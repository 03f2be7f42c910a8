//go:build linux && e2e

// Package cluster puts real nodes of the program, each on a host of its own, through what happens to clusters.
package cluster

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/fleet"
)

var program string

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("4") // nodes mostly wait; what is timed closely is not run beside others
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "twgd-cluster-")
	if err == nil {
		defer os.RemoveAll(dir)
		program, err = fleet.Program(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// long makes times as long as the cases name them; otherwise they are shortened to what a check on every change can afford.
var long = os.Getenv("TWGD_E2E_LONG") != ""

// three is a cluster of three with all seats taken, and a tenancy.
func three(t *testing.T, shape func(*fleet.Options)) (*fleet.Fleet, *fleet.Tenancy) {
	t.Helper()
	t.Parallel()
	o := fleet.Options{Program: program, Nodes: 3}
	if shape != nil {
		shape(&o)
	}
	f := fleet.New(t, o)
	f.Form()
	return f, f.Tenancy()
}

// others are the numbers of all nodes but these.
func others(f *fleet.Fleet, but ...*fleet.Node) (out []int) {
next:
	for _, n := range f.Nodes {
		for _, b := range but {
			if n == b {
				continue next
			}
		}
		out = append(out, n.Number)
	}
	return out
}

// follower is a node that does not lead, and the third one.
func follower(f *fleet.Fleet, leader *fleet.Node) (one, other *fleet.Node) {
	rest := others(f, leader)
	return f.Node(rest[0]), f.Node(rest[1])
}

// gone waits until the leader counts a node as failed.
func gone(f *fleet.Fleet, n *fleet.Node) {
	f.Helper()
	f.Leader(10*time.Second).Until(n.Name+" to count as failed", 30*time.Second, func(v fleet.View) bool { return v.Member(n.Name).State == "failed" })
}
