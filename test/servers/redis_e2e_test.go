//go:build e2e

package servers

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A key is set once, and what was answered is in the log that was asked for.
func TestRedisSetsOnceAndLogs(t *testing.T) {
	s, err := Redis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for _, want := range []string{"+OK\r\n", "$-1\r\n"} {
		if _, err := c.Write([]byte("SET key value NX PX 60000\r\n")); err != nil {
			t.Fatal(err)
		}
		if got, err := in.ReadString('\n'); got != want {
			t.Errorf("%q, want %q: %v", got, want, err)
		}
	}
	logs, err := filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	if info, err := os.Stat(logs[0]); err != nil || info.Size() == 0 {
		t.Error("the log is empty")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
