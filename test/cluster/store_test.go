//go:build linux && e2e

package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/fleet"
	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/servers"
)

// backed is a cluster of three whose backups lie in a bucket of its own.
func backed(t *testing.T) (*fleet.Fleet, *fleet.Tenancy) {
	t.Helper()
	s, err := servers.S3(t.Context())
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, s.Close()) })
	bucket, err := s.NewBucket(t.Context())
	harness.Must(t, err)
	return three(t, func(o *fleet.Options) {
		o.Backup = map[string]any{"to": s.URL(bucket, "backups")}
		o.Forward = []string{strings.TrimPrefix(s.Endpoint(), "http://")}
		for name, value := range s.Env() {
			o.Env = append(o.Env, name+"="+value)
		}
	})
}

// backup makes a backup now.
func backup(t *testing.T, n *fleet.Node) {
	t.Helper()
	if code, out := n.Ask("backup", "now"); code != 0 {
		t.Fatalf("backup now ends with code %d:\n%s", code, out)
	}
}

func TestAllDisksAreLostAndTheBackupComesBack(t *testing.T) {
	f, y := backed(t)
	c, end := y.Client("keeper~1")
	old, err := c.Acquire(t.Context(), "kept", time.Hour)
	harness.Must(t, err)
	end()
	was, err := f.Node(1).View()
	harness.Must(t, err)
	backup(t, f.Node(2))
	for _, n := range f.Nodes {
		n.Kill()
		n.Wipe()
	}
	f.Start()
	f.Rest(60*time.Second, 1, 2, 3)
	f.Node(1).Until("to be of the next incarnation", 10*time.Second, func(v fleet.View) bool { return v.Incarnation == was.Incarnation+1 })
	info, err := c.Observe(t.Context(), "kept")
	harness.Must(t, err)
	if info.Token != old.Token() {
		t.Errorf("before the loss a lease was held under %x; out of the backup came %+v", old.Token(), info)
	}
	next, end := y.Client("keeper~2")
	defer end()
	held, err := next.Acquire(t.Context(), "new", time.Minute)
	harness.Must(t, err)
	if held.Token()>>40 != was.Incarnation+1 {
		t.Errorf("after the restore a lease is granted under %x, which is not of incarnation %d", held.Token(), was.Incarnation+1)
	}
}

func TestCaseK20NothingIsRestoredOverData(t *testing.T) {
	f, y := backed(t)
	backup(t, f.Node(1))
	c, end := y.Client("keeper~1")
	held, err := c.Acquire(t.Context(), "after the backup", time.Hour)
	harness.Must(t, err)
	end()
	was, err := f.Node(1).View()
	harness.Must(t, err)
	for _, n := range f.Nodes {
		n.Kill()
	}
	f.Start()
	for _, n := range f.Nodes {
		n.Says(5*time.Second, "nothing is restored")
	}
	f.Rest(30*time.Second, 1, 2, 3)
	now, err := f.Node(1).View()
	harness.Must(t, err)
	if now.Incarnation != was.Incarnation || !slices.Equal(now.Seats(), was.Seats()) {
		t.Errorf("it was %v, and after a restart it is %v", was, now)
	}
	info, err := c.Observe(t.Context(), "after the backup")
	harness.Must(t, err)
	if info.Token != held.Token() {
		t.Errorf("what was told after the backup was %x, and is %+v", held.Token(), info)
	}
}
