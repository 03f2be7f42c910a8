package main

import (
	"os"
	"path/filepath"
	"testing"
)

// clustered adds a cluster of one to a configuration, with backups in a directory.
func (l *lab) clustered(file string) string {
	l.Helper()
	text, err := os.ReadFile(file)
	l.must(err)
	text = append(text, "cluster: {name: prod, size: 1, backup: {to: \"file://"+l.dir+"/backups\"}}\n"...)
	l.must(os.WriteFile(file, text, 0o644))
	return file
}

func TestClusterOfOne(t *testing.T) {
	l := newLab(t)
	file := l.clustered(l.config("one", "", ""))
	f := func(code int, want string, args ...string) {
		t.Helper()
		l.wants(code, []string{want}, append(args, "-c", file)...)
	}
	f(exitFailed, "no node runs on", "members")
	stop := l.start(file)
	l.until("the node leads", func() bool { return l.node.part.node.Status().State == "ok" })
	f(exitDone, "cluster prod: ok, size 1, leader one", "members")
	f(exitDone, `"roles": [`, "members", "-o", "json")
	f(exitDone, "cluster prod: ok", "status")
	f(exitDone, "cluster.size=1\n", "tune")
	f(exitUsage, "an even number of seats", "tune", "cluster.size=2")
	f(exitUsage, "is no KEY=VALUE", "tune", "cluster.size")
	f(exitDone, "cluster.settle=1m0s\n", "tune", "cluster.settle=1m0s")
	f(exitDone, "read back and verified", "backup", "now")
	f(exitDone, ".twgb: good\n", "backup", "verify")
	f(exitDone, `"incarnation": 1`, "backup", "ls", "-o", "json")
	f(exitRefused, "a node runs on", "restore", "--from-disk")
	l.produce("a", "b")
	l.until("both rows are there", func() bool {
		return l.node.streams[0].status().Sinks[0].Covered != nil && *l.node.streams[0].status().Sinks[0].Covered == 2
	})
	f(exitDone, "one has stopped", "stop")
	stop()
}

func TestClusterCommandsWithoutOne(t *testing.T) {
	l := newLab(t)
	file := l.config("one", "", "")
	l.start(file)
	for _, name := range []string{"members", "tune", "leave"} {
		l.wants(exitUsage, []string{"cluster.size is 0"}, name, "-c", file)
	}
	l.wants(exitUsage, []string{"cluster.size is 0"}, "restore", "-c", file)
	l.wants(exitUsage, []string{"cluster.backup.to"}, "backup", "ls", "-c", file)
	l.wants(exitUsage, []string{"size 0 is for itself"}, "join", "127.0.0.1:1", "-c", file)
	l.wants(exitUsage, []string{"there is no cluster to found"}, "run", "--found", "-c", file)
}

func TestDropOfAStoppedNode(t *testing.T) {
	l := newLab(t)
	file := l.clustered(l.config("one", "", ""))
	stop := l.start(file)
	l.until("the node leads", func() bool { return l.node.part.node.Status().State == "ok" })
	stop()
	l.wants(exitDone, []string{"joins anew"}, "leave", "--drop", "-c", file)
	if _, err := os.Stat(filepath.Join(l.dir, "one", "raft")); !os.IsNotExist(err) {
		t.Errorf("the state is still there: %v", err)
	}
}
