package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTwoNodesShareARawDirectory: both read one partition, so that they race for one chain. In the end nothing is missing, nothing is
// there twice, and the auditor sees it by the same configuration.
func TestTwoNodesShareARawDirectory(t *testing.T) {
	l := newLab(t)
	shared := func(name string) string {
		file := l.config(name, "", "")
		text, err := os.ReadFile(file)
		l.must(err)
		l.must(os.WriteFile(file, []byte(strings.Replace(string(text), "raw: {", "raw: {shared: true, ", 1)), 0o644))
		return file
	}
	stored := func(n int64) {
		t.Helper()
		l.until(fmt.Sprintf("%d offsets are in raw", n), func() bool {
			p := l.status().Partitions
			return len(p) == 1 && p[0].RawNext != nil && *p[0].RawNext == n
		})
	}
	one, two := shared("one"), shared("two")
	stopOne := l.start(one)
	stored(0)
	stopTwo := l.start(two)
	stored(0)
	for i := range 20 {
		l.produce(fmt.Sprint(i), "again")
	}
	stored(40)
	stopOne()
	l.produce("last")
	stored(41)
	stopTwo()
	if _, err := os.Stat(filepath.Join(l.dir, "raw", "orders", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock of a shared directory: %v", err)
	}
	l.wants(exitDone, nil, "audit", "-c", one, "--rows")
	l.wants(exitDone, nil, "raw", "verify", "-c", two)
	l.wants(exitRefused, []string{"several nodes share this directory"}, "run", "-c", l.config("three", "", ""))
}
