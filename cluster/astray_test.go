package cluster

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/store"
)

// What an operator does by mistake, or because a text told so.

// A node with another secret sees nobody it could ask. That is no reason to call the seats lost: the others serve.
func TestRestoreIsRefusedWherePeersHaveAnotherSecret(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		astray := names3[slices.IndexFunc(names3, func(n string) bool { return l.procs[n] != l.leader() })]
		l.procs[astray].kill()
		p := l.run(astray, func(o *Options) { o.Secret = "another" })
		l.until(time.Minute, "no quorum", func() bool { return p.state() == "no_quorum" && len(p.n.Status().Alarms) > 0 })
		if s := p.n.Status(); strings.Contains(s.Mend, "restore") || !strings.Contains(s.Mend, "secret is another") {
			t.Errorf("it tells: %s", s.Mend)
		}
		p.kill()
		o := l.quiet(astray)
		o.Secret = "another"
		_, err := RestoreFromDisk(l.ctx, o, names3)
		if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "secret is another") {
			t.Errorf("restored: %v", err)
		}
	})
}

// Backups that are there and cannot be read are not thrown away for empty tables.
func TestRestoreIsRefusedWithoutTheIdentity(t *testing.T) {
	bubble(t, func(l *lab) {
		id, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		b, err := store.Open(t.Context(), "file://"+filepath.Join(l.dir, "store"), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		place, err := backup.Open(b, "test", backup.Options{Keep: 5, EncryptTo: []string{id.Recipient().String()}})
		if err != nil {
			t.Fatal(err)
		}
		with := func(o *Options) { o.Backup, o.Join = &BackupOptions{Place: place, Every: time.Hour}, nil }
		p := l.run("n1", with)
		l.until(time.Minute, "serving", func() bool { return p.state() != "founding" && p.n.Status().Leader == "n1" })
		if _, err := p.n.Backup(l.ctx); err != nil {
			t.Fatal(err)
		}
		p.kill()
		l.wipe("n1")
		o := l.quiet("n1")
		with(&o)
		if _, err := Restore(l.ctx, o, nil); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "identity_file") {
			t.Errorf("restored: %v", err)
		}
		if n, _, _, err := place.Latest(l.ctx); err != nil || n != 1 {
			t.Errorf("incarnation %d was claimed: %v", n, err)
		}
	})
}

// A second node of a name that is alive gets no copy of the log, and the cluster says so.
func TestTwoNodesOfOneName(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		twin := l.run("n4", func(o *Options) { o.Node = "n2" })
		told := func(p *proc) bool {
			return slices.ContainsFunc(p.n.Status().Alarms, func(s string) bool { return strings.Contains(s, "two nodes are called n2") })
		}
		l.until(time.Minute, "all tell of it", func() bool { return told(l.procs["n1"]) && told(l.procs["n3"]) && told(twin) })
		if s := l.leader().n.current().q.State(); len(s.Servers) != 3 {
			t.Errorf("the twin was taken in: %+v", s.Servers)
		}
		if s := l.procs["n2"].state(); s != "ok" {
			t.Error("n2 is ", s)
		}
		twin.kill()
		l.until(time.Minute, "the alarm ends", func() bool { return !told(l.procs["n1"]) })
	})
}

// Without a leader a member that does not answer is not called active.
func TestMembersWithoutALeader(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.procs["n2"].kill()
		l.procs["n3"].kill()
		state := func() (out string) {
			for _, m := range l.procs["n1"].n.Status().Members {
				out += m.ID + " " + m.State + " "
			}
			return out
		}
		l.until(30*time.Second, "they are seen", func() bool { return state() == "n1 active n2 failed n3 failed " })
	})
}

// Nobody waits for the outcome of this leave; that it was refused is told all the same.
func TestARefusedLeaveIsToldAtOnce(t *testing.T) {
	bubble(t, func(l *lab) {
		p := l.run("n1", alone)
		l.until(5*time.Second, "serving", func() bool { return p.state() == "ok" })
		if err := p.n.Leave(l.ctx, LeaveOptions{}); !errors.Is(err, ErrUnsafe) {
			t.Error(err)
		}
	})
}

// Each node shows the last backup, whoever made it.
func TestAllKnowTheLastBackup(t *testing.T) {
	bubble(t, func(l *lab) {
		with := l.stored()
		for _, n := range names3 {
			l.run(n, with)
		}
		l.until(time.Minute, "three seats", func() bool { return l.all("n1 n2 n3") })
		info, err := l.procs["n3"].n.Backup(l.ctx)
		if err != nil {
			t.Fatal(err)
		}
		l.until(5*time.Second, "all know it", func() bool {
			return !slices.ContainsFunc(names3, func(n string) bool { return l.procs[n].n.Status().Backup.Name != info.Name })
		})
	})
}
