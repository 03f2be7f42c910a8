//go:build e2e

package servers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leavesNothing checks, once the test and its cleanups are over, that no process of the server's and no file of its folder is left.
func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	t.Cleanup(func() {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
		commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range commands {
			if b, _ := os.ReadFile(path); strings.Contains(string(b), dir) {
				t.Errorf("left running: %s: %q", path, b)
			}
		}
	})
}

func closes(t *testing.T, server interface{ Close() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error("close:", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stateOf is the letter that the kernel gives a process: T is stopped.
func stateOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}

// eventually waits for the kernel to carry out what it was told.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	err := await(t.Context(), "a state", func(context.Context) error {
		if ok() {
			return nil
		}
		return fmt.Errorf("not yet")
	})
	must(t, err)
}
