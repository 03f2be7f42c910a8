package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A node that starts on a full disk lives, says so, and takes part once there is room. Records go elsewhere and need nothing of it.
func TestCaseK21StartOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=3m"); err != nil {
		t.Skip("mounting a small file system: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(l *lab) {
		there := func(o *Options) { alone(o); o.Dir = filepath.Join(small, "n1") }
		p := l.run("n1", there)
		l.until(2*time.Second, "a leader", func() bool { return p.state() == "ok" })
		p.term()
		ballast := filepath.Join(small, "ballast")
		p = l.run("n1", there)
		l.until(time.Second, "a leader again", func() bool { return p.state() == "ok" })
		fill(t, ballast)
		full := func() bool { return strings.Contains(strings.Join(p.n.Ready(), " "), "disk_full") }
		for i := 0; i < 1000 && !full(); i++ {
			p.fillLog(i)
		}
		l.until(time.Minute, "it says so", full)
		p.term()
		p = l.run("n1", there)
		time.Sleep(time.Minute)
		select {
		case <-p.ended:
			t.Fatal("it has ended: ", p.err)
		default:
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		l.until(30*time.Second, "it leads again", func() bool { return p.state() == "ok" && len(p.n.Ready()) == 0 })
		if err := p.write(5 * time.Second); err != nil {
			t.Fatal(err)
		}
	})
}

// fillLog takes a lease with a long name.
func (p *proc) fillLog(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _, _ = p.n.Leases().Try(ctx, fmt.Sprint(i, strings.Repeat("x", 1000)), time.Hour) // where it fails the disk is full
}

// fill writes until there is no room.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
}
